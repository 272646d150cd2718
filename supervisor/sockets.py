"""A raw ZeroMQ socket on the asyncio loop, by its file descriptor (design 4: half the cost of zmq.asyncio).

1. The descriptor is edge-triggered: after an edge, and after every send, the socket is read until it is empty.
2. A turn of the loop reads at most MESSAGES_PER_TURN; what is left waits for the next turn, so that no lane
   starves another.
3. Sends never block. A full pipe is reported to the caller; nothing is dropped in silence (R78).
4. One thread owns the socket: the loop's.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence

import zmq

MESSAGES_PER_TURN = 256
"""Some 10 ms of work at 40 microseconds each."""

Frames = Sequence[bytes]


class LoopSocket:
    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], kind: int, on_frames: Callable[[Frames], None]) -> None:
        self._socket = context.socket(kind)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._loop = asyncio.get_running_loop()
        self._owner = threading.get_ident()
        self._on_frames = on_frames
        self._due = False
        self._closed = False

    def set(self, option: int, value: int) -> None:
        self._socket.setsockopt(option, value)

    def bind(self, address: str) -> None:
        self._socket.bind(address)
        self._loop.add_reader(self._fd(), self._drain)
        self._drain_soon()

    def _fd(self) -> int:
        return int(self._socket.getsockopt(zmq.FD))

    def send(self, frames: Frames) -> bool:
        """True: handed over. False: the peer's pipe is full, try again later. A peer that is gone counts as handed
        over: its end is learnt elsewhere."""
        assert threading.get_ident() == self._owner, "a socket belongs to one thread (rule 4)"
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        if int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._drain_soon()
        return True

    def _drain_soon(self) -> None:
        if not self._due and not self._closed:
            self._due = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._due = False
        for _ in range(MESSAGES_PER_TURN):
            if self._closed:
                return
            assert threading.get_ident() == self._owner, "a socket belongs to one thread (rule 4)"
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_frames(frames)
        self._drain_soon()

    def close(self, linger_ms: int = 0) -> None:
        """`linger_ms`: how long the context's end waits for what is still on its way."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._fd())
        self._socket.close(linger=linger_ms)
