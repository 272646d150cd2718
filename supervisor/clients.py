"""The client lane: terminals that run, watch, cancel and kill.

1. A client speaks only after its hello brought a valid token, which is used up by that.
2. A slow client never holds the supervisor: what its pipe does not take waits here, deltas merged into one,
   events never dropped. One that takes nothing for WAITING_MESSAGES events is lost.
3. Nothing waits for a peer that has not proved itself: it gets an answer if its pipe takes it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NewType

import msgspec
import zmq

from haltline.protocol import codec, events
from haltline.protocol.client_messages import ClientHello, Refused, Shown, ToClient, ToSupervisor, Welcome
from haltline.protocol.endpoints import Endpoints, ipc
from haltline.protocol.errors import Undecodable
from haltline.supervisor.sockets import Frames, LoopSocket

ClientId = NewType("ClientId", bytes)

MESSAGE_BYTES = 32 << 20
"""Longest message of a client: a prompt of 10 MB, with room. Anybody may connect."""
WAITING_MESSAGES = 10_000
"""Some 10 MiB at a tool result each."""
RETRY_FULL_S = 0.02
"""How soon a full pipe is tried again: a screen's refresh or so."""


class ClientLane:
    """`on_message(client, message)` for every message of a proven client, `on_stuck(client)` for one that is lost."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoints: Endpoints,
        *,
        supervisor_pid: int,
        on_message: Callable[[ClientId, ToSupervisor], None],
        on_stuck: Callable[[ClientId], None],
    ) -> None:
        self._supervisor_pid = supervisor_pid
        self._on_message = on_message
        self._on_stuck = on_stuck
        self._tokens: set[bytes] = set()
        self._proven: set[ClientId] = set()
        self._waiting: dict[ClientId, deque[ToClient]] = {}
        self._retry_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._router = LoopSocket(context, zmq.ROUTER, self._on_frames)
        self._router.set(zmq.MAXMSGSIZE, MESSAGE_BYTES)
        self._router.set(zmq.ROUTER_MANDATORY, 1)
        self._router.bind(ipc(endpoints.clients))

    def grant(self, token: bytes) -> None:
        """Make `token` valid for one hello."""
        self._tokens.add(token)

    def send(self, client: ClientId, message: ToClient) -> None:
        waiting = self._waiting.get(client)
        if waiting is not None:
            _put(waiting, message)
        elif not self._send(client, message):
            self._waiting[client] = deque((message,))
            self._retry_later()
        if waiting is not None and len(waiting) > WAITING_MESSAGES:
            del self._waiting[client]
            self._proven.discard(client)
            self._on_stuck(client)

    def _send(self, client: ClientId, message: ToClient) -> bool:
        return self._router.send((client, codec.to_client.encode(message)))

    def _retry_later(self) -> None:
        if self._waiting and self._retry_timer is None:
            self._retry_timer = self._loop.call_later(RETRY_FULL_S, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        for client, waiting in list(self._waiting.items()):
            while waiting and self._send(client, waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._waiting[client]
        self._retry_later()

    def _on_frames(self, frames: Frames) -> None:
        if len(frames) != 2:
            return
        client = ClientId(frames[0])
        try:
            message = codec.to_supervisor.decode(frames[1])
        except Undecodable as error:
            self._send(client, Refused(words=str(error)))
            return
        if isinstance(message, ClientHello):
            self._on_hello(client, message)
        elif client in self._proven:
            self._on_message(client, message)

    def _on_hello(self, client: ClientId, hello: ClientHello) -> None:
        if hello.token not in self._tokens:
            self._send(client, Refused(words="this token is not valid (any more)"))
            return
        self._tokens.discard(hello.token)
        self._proven.add(client)
        self.send(client, Welcome(supervisor_pid=self._supervisor_pid))

    def close(self, linger_ms: int) -> None:
        """Give what is on its way `linger_ms` to arrive."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._router.close(linger_ms)


def _put(waiting: deque[ToClient], message: ToClient) -> None:
    """Rule 2: append, or merge a delta into the delta before it."""
    last = waiting[-1] if waiting else None
    merged = _merged(last, message) if isinstance(last, Shown) and isinstance(message, Shown) else None
    if merged is None:
        waiting.append(message)
    else:
        waiting[-1] = merged


def _merged(last: Shown, new: Shown) -> Shown | None:
    """One delta in place of two neighbours of the same message; None where they are not that."""
    if last.line.session_id != new.line.session_id:
        return None
    match last.line.event, new.line.event:
        case events.Message(delta=True, text=before), events.Message(delta=True) as delta:
            pass
        case events.Reasoning(delta=True, text=before), events.Reasoning(delta=True) as delta:
            pass
        case _:
            return None
    both = msgspec.structs.replace(delta, text=before + delta.text)
    return Shown(line=msgspec.structs.replace(new.line, event=both))
