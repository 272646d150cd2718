"""Starts a command with `nohup` and waits for it."""

import subprocess

from support.vices.readiness import ready

with subprocess.Popen(["nohup", "sleep", "25"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
    ready()
