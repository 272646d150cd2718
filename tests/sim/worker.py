"""A worker process: the real actor around a handler that only pretends, well or badly, to do the work.

The handlers keep the contracts of worker/llm/handler.py and worker/tool/handler.py, with an attempt or a process tree
being a mark in the facts of the run (facts.py): open, then closed once. Where the plan says so they break them: they
die, hang, spin, never end what they began, do not acknowledge, acknowledge late or twice, never say done.
"""

from collections.abc import Callable
from random import Random
from typing import NoReturn, TypedDict

import msgspec

from haltline.protocol.boot import WorkerBoot
from haltline.protocol.ids import CallId, SessionId
from haltline.protocol.messages import (
    AttemptEnded,
    AttemptFailed,
    CallOutcome,
    Cancel,
    CancelAcknowledged,
    CancelDone,
    FromWorker,
    Outcome,
    Ready,
    RunTool,
    StartAttempt,
    ToolEnded,
    ToolLeadsOutside,
    ToolStarted,
)
from haltline.worker.actor import Actor, Handler, Outbox, OwnProcess, Progress
from sim.facts import Facts
from sim.loop import Process, ProcessExit, Timeline, Timer
from sim.model import HANG_S, LONG, Model, Step, Vice
from sim.plan import SessionPlan
from sim.sockets import Line, Network

SPIN_S = 6.0
"""Longest time in which a busy worker says nothing: below what counts as hung."""
POLITE_S = 0.02
"""What a tree needs to end on SIGTERM, or on SIGKILL."""
NOT_STARTED = Outcome(status="cancelled_not_started", changed="nothing", exit_code=None, text="not started", ms=0)


class Worker:
    """One worker process, from its fork to its death. `on_death(worker, words)`."""

    def __init__(
        self,
        boot: WorkerBoot,
        plan: SessionPlan,
        rng: Random,
        model: Model,
        *,
        timeline: Timeline,
        network: Network,
        facts: Facts,
        on_death: Callable[["Worker", str], None],
    ) -> None:
        self.boot = boot
        self.plan = plan
        self.rng = rng
        self.model = model
        self.facts = facts
        self.deliberate = False
        """Killed by order of the supervisor."""
        self._on_death = on_death
        self.process = Process(timeline, boot.worker_id, on_exit=lambda: self.die(""))
        self._network = network
        self.line = Line(timeline, boot.worker_id, rng, plan.weather, self._told)

    def _told(self, data: bytes) -> None:
        self.facts.told_worker(self.boot, data, subscribed=self.line.subscribed)

    def begin(self) -> None:
        """The first thing after the fork."""
        if self.rng.random() < self.plan.start_faults:
            match self.rng.choice(("die", "hang", "late")):
                case "die":
                    self.die("ImportError: no module named haltline")
                case "hang":
                    self.hang()
                case _:
                    self.process.stop_for(self.rng.random() * 4)
        self.process.call_soon(self._start)

    def _start(self) -> None:
        context = self._network.context(self.process, self.line)
        Actor(self.boot, self._handler, context, process=PretendedProcess()).start()

    def _handler(self, outbox: Outbox) -> Handler:
        return LlmHandler(outbox, self) if self.boot.role == "llm" else ToolHandler(outbox, self)

    def die(self, words: str) -> None:
        if self.process.dead:
            return
        self.process.line.tell(self.process.name, f"dies: {words or 'without a word'}")
        self.process.dead = True
        self.line.cut()
        self.facts.worker_died(self.boot)
        self._on_death(self, words)

    def hang(self) -> None:
        self.facts.hangs(self.boot)
        self.process.stop_for(HANG_S)

    def crash(self, words: str) -> NoReturn:
        """It dies in the middle of what it is doing."""
        self.die(words)
        raise ProcessExit

    def does(self, vice: Vice) -> bool:
        """True: the process goes on as if nothing were."""
        match vice:
            case "die":
                self.crash("Segmentation fault")
            case "hang":
                self.hang()
            case "spin":
                self.process.stop_for(self.rng.random() * SPIN_S)
                return True
            case "stay" | "again":
                pass
        return False


class PretendedProcess(OwnProcess):
    def exit(self, status: int) -> NoReturn:  # noqa: ARG002
        raise ProcessExit

    def crash(self, error: BaseException) -> NoReturn:
        raise error

    def pss_kib(self) -> int:
        return 1

    def cpu_ms(self) -> int:
        return 1


