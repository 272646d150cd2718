"""Ten processes, three deep, that obey SIGTERM."""

import os
import time

from support.vices.readiness import ready

told, tell = os.pipe()


def grow(depth: int, width: int) -> None:
    for _ in range(width):
        if os.fork() == 0:
            grow(depth - 1, 2 if depth > 1 else 0)
            os.write(tell, b".")
            time.sleep(25)
            os._exit(0)


grow(2, 3)
came = b""
while len(came) < 9:
    came += os.read(told, 9)
ready()
time.sleep(25)
