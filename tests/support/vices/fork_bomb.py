"""A fork bomb: each process forks two, again and again, for at most 12 s and up to so many processes at once.

    fork_bomb.py [MOST [own]]

MOST (1,500 unless said) is for the machine's sake: the kernel counts, for a user of its own where root runs this.
`own`: each process in a session of its own.
"""

import os
import resource
import sys
import time

from support.vices.readiness import ready

END = time.monotonic() + 12.0
MOST = int(sys.argv[1]) if len(sys.argv) > 1 else 1_500
OWN = sys.argv[2:] == ["own"]
USER = 61_500
"""Nobody's: processes of another uid are not counted."""


def of_this_user() -> int:
    """Threads that the kernel counts against the limit by now, roughly."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return count


def burst() -> None:
    while time.monotonic() < END:
        for _ in range(2):
            try:
                if os.fork() == 0 and OWN:
                    os.setsid()
            except BlockingIOError:
                tell_full()


def tell_full() -> None:
    """To the first process, once: there is no room for more."""
    try:
        os.write(full_w, b".")
    except BlockingIOError:
        return


full_r, full_w = os.pipe()
os.set_blocking(full_w, False)
before = 0 if os.getuid() == 0 else of_this_user()
if os.fork() == 0:
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    resource.setrlimit(resource.RLIMIT_NPROC, (before + MOST, before + MOST))
    burst()
    os._exit(0)
os.read(full_r, 1)
ready()
time.sleep(12)
