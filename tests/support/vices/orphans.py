"""Makes as many orphans as it is told, each dead at once: zombies for whoever adopts them."""

import os
import sys

from support.vices.readiness import ready

for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.wait()
ready()
