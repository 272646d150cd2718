"""The door: how a second terminal gets a token for the client lane.

A plain Unix stream socket, because the kernel tells who is at the other end (SO_PEERCRED, right also across PID
namespaces). A tool command has the same user id as the user's terminal and must still be refused, also when it
forked twice: the subreapers keep whatever a tool starts below us, so everything that descends from this
supervisor's own chain is turned away (L4).
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterator

from haltline.protocol import processes
from haltline.protocol.door import TOKEN_BYTES, Granted, TurnedAway, encode

_PEER = struct.Struct("3i")


class Door:
    """`ours()` gives the pids whose descendants are refused; `grant(token)` makes a token valid for one hello."""

    def __init__(self, path: str, *, ours: Callable[[], frozenset[int]], grant: Callable[[bytes], None]) -> None:
        self._ours = ours
        self._grant = grant
        self._loop = asyncio.get_running_loop()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(path)
        self._listener.listen(64)
        self._loop.add_reader(self._listener, self._answer)

    def _answer(self) -> None:
        try:
            peer, _address = self._listener.accept()
        except OSError:  # it has gone again, or no descriptor is left: it is not let in
            return
        with peer:
            peer.setblocking(False)
            pid, uid, _gid = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            try:
                peer.send(encode(self._reply(pid, uid)))
            except (BrokenPipeError, ConnectionResetError, BlockingIOError):
                return  # whoever asked did not stay for the answer

    def _reply(self, pid: int, uid: int) -> Granted | TurnedAway:
        if uid not in (os.getuid(), 0):
            return TurnedAway("this supervisor belongs to another user")
        if pid <= 0 or not self._ours().isdisjoint(_ancestry(pid)):
            return TurnedAway("a tool of a session may not control sessions; use a terminal of your own")
        token = os.urandom(TOKEN_BYTES)
        self._grant(token)
        return Granted(token)

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()


def _ancestry(pid: int) -> Iterator[int]:
    """`pid`, its parent, and so on up to init."""
    while pid > 0:
        yield pid
        process = processes.read_process(pid)
        pid = 0 if process is None else process.parent
