"""The lanes to the workers: mailbox (ROUTER) and broadcast (XPUB).

1. A worker may speak only after its hello proved it: right token, right role and session, first use. Before that,
   and from anybody unknown, messages are dropped.
2. It is ready only when its hello and the subscription frame of its own topic have both been seen: a broadcast
   before that would be lost (R77).
3. A cancel goes out as broadcast first, then addressed; addressed ones are repeated until acknowledged.
"""

from collections.abc import Callable

import msgspec
import zmq

from haltline.protocol import codec
from haltline.protocol.endpoints import Endpoints, ipc
from haltline.protocol.errors import Undecodable
from haltline.protocol.ids import Role, SessionId, WorkerId
from haltline.protocol.messages import Cancel, FromWorker, Hello, ToWorker
from haltline.supervisor.sockets import Frames, LoopSocket

SUBSCRIBED = b"\x01"
MESSAGE_BYTES = 32 << 20
"""Longest message of a worker: a response of 8 MiB in up to four bytes a character. Anybody may connect, so it is
kept from being longer before it is read."""
SUBSCRIPTION_BYTES = 4_096
RETRY_FULL_S = 0.02
"""How soon a full pipe is tried again."""


class Expected(msgspec.Struct, kw_only=True):
    """A worker that was spawned and has not yet been heard and seen."""

    role: Role
    session_id: SessionId
    token: bytes | None
    """None: used up."""
    subscribed: bool = False


class Mailbox:
    """`on_ready(worker_id)` once both halves of rule 2 are there; `on_message(worker_id, message)` afterwards."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoints: Endpoints,
        *,
        on_ready: Callable[[WorkerId], None],
        on_message: Callable[[WorkerId, FromWorker], None],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._on_ready = on_ready
        self._on_message = on_message
        self._call_later = call_later
        self._expected: dict[WorkerId, Expected] = {}
        self._proven: set[WorkerId] = set()
        self._full: dict[WorkerId, list[bytes]] = {}
        self._retrying = False
        self.dropped = 0
        """Messages that nobody proven sent, or that were none."""
        self._broadcast = LoopSocket(context, zmq.XPUB, self._on_subscription)
        self._broadcast.set(zmq.MAXMSGSIZE, SUBSCRIPTION_BYTES)
        self._broadcast.set(zmq.SNDHWM, 0)  # a stopped subscriber must still find the cancel when it goes on
        self._broadcast.bind(ipc(endpoints.broadcast))
        self._router = LoopSocket(context, zmq.ROUTER, self._on_router)
        self._router.set(zmq.MAXMSGSIZE, MESSAGE_BYTES)
        self._router.set(zmq.ROUTER_MANDATORY, 1)
        self._router.set(zmq.RCVHWM, 0)
        self._router.bind(ipc(endpoints.mailbox))

    def expect(self, worker_id: WorkerId, role: Role, session_id: SessionId, token: bytes) -> None:
        self._expected[worker_id] = Expected(role=role, session_id=session_id, token=token)

    def forget(self, worker_id: WorkerId) -> None:
        """Nothing from it counts any more (it is dead, or about to be)."""
        self._expected.pop(worker_id, None)
        self._proven.discard(worker_id)
        self._full.pop(worker_id, None)

    def send(self, worker_id: WorkerId, message: ToWorker) -> None:
        self._send(worker_id, codec.to_worker.encode(message))

    def broadcast(self, worker_ids: tuple[WorkerId, ...], cancel: Cancel) -> None:
        """Rule 3, first half: one message per worker, on its own topic."""
        data = codec.to_worker.encode(cancel)
        for worker_id in worker_ids:
            self._broadcast.send((worker_id.encode(), data))

    def _send(self, worker_id: WorkerId, data: bytes) -> None:
        waiting = self._full.get(worker_id)
        if waiting is not None:
            waiting.append(data)
        elif not self._router.send((worker_id.encode(), data)):
            self._full[worker_id] = [data]
            self._retry_later()

    def _retry_later(self) -> None:
        if self._full and not self._retrying:
            self._retrying = True
            self._call_later(RETRY_FULL_S, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        for worker_id, waiting in list(self._full.items()):
            while waiting and self._router.send((worker_id.encode(), waiting[0])):
                waiting.pop(0)
            if not waiting:
                del self._full[worker_id]
        self._retry_later()

    def _on_subscription(self, frames: Frames) -> None:
        if frames[0][:1] != SUBSCRIBED:
            return
        worker_id = WorkerId(frames[0][1:].decode("utf-8", "replace"))
        expected = self._expected.get(worker_id)
        if expected is not None:
            expected.subscribed = True
            self._prove(worker_id, expected)

    def _on_router(self, frames: Frames) -> None:
        if len(frames) != 2:
            self.dropped += 1
            return
        worker_id = WorkerId(frames[0].decode("utf-8", "replace"))
        try:
            message = codec.from_worker.decode(frames[1])
        except Undecodable:
            self.dropped += 1
            return
        if worker_id in self._proven:
            self._on_message(worker_id, message)
        elif isinstance(message, Hello):
            self._on_hello(worker_id, message)
        else:
            self.dropped += 1

    def _on_hello(self, worker_id: WorkerId, hello: Hello) -> None:
        """Rule 1."""
        expected = self._expected.get(worker_id)
        if (
            expected is None
            or expected.token != hello.token
            or (expected.role, expected.session_id) != (hello.role, hello.session_id)
        ):
            self.dropped += 1
            return
        expected.token = None
        self._prove(worker_id, expected)

    def _prove(self, worker_id: WorkerId, expected: Expected) -> None:
        if expected.subscribed and expected.token is None:
            del self._expected[worker_id]
            self._proven.add(worker_id)
            self._on_ready(worker_id)

    def close(self) -> None:
        self._router.close()
        self._broadcast.close()
