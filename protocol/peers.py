"""Who is at the other end of a Unix socket, by the kernel's word."""

import os
import select
import socket
import struct
import sys

from haltline.protocol import processes
from haltline.protocol.platforms import PORTABLE

_LINUX = struct.Struct("3i")
_SO_PEERPIDFD = 77
"""asm-generic/socket.h; Python has no name for it."""
_INT_BYTES = 4

_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 0x001, 0x002
_MACOS = struct.Struct("2Ih16I")
"""sys/un.h and struct xucred (sys/ucred.h) of macOS: version, user, number of groups, groups."""


def of(peer: socket.socket) -> tuple[int, int]:
    """Process and user of whoever connected; process 0 where it is in a namespace that we cannot look into. Raises
    OSError where it has gone."""
    if sys.platform.startswith("linux"):
        pid, uid, _gid = _LINUX.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _LINUX.size))
    else:
        uid = _MACOS.unpack(peer.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _MACOS.size))[1]
        pid = int.from_bytes(peer.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, _INT_BYTES), sys.byteorder)
    return pid, uid


class Presence:
    """Of the process that connected as `pid`, from now on. Raises OSError where it has gone already."""

    def __init__(self, peer: socket.socket, pid: int) -> None:
        self._pidfd = -1 if PORTABLE else _pidfd(peer, pid)
        self._identity = processes.identify(pid)

    def lasted(self) -> bool:
        """Whether it is still there; asked once."""
        if self._pidfd < 0:
            return self._identity is not None and processes.is_alive(self._identity)
        try:
            return not select.select([self._pidfd], [], [], 0)[0]
        finally:
            os.close(self._pidfd)


def _pidfd(peer: socket.socket, pid: int) -> int:
    """A descriptor of the very process that connected, where the kernel hands it out (6.5); else of its number now."""
    try:
        return int.from_bytes(peer.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _INT_BYTES), sys.byteorder)
    except OSError:
        return os.pidfd_open(pid)
