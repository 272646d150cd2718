"""What the tool worker does with the messages that it gets.

1. A call is started when it comes; the supervisor sends side by side only what may run side by side. A shell call
   runs alone (shell.py, rule 1); the opposite is a bug and ends the worker. Background commands that earlier calls
   began go on beside it (background.py).
2. Exactly one ToolEnded per call that was not cancelled. A call whose path leads outside without having been allowed
   to is handed back instead and forgotten: it may come again, allowed.
3. A cancel concerns the calls of older generations, and their background commands. The whole tree gets SIGTERM before
   the acknowledgement is sent; the done message follows when the tree was seen empty and each call has its outcome.
4. While a stop is under way new calls wait: the tree that is being ended must hold nothing of theirs.
5. A second press ends the grace of the stop under way. One that comes late finds nothing older to stop, and newer
   calls, which it must not touch.
6. The outcomes of the calls of a turn are kept until the next turn begins: their ToolEnded may cross with a cancel.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from haltline.protocol.errors import BrokenInvariant
from haltline.protocol.messages import (
    CallOutcome,
    Cancel,
    CancelAcknowledged,
    CancelDone,
    Outcome,
    Ready,
    RunTool,
    StartAttempt,
    ToolEnded,
    ToolLeadsOutside,
    ToolStarted,
)
from haltline.protocol.times import DEATH_GRACE_S, LEAVE_GRACE_S
from haltline.protocol.tools import TOOLS, Arguments, EditFile, Glob, ReadFile, Search, Shell, WriteFile
from haltline.protocol.trees import SweepResult
from haltline.worker.actor import Outbox, Progress, watch
from haltline.worker.tool import environment, words
from haltline.worker.tool.background import Background
from haltline.worker.tool.calls import Call, Room, Terms
from haltline.worker.tool.filing import FileCall
from haltline.worker.tool.finding import FindCall
from haltline.worker.tool.outer_pids import own_pid
from haltline.worker.tool.reach import Reach
from haltline.worker.tool.shell import ShellCall
from haltline.worker.tool.shell_background import BackgroundCall
from haltline.worker.tool.tree import Tree
from haltline.worker.tool.workspace import Outside, Workspace

THREADS = 4
"""Reads that run side by side; one that hangs on a disk leaves the others."""
SHUTDOWN_WAIT_S = 0.2
"""After LEAVE_GRACE_S for background commands: this long for SIGKILL to work."""

log = logging.getLogger(__name__)


class _Record:
    """One call of the turn at hand."""

    def __init__(self, message: RunTool) -> None:
        self.message = message
        self.call: Call | None = None
        """None until it is started."""
        self.task: asyncio.Task[None] | None = None
        self.outcome: Outcome | None = None
        self.cancelled = False

    @property
    def running(self) -> bool:
        return self.call is not None and self.outcome is None


class ToolHandler:
    """Handler of the actor (worker/actor.py)."""

    def __init__(self, outbox: Outbox, reach: Reach, outputs: str) -> None:
        """`outputs`: folder for what background commands print."""
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        self._reach = reach
        self._tree = Tree(self._loop, reach)
        self._background = Background(self._tree, outputs, adopts=reach.adopts)
        self._room: Room | None = None
        self._progress = 0
        self._write_fails = False
        """The next write_file is to fail (messages.Ready.inject)."""
        self._records: list[_Record] = []
        self._stops: list[Cancel] = []
        """Cancels that were acknowledged and are not done, in order."""
        self._stop_task: asyncio.Task[None] | None = None

    def configure(self, ready: Ready) -> None:
        environment.forget_keys(set() if ready.key_variable is None else {ready.key_variable})
        self._write_fails = ready.inject == "tool_error"
        self._room = Room(
            loop=self._loop,
            tree=self._tree,
            background=self._background,
            workspace=Workspace(ready.cwd),
            environment=self._reach.environment(environment.of_tools(os.environ)),
            limits=ready.tools,
            threads=ThreadPoolExecutor(THREADS, thread_name_prefix="files"),
            output_came=self._count,
        )

    def work(self, message: StartAttempt | RunTool) -> None:
        if isinstance(message, StartAttempt):
            raise BrokenInvariant("a model request was sent to a tool worker")
        if self._records and _turn(self._records[-1].message) != _turn(message):  # rule 6
            self._records = [record for record in self._records if record.outcome is None]
        record = _Record(message)
        self._records.append(record)
        if not self._stops:
            self._start(record)

    def cancel(self, cancel: Cancel) -> None:
        """Rules 3 and 5."""
        older = [record for record in self._records if record.message.generation < cancel.generation]
        for record in older:
            record.cancelled = True
            if record.call is None and record.outcome is None:
                record.outcome = _not_started()
        if any(record.running and not record.cancelled for record in self._records):
            self._acknowledge(cancel)
            self._report(cancel, SweepResult(killed=0, survivors=(), rung="ack"))
            return
        for record in older:
            if record.running and record.call is not None:
                record.call.stop(cancel.grace_s)
        ending = self._tree.end(cancel.grace_s, spare=lambda: self._background.not_before(cancel.generation))
        self._acknowledge(cancel)
        self._stops.append(cancel)
        if len(self._stops) == 1:
            self._stop_task = self._loop.create_task(self._finish_stop(ending))
            watch(self._stop_task)

    def progress(self) -> Progress:
        return Progress(progress=self._progress)

    async def orphaned(self) -> None:
        for record in self._records:
            record.cancelled = True
            if record.running and record.call is not None:
                record.call.stop(DEATH_GRACE_S)
        await self._tree.end(DEATH_GRACE_S)
        self._background.clear_away()

    def shutdown(self) -> None:
        self._tree.end_and_wait(LEAVE_GRACE_S, SHUTDOWN_WAIT_S)
        self._background.clear_away()

    def _count(self, steps: int) -> None:
        self._progress += steps

    def _start(self, record: _Record) -> None:
        """Rule 1."""
        if self._room is None:
            raise BrokenInvariant("a call came before Ready")
        running = [other for other in self._records if other.running]
        if any("shell" in (record.message.name, other.message.name) for other in running):
            raise BrokenInvariant(f"{record.message.name} was to run beside {running[0].message.name}")
        message = record.message
        try:
            arguments = msgspec.json.decode(message.arguments, type=TOOLS[message.name].arguments)
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
            why = str(error)
            record.outcome = _failed(words.unreadable_arguments(message.name, why))
            self._report_end(record)
            return
        terms = Terms(
            limit_s=message.timeout_s,
            generation=message.generation,
            outside_allowed=message.outside_allowed,
            started=lambda pid: self._report_start(record, pid),
        )
        fails = self._write_fails and isinstance(arguments, WriteFile)
        self._write_fails = self._write_fails and not fails
        record.call = _call(self._room, terms, arguments, fails=fails)
        record.task = self._loop.create_task(self._run(record, record.call))
        watch(record.task)

    async def _run(self, record: _Record, call: Call) -> None:
        """Rule 2."""
        try:
            record.outcome = await call.run()
        except Outside as outside:
            self._hand_back(record, outside.real)
            return
        except BrokenInvariant:
            raise
        except Exception:  # whatever a tool raises becomes a result (B6)
            log.exception("call %s of %s failed", record.message.call_id, record.message.name)
            if record.message.name == "shell":
                await self._tree.end_call(0.0)
            record.outcome = _failed(words.internal_failure(record.message.name), changed_maybe=True)
        self._progress += 1
        self._report_end(record)

    def _hand_back(self, record: _Record, real: str) -> None:
        """Rule 2. One that is being stopped was never started."""
        if record.cancelled:
            record.outcome = _not_started()
            return
        self._records.remove(record)
        message = record.message
        self._outbox.send(
            ToolLeadsOutside(
                session_id=message.session_id,
                run=message.run,
                turn=message.turn,
                generation=message.generation,
                call_id=message.call_id,
                real=real,
            )
        )

    def _acknowledge(self, cancel: Cancel) -> None:
        self._outbox.send(
            CancelAcknowledged(session_id=cancel.session_id, generation=cancel.generation, level=cancel.level)
        )

    def _report_start(self, record: _Record, pid: int | None) -> None:
        message = record.message
        self._outbox.send(
            ToolStarted(
                session_id=message.session_id,
                run=message.run,
                turn=message.turn,
                generation=message.generation,
                call_id=message.call_id,
                pid=pid,
            )
        )

    def _report_end(self, record: _Record) -> None:
        message = record.message
        if record.cancelled or record.outcome is None:
            return
        self._outbox.send(
            ToolEnded(
                session_id=message.session_id,
                run=message.run,
                turn=message.turn,
                generation=message.generation,
                call_id=message.call_id,
                outcome=record.outcome,
            )
        )

    async def _finish_stop(self, ending: Awaitable[SweepResult]) -> None:
        """Rules 3 and 4."""
        result = await ending
        for record in self._records:
            if record.cancelled and record.task is not None:
                await asyncio.wait((record.task,))
        stops, self._stops = self._stops, []
        for cancel in stops:
            self._report(cancel, result)
        newest = stops[-1].generation
        self._records = [record for record in self._records if record.message.generation >= newest]
        for record in self._records:
            if record.call is None and record.outcome is None:
                self._start(record)

    def _report(self, cancel: Cancel, result: SweepResult) -> None:
        self._outbox.send(
            CancelDone(
                session_id=cancel.session_id,
                generation=cancel.generation,
                level=cancel.level,
                rung=result.rung,
                killed=result.killed,
                survivors=len(result.survivors),
                calls=tuple(
                    CallOutcome(call_id=record.message.call_id, outcome=record.outcome)
                    for record in self._records
                    if record.message.generation < cancel.generation and record.outcome is not None
                ),
            )
        )


def _call(room: Room, terms: Terms, arguments: Arguments, *, fails: bool) -> Call:
    match arguments:
        case Shell(background=True):
            return BackgroundCall(room, terms, arguments)
        case Shell():
            return ShellCall(room, terms, arguments)
        case Glob() | Search():
            return FindCall(room, terms, arguments)
        case ReadFile() | WriteFile() | EditFile():
            return FileCall(room, terms, own_pid(), arguments, fails=fails)
        case _:
            raise BrokenInvariant(f"no tool takes {type(arguments).__name__}")


def _turn(message: RunTool) -> tuple[int, int]:
    return (message.run, message.turn)


def _not_started() -> Outcome:
    return Outcome(status="cancelled_not_started", changed="nothing", exit_code=None, text=words.not_started(), ms=0)


def _failed(text: str, *, changed_maybe: bool = False) -> Outcome:
    return Outcome(status="failed", changed="maybe" if changed_maybe else "nothing", exit_code=None, text=text, ms=0)
