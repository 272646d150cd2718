"""Starts `sleep` in a session of its own that ignores SIGTERM, and waits, itself obeying.

usage: leaves.py child|orphan kept|empty

`orphan`: its parent is dead by then. `empty`: it has no environment.
"""

import os
import signal
import sys
import time

from support.vices.readiness import ready

parent, environment = sys.argv[1:]


def leave() -> None:
    os.setsid()
    if parent == "orphan" and os.fork() != 0:
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.execve("/bin/sleep", ["sleep", "25"], dict(os.environ) if environment == "kept" else {})


told, tell = os.pipe()  # neither end outlives the exec
middle = os.fork()
if middle == 0:
    leave()
os.close(tell)
os.read(told, 1)
if parent == "orphan":
    os.waitpid(middle, 0)
ready()
time.sleep(25)