class LlmHandler:
    """actor.Handler. One attempt at a time."""

    def __init__(self, outbox: Outbox, worker: Worker) -> None:
        self._outbox = outbox
        self._worker = worker
        self._open: StartAttempt | None = None
        self._next: Timer | None = None
        """The next step of the last attempt."""
        self._last: FromWorker | None = None
        self._said = 0

    def configure(self, ready: Ready) -> None: ...

    def work(self, message: StartAttempt | RunTool) -> None:
        assert isinstance(message, StartAttempt)
        if self._open is not None:
            self._worker.facts.check(
                self._open.generation < message.generation, f"attempt {message.attempt} beside {self._open.attempt}"
            )
            self._close()
        self._open = message
        self._worker.facts.attempt_opened(self._worker.boot, message)
        self._schedule(message, self._worker.model.respond(message))

    def _schedule(self, attempt: StartAttempt, steps: list[Step]) -> None:
        """An attempt that has ended may have steps left, and goes on beside the next one."""
        if steps:
            timer = self._worker.process.call_later(steps[0].after_s, self._step, attempt, steps)
            if attempt is self._open:
                self._next = timer

    def _step(self, attempt: StartAttempt, steps: list[Step]) -> None:
        what = steps.pop(0).do
        worker = self._worker
        if isinstance(what, str):
            if what == "again":
                self._again()
            if not worker.does(what) and what != "again":
                return
        else:
            if isinstance(what, AttemptEnded | AttemptFailed):
                self._last = what
                if attempt is self._open:
                    self._close()
            self._outbox.send(what)
            self._said += 1
        self._schedule(attempt, steps)

    def _again(self) -> None:
        """It will say its last word once more; by then that may be long over."""
        if self._last is not None:
            self._worker.process.call_later(self._worker.rng.random() * 2, self._outbox.send, self._last)

    def cancel(self, cancel: Cancel) -> None:
        worker = self._worker
        worker.facts.cancel_heard(worker.boot, cancel)
        manner = "good"
        if worker.rng.random() < worker.plan.stop_faults:
            manner = worker.rng.choice(("late", "never", "hang", "die", "twice"))
            worker.process.line.tell(worker.process.name, f"will stop in its own way: {manner}")
        if manner == "die":
            worker.crash("")
        elif manner == "hang":
            worker.hang()
        if manner in ("hang", "never"):
            return
        if self._open is not None and self._open.generation < cancel.generation:
            self._close()
        if manner == "late":
            worker.process.call_later(worker.rng.random() * 3, self._answer, cancel)
            return
        self._answer(cancel)
        if manner == "twice":
            self._answer(cancel)

    def _answer(self, cancel: Cancel) -> None:
        of = cancel.session_id, cancel.generation, cancel.level
        self._outbox.send(CancelAcknowledged(session_id=of[0], generation=of[1], level=of[2], streams_closed=1))
        self._outbox.send(
            CancelDone(session_id=of[0], generation=of[1], level=of[2], rung="ack", killed=0, survivors=0)
        )

    def _close(self) -> None:
        if self._open is not None:
            self._worker.facts.attempt_closed(self._worker.boot, self._open)
            self._open = None
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def progress(self) -> Progress:
        return Progress(progress=self._said, model_silent_ms=None if self._open is None else 0)

    async def orphaned(self) -> None: ...

    def shutdown(self) -> None: ...


class Given(msgspec.Struct, kw_only=True):
    """One call in the tool worker's hands."""

    message: RunTool
    started: bool = False
    outcome: Outcome | None = None
    cancelled: bool = False
    stubborn: bool = False
    """Its tree ignores SIGTERM."""


