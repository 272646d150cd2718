"""Starts a child in a session of its own that ignores SIGTERM, and waits for it."""

import os
import signal
import time

from support.vices.readiness import ready

told, tell = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(tell, b".")
    time.sleep(25)
    os._exit(0)
os.read(told, 1)
ready()
os.waitpid(child, 0)
