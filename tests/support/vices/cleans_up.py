"""Writes the file that it is given when it gets SIGTERM, then ends: a lock that must not stay behind."""

import signal
import sys
import time

from support.vices.readiness import ready


def clean_up(_number: int, _frame: object) -> None:
    with open(sys.argv[1], "w") as marker:
        marker.write("cleaned")
    sys.exit(0)


signal.signal(signal.SIGTERM, clean_up)
ready()
time.sleep(25)
