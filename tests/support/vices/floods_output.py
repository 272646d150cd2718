"""Prints as fast as it can for at most 10 s: lines, or with `one-line` a single endless one."""

import os
import sys
import time

from support.vices.readiness import ready

PIECE = b"y" * 65_536 if "one-line" in sys.argv else b"y\n" * 32_768
END = time.monotonic() + 10.0

ready()
while time.monotonic() < END:
    os.write(1, PIECE)
