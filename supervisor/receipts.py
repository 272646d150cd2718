"""Receipts for those at other terminals who asked for a stop (F1): who waits for one, and for what to be seen first.

1. A request concerns one session or all; each is answered when its own stop is done, the last one says so.
2. The stop of a run is done when the core says that it is (Result, Finish). What ends outside of a run's stop, one
   worker, or those of an idle session, is gone when the tree of each was swept: a Killing waits for that.
3. It waits as long as the core does (times.gone_s); a worker that was not seen gone by then counts as a survivor.
"""

import asyncio
from collections.abc import Callable, Collection

from haltline.protocol.client_messages import Receipt
from haltline.protocol.events import CancelReceipt
from haltline.protocol.ids import Role, SessionId, WorkerId
from haltline.protocol.kinds import Rung
from haltline.supervisor.clients import ClientId, ClientLane

Answer = Callable[[CancelReceipt | None], None]
"""Called once, when the stop was seen; None: there was nothing to stop."""


class Request:
    """One client's `cancel` or `kill` (rule 1)."""

    def __init__(
        self, client: ClientId, clients: ClientLane, sessions: Collection[SessionId], *, worker: Role | None = None
    ) -> None:
        self._client = client
        self._clients = clients
        self._open = set(sessions)
        self._worker: Role | None = worker
        if not self._open:
            self._clients.send(client, Receipt(session_id=None, already_stopped=True))

    def answer_for(self, session_id: SessionId) -> Answer:
        def answer(receipt: CancelReceipt | None) -> None:
            self._open.discard(session_id)
            self._clients.send(
                self._client,
                Receipt(
                    session_id=session_id,
                    worker=self._worker,
                    already_stopped=receipt is None,
                    cancel=receipt,
                    last=not self._open,
                ),
            )

        return answer


class Killing:
    """The end of some workers of a session (rule 2). `rung`: the hardest that their end takes. `stream_open`,
    `tools_open`: what goes with them."""

    def __init__(
        self,
        workers: Collection[WorkerId],
        answers: Collection[Answer],
        *,
        began_s: float,
        rung: Rung,
        stream_open: bool = False,
        tools_open: bool = False,
    ) -> None:
        self._left = set(workers)
        self._answers = tuple(answers)
        self._began_s = began_s
        self._rung: Rung = rung
        self._stream_open = stream_open
        self._tools_open = tools_open
        self._killed = 0
        self._survivors = 0
        self.over = False
        self.patience: asyncio.TimerHandle | None = None
        """The time in which give_up is called."""

    def swept(self, worker_id: WorkerId, now: float, *, killed: int, survivors: int) -> None:
        """The tree of a worker, perhaps one of these, was seen gone, or `survivors` of it are left."""
        if worker_id in self._left:
            self._left.discard(worker_id)
            self._killed += killed
            self._survivors += survivors
            self.look(now)

    def look(self, now: float) -> None:
        """Answers if nothing is waited for."""
        if not self._left:
            self._end(now)

    def give_up(self, now: float) -> None:
        """Rule 3."""
        self._survivors += len(self._left)
        self._end(now)

    def _end(self, now: float) -> None:
        if self.over:
            return
        self.over = True
        if self.patience is not None:
            self.patience.cancel()
        ms = round((now - self._began_s) * 1000, 3)
        receipt = CancelReceipt(
            stream_ms=ms if self._stream_open else None,
            tools_ms=ms if self._tools_open else None,
            total_ms=ms,
            rung=self._rung,
            killed=self._killed,
            survivors=self._survivors,
        )
        for answer in self._answers:
            answer(receipt)
