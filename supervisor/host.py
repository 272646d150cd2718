"""One session's shell: feeds stimuli to the core, records them, performs the effects.

1. One stimulus at a time: what an effect causes at once waits in a queue behind it. Before each, time in which the
   supervisor did not run is noticed, so that no deadline passes and no message counts as late because of it.
2. Recorded before done, and before shown: everything buffered is committed before an intent is performed and before
   an event is sent to the client (K2, P7). Deltas alone are sent at once; their text is committed at the latest
   RECORD_TEXT_S after it came.
3. All deadlines live in the core's state; the host keeps one timer, for the earliest.
4. A message of a worker that is not the session's present one, or not ready, never reaches the core.
5. A cancel is said again, addressed, until its acknowledgement has come or the worker is gone.
6. What must not go on ends this session alone: a journal that takes nothing any more (K2), or a bug, whose traceback
   is in the log. Its workers are killed and its owner is told.
"""

import asyncio
import contextlib
import os
import traceback
from collections import deque
from collections.abc import Callable
from typing import assert_never

import msgspec

from haltline.protocol import events
from haltline.protocol.client_messages import PsRow, SessionClosed, Shown
from haltline.protocol.conversation import Usage
from haltline.protocol.errors import JournalFailed
from haltline.protocol.exits import BUG, CONFIGURATION
from haltline.protocol.ids import Role, SessionId, WorkerId
from haltline.protocol.lines import Line
from haltline.protocol.messages import (
    CANCEL_RESEND_S,
    Cancel,
    CancelAcknowledged,
    FromWorker,
    Heartbeat,
    Hello,
    Ready,
    Shutdown,
)
from haltline.protocol.settings import SessionSettings
from haltline.protocol.times import WORKER_LEAVE_S, gone_s
from haltline.supervisor import listing, session
from haltline.supervisor.clients import ClientId, ClientLane
from haltline.supervisor.effects import (
    AnyEffect,
    BroadcastCancel,
    Finish,
    KillWorker,
    SendAttempt,
    SendTool,
    Show,
    SpawnWorker,
    SwitchHistory,
)
from haltline.supervisor.journal import Writable
from haltline.supervisor.mailbox import Mailbox
from haltline.supervisor.receipts import Answer, Killing
from haltline.supervisor.record import Record
from haltline.supervisor.sources import Sources
from haltline.supervisor.stimuli import (
    AnyStimulus,
    CancelAsked,
    KillAsked,
    Opened,
    Prompted,
    Swept,
    Tick,
    WorkerExited,
    WorkerReady,
    WorkerStartFailed,
)
from haltline.supervisor.stimuli import FromWorker as WorkerSaid
from haltline.supervisor.workers import WorkerHandle, Workers


