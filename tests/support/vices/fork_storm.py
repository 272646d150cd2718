"""Three lines of processes, each forking its successor in a new session every 5 ms and dying, for at most 8 s.

A list of processes is old as soon as it is made: whoever kills from a list loses.
"""

import os
import time

from support.vices.readiness import ready

END = time.monotonic() + 8.0


def storm() -> None:
    while time.monotonic() < END:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.005)
    os._exit(0)


for _ in range(3):
    if os.fork() == 0:
        storm()
ready()
time.sleep(8)
