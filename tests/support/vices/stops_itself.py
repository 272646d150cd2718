"""Stops itself with SIGSTOP; a helper ends it after 25 s. Obeys SIGTERM once it goes on."""

import os
import signal
import time

from support.vices.readiness import ready

stopped = os.getpid()
if os.fork() == 0:
    time.sleep(25)
    os.kill(stopped, signal.SIGKILL)
    os._exit(0)
ready()
os.kill(stopped, signal.SIGSTOP)
time.sleep(25)