class SessionHost:
    """`on_closed(host)` once the session is closed and its workers are gone."""

    def __init__(
        self,
        session_id: SessionId,
        settings: SessionSettings,
        *,
        owner: ClientId,
        workers: Workers,
        mailbox: Mailbox,
        clients: ClientLane,
        journal: Writable,
        sources: Sources,
        notice_gap: Callable[[], None],
        on_closed: Callable[["SessionHost"], None],
    ) -> None:
        self.session_id = session_id
        self.settings = settings
        self.owner = owner
        self.workers = workers
        self._mailbox = mailbox
        self._clients = clients
        self._sources = sources
        self._record = Record(
            session_id,
            journal,
            wall_s=sources.wall_s,
            on_failed=lambda failed: self._end_broken(str(failed), CONFIGURATION),
        )
        self._notice_gap = notice_gap
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._opened_s = self._loop.time()
        self._state = session.open_session(session_id, settings)
        self._queue: deque[AnyStimulus] = deque()
        self._unsent: list[Line] = []
        """Recorded, not yet committed, so not yet shown (rule 2)."""
        self._feeding = False
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: dict[WorkerId, asyncio.TimerHandle] = {}
        """Workers that were told to go, and when they are killed if they do not."""
        self._owed: dict[WorkerId, Cancel] = {}
        self._resend: asyncio.TimerHandle | None = None
        self._waiting: list[Answer] = []
        """Of others who want the run to stop (receipts, rule 2)."""
        self._killings: list[Killing] = []
        self._last_result: events.Result | None = None
        self._closing = False
        self._broken = False
        self._closed = False

    # Stimuli

    def open(self) -> None:
        self.feed(Opened())

    def prompt(self, text: str) -> None:
        self.feed(Prompted(text=text))

    @property
    def closing(self) -> bool:
        """No prompt is taken any more."""
        return self._closing

    @property
    def running(self) -> bool:
        return session.is_running(self._state)

    def feed(self, stimulus: AnyStimulus) -> None:
        """Rule 1. Of a session that is broken or closed nothing goes on, whatever is still said to it."""
        self._notice_gap()
        if self._broken or self._closed:
            return
        self._queue.append(stimulus)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._queue:
                self._step(self._queue.popleft())
            if not self._closed:
                self._set_timer()
        except JournalFailed as failed:
            self._end_broken(str(failed), CONFIGURATION)
        except Exception:  # noqa: BLE001  (rule 6)
            with contextlib.suppress(OSError):  # a disk that takes no log
                traceback.print_exc()
            self._end_broken("haltline met a bug of its own and ended this session; the log has the details", BUG)
        finally:
            self._feeding = False

    def _step(self, stimulus: AnyStimulus) -> None:
        now = self._loop.time()
        self._record.stimulus(stimulus, now)
        self._state, effects = session.step(self._state, stimulus, now)
        for effect in effects:
            self._perform(effect)
        self._record.commit_rows()
        self._send_lines()

    def _set_timer(self) -> None:
        """Rule 3."""
        deadline = session.next_deadline(self._state)
        if self._timer is not None:
            if deadline == self._timer.when():
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(Tick(jitter=self._sources.jitter()))

    # Workers

    def worker_spawned(self, handle: WorkerHandle, pid: int) -> None:
        handle.pid = pid
        if handle.proven:
            self._worker_ready(handle)

    def worker_proven(self, handle: WorkerHandle) -> None:
        """Its hello and its subscription are there. After a while in which the supervisor did not run they may be read
        before the word of its birth; ready is only who has a pid."""
        handle.proven = True
        if handle.pid:
            self._worker_ready(handle)

    def _worker_ready(self, handle: WorkerHandle) -> None:
        handle.ready = True
        self._mailbox.send(
            handle.worker_id,
            Ready(
                cwd=self.settings.cwd,
                delta_window_ms=self.settings.delta_window_ms,
                tools=self.settings.tools,
                key_variable=self.settings.key_variable,
                inject=self.settings.inject,
            ),
        )
        self.feed(WorkerReady(role=handle.role, worker_id=handle.worker_id, pid=handle.pid))

    def worker_said(self, handle: WorkerHandle, message: FromWorker) -> None:
        match message:
            case Hello():
                return  # a second one; the first proved it
            case Heartbeat():
                handle.heartbeat = message
                handle.heartbeat_s = self._loop.time()
            case CancelAcknowledged():
                self._acknowledged(handle.worker_id, message)
            case _:
                pass
        self.feed(
            WorkerSaid(
                role=handle.role,
                worker_id=handle.worker_id,
                message=message,
                jitter=self._sources.jitter(),
                wall_s=self._sources.wall_s(),
            )
        )

    def worker_exited(self, handle: WorkerHandle, words: str) -> None:
        handle.exited = True
        leaving = self._leaving.pop(handle.worker_id, None)
        if leaving is not None:
            leaving.cancel()
        self._owed.pop(handle.worker_id, None)
        if handle.ready:
            self.feed(WorkerExited(role=handle.role, worker_id=handle.worker_id, pid=handle.pid, words=words))
        else:
            words = words or "it ended without a word"
            self.feed(WorkerStartFailed(role=handle.role, worker_id=handle.worker_id, words=words))

    def worker_swept(self, handle: WorkerHandle, killed: int, survivors: int) -> None:
        self.workers.remove(handle)
        self.feed(Swept(role=handle.role, worker_id=handle.worker_id, killed=killed, survivors=survivors))
        for killing in self._killings:
            killing.swept(handle.worker_id, self._loop.time(), killed=killed, survivors=survivors)
        self._killings = [killing for killing in self._killings if not killing.over]
        self._close_if_empty()

    # Effects

    def _perform(self, effect: AnyEffect) -> None:
        match effect:
            case Show():
                self._show(effect)
                return
            case SpawnWorker(role=role):
                self._commit()
                self.workers.start(role)
            case SendAttempt(message=attempt):
                # What it says follows from the rows before it; written out, each turn would repeat all earlier ones.
                slim = msgspec.structs.replace(attempt, system="", items=(), tools=())
                self._record.intent("start_attempt", slim)
                self._commit()
                self.workers.tell("llm", attempt)
            case SwitchHistory():
                self._record.intent("switch_history", effect)
            case SendTool(message=call):
                self._record.intent("run_tool", call)
                self._commit()
                self.workers.tell("tool", call)
            case BroadcastCancel():
                self._record.intent("cancel", effect.message)
                self._commit()
                self._broadcast(effect)
            case KillWorker(role=role):
                self._commit()
                self.workers.kill(role)
            case Finish():
                self._commit()
                self._finished()
            case _:
                assert_never(effect)

    def _show(self, effect: Show) -> None:
        self._unsent.append(self._record.event(effect.event, run=effect.run, turn=effect.turn))
        if isinstance(effect.event, events.Result):
            self._last_result = effect.event

    def _commit(self) -> None:
        """Rule 2, before an intent."""
        self._record.commit()
        self._send_lines()

    def _send_lines(self) -> None:
        for line in self._unsent:
            self._clients.send(self.owner, Shown(line=line))
        self._unsent.clear()

    def _broadcast(self, effect: BroadcastCancel) -> None:
        ready = [handle for handle in self.workers.ready() if handle.role in effect.roles]
        self._mailbox.broadcast(tuple(handle.worker_id for handle in ready), effect.message)
        for handle in ready:
            self._mailbox.send(handle.worker_id, effect.message)
            self._owed[handle.worker_id] = effect.message
        for role in effect.roles:
            handle_or_none = self.workers.get(role)
            if handle_or_none is not None and not handle_or_none.ready:
                self.workers.kill(role)
        if self._owed and self._resend is None:
            self._resend = self._loop.call_later(CANCEL_RESEND_S, self._say_again)

    def _say_again(self) -> None:
        """Rule 5."""
        self._resend = None
        for worker_id, cancel in self._owed.items():
            self._mailbox.send(worker_id, cancel)
        if self._owed:
            self._resend = self._loop.call_later(CANCEL_RESEND_S, self._say_again)

    def _acknowledged(self, worker_id: WorkerId, message: CancelAcknowledged) -> None:
        owed = self._owed.get(worker_id)
        if owed is not None and (owed.generation, owed.level) <= (message.generation, message.level):
            del self._owed[worker_id]

    # Ends

    def cancel_for(self, answer: Answer) -> None:
        """Somebody at another terminal wants the run to stop, politely: a stop that goes on already is joined and not
        made harder, so that asking twice is asking once. Whoever is in a hurry kills."""
        if not self.running:
            answer(None)
            return
        self._waiting.append(answer)
        if not session.is_stopping(self._state):
            self.feed(CancelAsked(by="client"))

    def kill_for(self, answer: Answer) -> None:
        """Somebody wants the session to end the hard way; it takes no further prompt."""
        if self.running:
            self._waiting.append(answer)
            self.feed(KillAsked())
        else:
            self._begin_killing((answer,), tuple(handle.worker_id for handle in self.workers.all()))
            self.feed(KillAsked())
        self.close(CancelAsked(by="client"))

    def kill_worker_for(self, answer: Answer, role: Role, worker_id: WorkerId | None) -> None:
        """Somebody wants the worker of this role to end the hard way; `worker_id`: this one and no other."""
        handle = self.workers.get(role)
        if handle is None or worker_id not in (None, handle.worker_id):
            answer(None)
            return
        self._begin_killing((answer,), (handle.worker_id,), role)
        self.feed(KillAsked(role=role))

    def _begin_killing(
        self, answers: tuple[Answer, ...], worker_ids: tuple[WorkerId, ...], role: Role | None = None
    ) -> None:
        killing = Killing(
            worker_ids,
            answers,
            began_s=self._loop.time(),
            rung="pidns" if role == "tool" and self.settings.isolation == "pidns" else "worker_kill",
            stream_open=role == "llm" and session.stream_open(self._state),
            tools_open=role == "tool" and session.current_tool(self._state) is not None,
        )
        self._killings.append(killing)
        killing.patience = self._loop.call_later(gone_s(), lambda: killing.give_up(self._loop.time()))
        killing.look(self._loop.time())

    def _finished(self) -> None:
        receipt = None if self._last_result is None else self._last_result.cancel
        for answer in self._waiting:
            answer(receipt)
        self._waiting.clear()
        if self._closing:
            self._dismiss_workers()

    def close(self, stimulus: CancelAsked) -> None:
        """No further prompt will come: stop what runs, let the workers go, tell the owner."""
        if self._closing:
            return
        self._closing = True
        if self.running:
            self.feed(stimulus)
        else:
            self._dismiss_workers()

    def _end_broken(self, message: str, exit_code: int) -> None:
        """Rule 6."""
        self._broken = True
        self._record.abandon()
        self._queue.clear()
        self._unsent.clear()
        self._state = session.open_session(self.session_id, self.settings)
        self._closing = True
        if self._waiting:
            self._begin_killing(tuple(self._waiting), tuple(handle.worker_id for handle in self.workers.all()))
            self._waiting.clear()
        for handle in self.workers.alive():
            self.workers.kill(handle.role)
        result = events.Result(
            reason="failed",
            message=message,
            text="",
            retryable=False,
            exit_code=exit_code,
            usage=Usage(),
            counters=events.Counters(),
            turns=0,
            attempts=0,
            tool_calls=0,
            tool_runs=0,
            ms=0,
        )
        self._clients.send(self.owner, Shown(line=self._record.unrecorded(result)))
        self._close_if_empty()

    def _dismiss_workers(self) -> None:
        for handle in self.workers.alive():
            if handle.ready:
                self.workers.tell(handle.role, Shutdown())
                self._leaving[handle.worker_id] = self._loop.call_later(WORKER_LEAVE_S, self.workers.kill, handle.role)
            else:
                self.workers.kill(handle.role)
        self._close_if_empty()

    def _close_if_empty(self) -> None:
        """Once: what ends the run can also be the end of the last worker."""
        if self._closing and not self._closed and not self.running and not self.workers.any():
            self._closed = True
            for timer in (self._timer, self._resend):
                if timer is not None:
                    timer.cancel()
            self._clients.send(self.owner, SessionClosed(session_id=self.session_id))
            self._on_closed(self)

    # Looking

    def ps_rows(self) -> tuple[PsRow, ...]:
        return listing.rows(
            self._state,
            self.settings,
            self.workers.alive(),
            supervisor_pid=os.getpid(),
            opened_s=self._opened_s,
            now=self._loop.time(),
        )
