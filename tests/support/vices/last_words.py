"""Prints a given number of bytes just before it ends."""

import os
import sys

left = int(sys.argv[1])
while left:
    left -= os.write(1, b"x" * min(left, 65_536))
