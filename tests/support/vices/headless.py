"""Starts a group of its own whose leader ends at once and whose two members live on; waits."""

import os
import time

from support.vices.readiness import ready

told, tell = os.pipe()
leader = os.fork()
if leader == 0:
    os.setsid()
    for _ in range(2):
        if os.fork() == 0:
            os.write(tell, b".")
            time.sleep(25)
            os._exit(0)
    os._exit(0)
os.waitpid(leader, 0)
came = b""
while len(came) < 2:
    came += os.read(told, 2)
ready()
time.sleep(25)
