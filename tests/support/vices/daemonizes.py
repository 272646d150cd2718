"""Leaves a daemon behind: two forks, a session of its own, no descriptor kept, then `sleep` with an empty environment.

With `stay` the caller waits; without, it ends at once.
"""

import os
import sys
import time

from support.vices.readiness import ready

told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.chdir("/")
        os.write(tell, b".")
        os.execve("/bin/sleep", ["sleep", "25"], {})
    os._exit(0)
os.wait()
os.read(told, 1)
ready()
if "stay" in sys.argv:
    time.sleep(25)
