"""Prints for at most 10 s, as fast as it can: lines, or with `one-line` a single endless one.

A number is the rate instead, in MB/s.
"""

import os
import sys
import time

from support.vices.readiness import ready

PIECE = b"y" * 65_536 if "one-line" in sys.argv else b"y\n" * 32_768
RATES = [int(argument) * 1_000_000 for argument in sys.argv[1:] if argument.isdigit()]
BEGAN = time.monotonic()

ready()
printed = 0
while (now := time.monotonic()) < BEGAN + 10.0:
    if RATES and printed > RATES[0] * (now - BEGAN):
        time.sleep(0.001)
    else:
        printed += os.write(1, PIECE)
