"""Runs a command where no further namespace can be made: `python no_namespaces.py COMMAND...`.

In a user namespace of its own, in which the user is who he was, with the limits of PID and user namespaces at 0. Needs
a machine on which a user namespace can be had.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

COMMAND = (sys.executable, "-I", "-B", __file__)
"""To be put before a command."""

_CLONE_NEWUSER = 0x10000000


def main() -> None:
    uid, gid = os.geteuid(), os.getegid()
    if ctypes.CDLL(None).unshare(_CLONE_NEWUSER) != 0:
        raise SystemExit("no user namespace can be had")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    for name in ("user", "pid"):
        Path(f"/proc/sys/user/max_{name}_namespaces").write_text("0")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
