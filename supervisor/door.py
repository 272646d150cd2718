"""The door: how a second terminal gets a token for the client lane.

1. A plain Unix stream socket, because the kernel tells who is at the other end (protocol/peers.py), right also across
   PID namespaces.
2. A tool command has the same user id as the user's terminal and must still be refused, also when it forked twice:
   whoever descends from any process of a chain is turned away, this supervisor's or another's (L4, protocol/inside.py).
3. The peer has to be there before and after its ancestors were looked at: one that let its child knock and die would
   otherwise pass for a stranger.
"""

import asyncio
import os
import socket
from collections.abc import Callable

from haltline.protocol import inside, peers
from haltline.protocol.door import TOKEN_BYTES, Granted, TurnedAway, encode


class Door:
    """`grant(token)` makes a token valid for one hello."""

    def __init__(self, path: str, *, grant: Callable[[bytes], None]) -> None:
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
            try:
                pid, uid = peers.of(peer)
                peer.send(encode(self._reply(peer, pid, uid)))
            except OSError:
                return  # whoever asked did not stay for the answer

    def _reply(self, peer: socket.socket, pid: int, uid: int) -> Granted | TurnedAway:
        if uid not in (os.getuid(), 0):
            return TurnedAway("this supervisor belongs to another user")
        if not _is_outsider(peer, pid):
            return TurnedAway(inside.WORDS)
        token = os.urandom(TOKEN_BYTES)
        self._grant(token)
        return Granted(token)

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()


def _is_outsider(peer: socket.socket, pid: int) -> bool:
    """Rules 2 and 3. A peer that is gone, or whose ancestors could not all be seen, is not let in."""
    if pid <= 0:  # from a namespace that we cannot look into
        return False
    try:
        presence = peers.Presence(peer, pid)
    except OSError:
        return False
    outside = not inside.is_inside(pid)
    return presence.lasted() and outside
