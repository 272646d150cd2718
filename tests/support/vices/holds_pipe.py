"""Leaves a child behind in a session of its own that holds stdout and stderr and says nothing.

With `stay` the caller waits; without, it ends at once.
"""

import os
import sys
import time

from support.vices.readiness import ready

told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(tell, b".")
    time.sleep(25)
    os._exit(0)
os.read(told, 1)
ready()
if "stay" in sys.argv:
    time.sleep(25)
