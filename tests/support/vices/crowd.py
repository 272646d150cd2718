"""As many processes as it is told, all at once, all of them asleep."""

import os
import sys
import time

from support.vices.readiness import ready

for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(25)
        os._exit(0)
ready()
time.sleep(25)
