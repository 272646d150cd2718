"""Obeys SIGTERM at once, before its child, which ignores it: the leader of the group is gone and the group is not."""

import os
import signal
import time

from support.vices.readiness import ready

told, tell = os.pipe()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(tell, b".")
    time.sleep(25)
    os._exit(0)
os.read(told, 1)
ready()
time.sleep(25)
