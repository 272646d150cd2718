"""Ignores SIGTERM, SIGHUP and SIGINT."""

import signal
import time

from support.vices.readiness import ready

for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
ready()
time.sleep(25)
