"""The client's end of the client lane: one DEALER, read and written without an event loop.

The lane never waits by itself; `wait` below does, for the lane and for the file descriptors of the command
(signals, standard input, the supervisor's death) together.
"""

import _thread
import math
from collections.abc import Collection
from typing import Final

import zmq

from haltline.protocol import codec
from haltline.protocol.client_messages import ClientHello, ToClient, ToSupervisor
from haltline.protocol.endpoints import Endpoints, ipc
from haltline.protocol.errors import ConfigurationProblem

RECONNECT_MS = 5
"""A supervisor binds a few milliseconds after its folder appears."""
LINGER_MS = 200
"""The last message (CloseSession, a cancel) has this long to leave; a supervisor that hangs holds up no exit."""

LAST_WORDS_S: Final = 0.1
"""How long what a dead supervisor had sent may take through the kernel and the lane's thread."""

THREADS: Final = 4
"""Started and ended before ZeroMQ's two: room for these while ours are still going away."""

LANE: Final = -1
"""Stands for the lane among ready file descriptors."""


Context = zmq.Context[zmq.Socket[bytes]]


class Lane:
    """A connection that has said hello. Welcome, or Refused, is its first answer."""

    def __init__(self, endpoints: Endpoints, token: bytes, *, context: Context | None = None) -> None:
        """`context`: one that other lanes use too, which its maker ends. Raises as `new_context` does."""
        self._context = context or new_context()
        self._shared = context is not None
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, LINGER_MS)
        self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self.socket.connect(ipc(endpoints.clients))
        self.send(ClientHello(token=token))

    def send(self, message: ToSupervisor) -> None:
        """Queue a message. A lane that holds a thousand unsent ones has a dead peer: zmq.Again is a bug of ours."""
        self.socket.send(codec.to_supervisor.encode(message), zmq.NOBLOCK)

    def receive(self) -> ToClient | None:
        """The next message that has arrived, None when there is none. Raises Undecodable."""
        try:
            frames = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return codec.to_client.decode(frames[-1])

    def close(self) -> None:
        """Send what is queued, LINGER_MS at most, and let go."""
        self.socket.close()
        if not self._shared:
            self._context.term()


def new_context() -> Context:
    """Raises ConfigurationProblem where the system has no room for its threads."""
    _check_threads()
    return zmq.Context(io_threads=1)


def _check_threads() -> None:
    """ZeroMQ ends the process by SIGABRT where it cannot have a thread; we can say why."""
    hold = _thread.allocate_lock()
    with hold:
        try:
            for _ in range(THREADS):
                _thread.start_new_thread(_pass, (hold,))
        except RuntimeError as error:
            raise ConfigurationProblem(
                f"the system refuses to start another thread (see ulimit -u): {error}"
            ) from error


def _pass(hold: _thread.LockType) -> None:
    with hold:
        return


def wait(
    lane: Lane | None, *, reading: Collection[int], writing: Collection[int] = (), timeout_s: float | None
) -> frozenset[int]:
    """What is ready, or at its end, within `timeout_s` (None: no bound): descriptors, and LANE for the lane."""
    poller = zmq.Poller()
    if lane is not None:
        poller.register(lane.socket, zmq.POLLIN)
    for fd in reading:
        poller.register(fd, zmq.POLLIN)
    for fd in writing:
        poller.register(fd, zmq.POLLOUT)
    happened = poller.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000)))
    return frozenset(LANE if isinstance(ready, zmq.Socket) else ready for ready, _ in happened)
