"""Which isolations this machine has, and for whom: found out here by other code than the product's.

A container may allow no namespaces at all, and a system none to ordinary users. What can be had is tested; what
cannot has to be refused, or done without, in words.
"""

from __future__ import annotations

import ctypes
import os
from typing import Literal

from support.ordinary_user import USER

from haltline.protocol.kinds import Isolation

Who = Literal["root", "user"]

_NEWNS, _NEWUSER, _NEWPID = 0x00020000, 0x10000000, 0x20000000
_NOSUID_NODEV_NOEXEC = 14
_REC_PRIVATE = 16384 | 1 << 18


def _works_for(who: Who) -> bool:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = _try(who)
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def _try(who: Who) -> int:
    """In a process of its own; 0 where it works."""
    libc = ctypes.CDLL(None)
    if who == "user" and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: lost with the user id
    uid = os.geteuid()
    if libc.unshare(_NEWNS | _NEWPID | (_NEWUSER if who == "user" else 0)) != 0:
        return 1
    libc.mount(b"none", b"/", None, _REC_PRIVATE, None)  # nothing of this gets out
    if who == "user":
        with open("/proc/self/uid_map", "w") as uid_map:
            uid_map.write(f"{uid} {uid} 1")
    process_1 = os.fork()
    if process_1 == 0:
        os._exit(1 if libc.mount(b"none", b"/proc", b"proc", _NOSUID_NODEV_NOEXEC, None) else 0)
    return os.waitpid(process_1, 0)[1]


USERS: tuple[Who, ...] = ("user", "root") if os.geteuid() == 0 else ("user",)
"""As whom this test run can run something."""
NAMESPACED: tuple[Who, ...] = tuple(who for who in USERS if _works_for(who))
"""Who of them can have a PID namespace."""
ISOLATIONS: tuple[Isolation, ...] = ("subreaper", "pidns") if USERS[-1] in NAMESPACED else ("subreaper",)
"""Those that whoever runs the tests can have."""
