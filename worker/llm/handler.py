"""The LLM worker behind the actor: at most one attempt, and the answers to a cancel. Imports no HTTP until Ready."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from haltline.protocol.conversation import Usage
from haltline.protocol.errors import BrokenInvariant
from haltline.protocol.messages import Cancel, CancelAcknowledged, CancelDone, Ready, RunTool, StartAttempt
from haltline.worker.actor import Outbox, Progress, watch
from haltline.worker.llm import preload

if TYPE_CHECKING:
    from haltline.worker.llm.http import Http
    from haltline.worker.llm.stream import Attempt

log = logging.getLogger(__name__)


class LlmHandler:
    """See actor.Handler."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        self._http: Http | None = None
        """None until the imports are done; what is asked for before waits in `_next`."""
        self._key: str | None = None
        self._window_s = 0.0
        self._next: StartAttempt | None = None
        self._attempt: Attempt | None = None
        self._steps_before = 0
        """Progress of the attempts that are over."""
        self._tasks: set[asyncio.Task[None]] = set()

    def configure(self, ready: Ready) -> None:
        self._window_s = ready.delta_window_ms / 1000
        if ready.key_variable is not None:
            self._key = os.environ.get(ready.key_variable, "").strip() or None
        self._spawn(self._prepare())

    def work(self, message: StartAttempt | RunTool) -> None:
        if not isinstance(message, StartAttempt):
            raise BrokenInvariant(f"{type(message).__name__} sent to an LLM worker")
        under_way = self._attempt.request if self._attempt is not None else self._next
        if under_way is not None and under_way.generation >= message.generation:
            raise BrokenInvariant(f"attempt {message.attempt} given while attempt {under_way.attempt} is open")
        self._next = message
        if self._attempt is not None:
            self._spawn(self._supersede(self._attempt))
        else:
            self._begin()

    def cancel(self, cancel: Cancel) -> None:
        if self._next is not None and self._next.generation < cancel.generation:
            self._next = None
        attempt = self._attempt
        if attempt is None or attempt.request.generation >= cancel.generation:
            self._answer(cancel, streams_closed=0, usage=None)
        else:
            self._spawn(self._stop(attempt, cancel))

    def progress(self) -> Progress:
        if self._http is not None:
            self._http.alive()
        attempt = self._attempt
        if attempt is None:
            return Progress(progress=self._steps_before)
        return Progress(
            progress=self._steps_before + attempt.progress,
            model_silent_ms=int(attempt.silent_s() * 1000),
        )

    async def orphaned(self) -> None:
        if self._attempt is not None:
            await self._attempt.stop()

    def shutdown(self) -> None:
        """Nothing of ours outlives the process: its sockets close with it."""

    async def _prepare(self) -> None:
        for _ in preload.steps():
            await asyncio.sleep(0)
        from haltline.worker.llm.http import Http

        self._http = Http()
        self._begin()

    def _begin(self) -> None:
        """Start what waits, once it can be started."""
        if self._http is None or self._next is None or self._attempt is not None:
            return
        from haltline.worker.llm.stream import Attempt

        request, self._next = self._next, None
        self._attempt = Attempt(
            request,
            http=self._http,
            key=self._key,
            window_s=self._window_s,
            outbox=self._outbox,
            ended=self._forget,
        )

    def _forget(self) -> None:
        if self._attempt is not None:
            self._steps_before += self._attempt.progress
            self._attempt = None

    async def _supersede(self, attempt: Attempt) -> None:
        """Newer work came without a cancel between: the older goes first, and is not heard of again."""
        await attempt.stop()
        if self._attempt is attempt:
            self._forget()
        self._begin()

    async def _stop(self, attempt: Attempt, cancel: Cancel) -> None:
        closed = await attempt.stop()
        if self._attempt is attempt:
            self._forget()
        if not closed:
            return  # not true, so not said; the supervisor kills this worker
        self._answer(cancel, streams_closed=1, usage=attempt.usage())
        self._begin()

    def _answer(self, cancel: Cancel, *, streams_closed: int, usage: Usage | None) -> None:
        """An LLM worker has no tree: what it had is closed, so both reports are true at once."""
        self._outbox.send(
            CancelAcknowledged(
                session_id=cancel.session_id,
                generation=cancel.generation,
                level=cancel.level,
                streams_closed=streams_closed,
                usage=usage,
            )
        )
        self._outbox.send(
            CancelDone(
                session_id=cancel.session_id,
                generation=cancel.generation,
                level=cancel.level,
                rung="ack",
                killed=0,
                survivors=0,
            )
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        watch(task)
