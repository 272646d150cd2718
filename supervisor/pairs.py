"""A pair of sockets between supervisor and zygote that keeps messages apart and carries descriptors."""

from __future__ import annotations

import socket

from haltline.protocol.platforms import PORTABLE

BUFFER_BYTES = 262_144
"""For whole messages where the system's default is smaller than one (2 KiB for datagrams of macOS)."""


def message_pair() -> tuple[socket.socket, socket.socket]:
    """Linux alone knows connected packets (SOCK_SEQPACKET) between processes; datagrams do, without an end: whoever
    asks sees the other's death elsewhere."""
    if not PORTABLE:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for one in pair:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return pair