class ToolHandler:
    """actor.Handler. The rules of worker/tool/handler.py; a tree is the mark that the call is running."""

    def __init__(self, outbox: Outbox, worker: Worker) -> None:
        self._outbox = outbox
        self._worker = worker
        self._given: list[Given] = []
        self._stops: list[Cancel] = []
        self._stopped: Timer | None = None
        self._done = 0

    def configure(self, ready: Ready) -> None: ...

    def work(self, message: StartAttempt | RunTool) -> None:
        assert isinstance(message, RunTool)
        if self._given and _turn(self._given[-1].message) != _turn(message):
            self._given = [given for given in self._given if given.outcome is None]
        given = Given(message=message, stubborn=self._worker.rng.random() < 0.2)
        self._given.append(given)
        if not self._stops:
            self._start(given)

    def _start(self, given: Given) -> None:
        worker, message = self._worker, given.message
        leads_outside = not worker.plan.undisturbed and not message.outside_allowed and worker.rng.random() < 0.05
        worker.process.call_later(0.002, self._hand_back if leads_outside else self._run, given)

    def _hand_back(self, given: Given) -> None:
        if given.cancelled:
            given.outcome = NOT_STARTED
            return
        self._given.remove(given)
        self._outbox.send(ToolLeadsOutside(**_of(given.message), real="/etc/x"))

    def _run(self, given: Given) -> None:
        if given.cancelled:
            given.outcome = NOT_STARTED
            return
        worker, rng = self._worker, self._worker.rng
        given.started = True
        worker.facts.call_started(worker.boot, given.message)
        self._outbox.send(ToolStarted(**_of(given.message), pid=5))
        takes_s = rng.random() * rng.choice((0.02, 0.3) if worker.plan.calm else (0.02, 0.3, 4.0))
        if rng.random() < worker.plan.worker_faults:
            vice: Vice = rng.choice(("die", "hang", "spin", "stay", "again"))
            worker.process.call_later(takes_s / 2, worker.does, vice)
            if vice == "stay":
                return
            if vice == "again":
                worker.process.call_later(takes_s + rng.random(), self._say_end, given)
        worker.process.call_later(takes_s, self._end, given)

    def _end(self, given: Given) -> None:
        if given.outcome is not None:
            return
        text = f"out {self._worker.rng.randrange(3)}" + (LONG * "y" if self._worker.plan.long else "")
        given.outcome = Outcome(status="done", changed="maybe", exit_code=0, text=text, ms=1)
        self._worker.facts.call_ended(self._worker.boot, given.message)
        self._done += 1
        if not given.cancelled:
            self._say_end(given)

    def _say_end(self, given: Given) -> None:
        if given.outcome is not None and not given.cancelled:
            self._outbox.send(ToolEnded(**_of(given.message), outcome=given.outcome))

    def cancel(self, cancel: Cancel) -> None:
        worker, rng = self._worker, self._worker.rng
        worker.facts.cancel_heard(worker.boot, cancel)
        older = [given for given in self._given if given.message.generation < cancel.generation]
        for given in older:
            given.cancelled = True
            if not given.started and given.outcome is None:
                given.outcome = NOT_STARTED
        manner = "good"
        if rng.random() < worker.plan.stop_faults:
            manner = rng.choice(("late", "never", "hang", "die", "twice", "no_done"))
            worker.process.line.tell(worker.process.name, f"will stop in its own way: {manner}")
        if manner == "die":
            worker.crash("")
        elif manner == "hang":
            worker.hang()
        if manner in ("hang", "never"):
            return
        if any(given.started and given.outcome is None and not given.cancelled for given in self._given):
            self._acknowledge(cancel)
            self._say_done(cancel)
            return
        if manner == "late":
            worker.process.call_later(rng.random() * 3, self._acknowledge, cancel)
        else:
            self._acknowledge(cancel)
        if manner == "twice":
            self._acknowledge(cancel)
        if manner == "no_done":
            return
        self._stops.append(cancel)
        stubborn = any(given.stubborn for given in older if given.outcome is None)
        ends_s = (cancel.grace_s if stubborn else 0.0) + POLITE_S
        ends_at = worker.process.time() + ends_s
        if self._stopped is None or self._stopped.when() > ends_at:
            if self._stopped is not None:
                self._stopped.cancel()
            self._stopped = worker.process.call_at(ends_at, self._finish_stop)

    def _finish_stop(self) -> None:
        self._stopped = None
        for given in self._given:
            if given.cancelled and given.outcome is None:
                given.outcome = Outcome(status="cancelled_killed", changed="maybe", exit_code=None, text="cut", ms=1)
                self._worker.facts.call_ended(self._worker.boot, given.message)
        stops, self._stops = self._stops, []
        for cancel in stops:
            self._say_done(cancel)
        newest = stops[-1].generation
        self._given = [given for given in self._given if given.message.generation >= newest]
        for given in list(self._given):
            if not given.started and given.outcome is None:
                self._start(given)

    def _acknowledge(self, cancel: Cancel) -> None:
        self._outbox.send(
            CancelAcknowledged(session_id=cancel.session_id, generation=cancel.generation, level=cancel.level)
        )

    def _say_done(self, cancel: Cancel) -> None:
        self._outbox.send(
            CancelDone(
                session_id=cancel.session_id,
                generation=cancel.generation,
                level=cancel.level,
                rung="term",
                killed=1,
                survivors=0,
                calls=tuple(
                    CallOutcome(call_id=given.message.call_id, outcome=given.outcome)
                    for given in self._given
                    if given.message.generation < cancel.generation and given.outcome is not None
                ),
            )
        )

    def progress(self) -> Progress:
        return Progress(progress=self._done)

    async def orphaned(self) -> None: ...

    def shutdown(self) -> None: ...


class _Of(TypedDict):
    session_id: SessionId
    run: int
    turn: int
    generation: int
    call_id: CallId


def _of(message: RunTool) -> _Of:
    return {
        "session_id": message.session_id,
        "run": message.run,
        "turn": message.turn,
        "generation": message.generation,
        "call_id": message.call_id,
    }


def _turn(message: RunTool) -> tuple[int, int]:
    return (message.run, message.turn)
