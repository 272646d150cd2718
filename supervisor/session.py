"""The state machine of one session: `step(state, stimulus, now) -> (state, effects)`. Pure, total, deterministic.

Theory of operation
1. A stimulus is a fact. Its handler enters the fact into the state and says what it means at once; then `_settle`
   does whatever can be done in the phase that this led to, until something has to be waited for. So nobody has to
   know who comes next: calls.py does not call sending.py for the next request, nor the other way round.
2. Every pair of phase and stimulus is written out below, "nothing to do" too.
3. The input is never changed: a step works on a shallow copy, and every part of the state is frozen or replaced
   whole. The same stimuli at the same times give the same states. The journal leaves out heartbeats, and has deltas as
   text only, joined: from it comes what was said and decided, not when a model was silent nor in which pieces it spoke.
4. Time comes in as `now`, chance as `jitter`; all deadlines live in the state, and Tick says that the earliest of
   them was reached.
5. What a worker says counts only if it is the seat's present worker, ready, and what it says belongs to the present
   generation and to open work. Anything else is stale and is dropped without a word (F3, R12).
6. A delta takes a path of its own, ahead of everything: it can only lengthen the open attempt.

    idle --prompt--> starting --LLM worker ready--> streaming --good, no calls--> idle
                        ^                             |  |  `--failure--> waiting_retry | starting | compacting | idle
                        |                             |  `--good, calls--> deciding
                        |                             |                      |  ^
                        +--all calls closed-----------+-- running_tools <----+  +--> waiting_approval
    any of them --cancel, kill, limit of time--> cancelling --nothing owed--> idle
"""

import copy
from typing import Literal, assert_never

from haltline.protocol import events, times
from haltline.protocol.conversation import Item, UserMessage
from haltline.protocol.ids import Role, SessionId
from haltline.protocol.messages import (
    AttemptEnded,
    AttemptFailed,
    AttemptProgress,
    CancelAcknowledged,
    CancelDone,
    Delta,
    Heartbeat,
    ToolEnded,
    ToolLeadsOutside,
    ToolStarted,
)
from haltline.protocol.settings import SessionSettings
from haltline.supervisor import (
    active_time,
    attempt_ends,
    budget,
    calls,
    compaction,
    deadlines,
    overdue,
    repeat,
    seats,
    sending,
    stopping,
)
from haltline.supervisor.deadlines import DeadlineKind
from haltline.supervisor.effects import AnyEffect
from haltline.supervisor.state import Draft, Run, SessionState
from haltline.supervisor.stimuli import (
    Answered,
    AnyStimulus,
    CancelAsked,
    FromWorker,
    KillAsked,
    Opened,
    Prompted,
    Suspended,
    Swept,
    Tick,
    WorkerExited,
    WorkerReady,
    WorkerStartFailed,
)

__all__ = [
    "SessionState",
    "current_tool",
    "is_running",
    "is_stopping",
    "next_deadline",
    "open_session",
    "ps_state",
    "step",
    "stream_open",
    "turn",
]

PsState = Literal["starting", "running", "waiting", "stalled", "backoff", "cancelling", "idle", "exited"]

TOOL_HEAD = 60
"""Characters of a call's arguments that `ps` shows."""


def open_session(session_id: SessionId, settings: SessionSettings, items: tuple[Item, ...] = ()) -> SessionState:
    """The state before Opened. `items`: the history of a resumed session."""
    return SessionState(session_id=session_id, settings=settings, history=tuple(items))


def step(state: SessionState, stimulus: AnyStimulus, now: float) -> tuple[SessionState, tuple[AnyEffect, ...]]:
    """The state after the stimulus, and what is to be done, in order. `now`: monotonic seconds, never falling.

    Raises BrokenInvariant for a bug of ours, and for nothing else."""
    if isinstance(stimulus, FromWorker) and isinstance(stimulus.message, Delta):
        return _delta(state, stimulus, stimulus.message)
    d = Draft(state, now)
    _take(d, stimulus)
    _settle(d)
    return d.state, tuple(d.effects)


def next_deadline(state: SessionState) -> float | None:
    """When a Tick is due, monotonic seconds; None: never."""
    return deadlines.earliest(state.deadlines)


def is_running(state: SessionState) -> bool:
    return state.phase != "idle"


def is_stopping(state: SessionState) -> bool:
    return state.phase == "cancelling"


def stream_open(state: SessionState) -> bool:
    """A request to the model is in flight."""
    return state.attempt is not None


def turn(state: SessionState) -> int:
    """Of the present or last run; 0 before its first request."""
    return state.turn


def ps_state(state: SessionState) -> PsState:
    if state.hung is not None:
        return "stalled"
    match state.phase:
        case "idle" | "starting":
            return state.phase
        case "streaming":
            return "stalled" if state.attempt is not None and state.attempt.stalled_ms is not None else "running"
        case "waiting_retry":
            return "backoff"
        case "waiting_approval":
            return "waiting"
        case "compacting":
            return "stalled" if state.attempt is not None and state.attempt.stalled_ms is not None else "running"
        case "deciding" | "running_tools":
            return "running"
        case "cancelling":
            return "cancelling"
        case _:
            assert_never(state.phase)


def current_tool(state: SessionState) -> str | None:
    """The first call that is in the tool worker's hands, `name head-of-arguments`; None: none is."""
    sent = next((call.call for call in state.calls if call.stage == "sent"), None)
    return None if sent is None else f"{sent.name} {sent.arguments_raw[:TOOL_HEAD]}"


def _delta(state: SessionState, said: FromWorker, message: Delta) -> tuple[SessionState, tuple[AnyEffect, ...]]:
    """Rule 6."""
    if state.llm.worker_id != said.worker_id or state.llm.state != "ready":
        return state, ()
    after = copy.copy(state)
    show = sending.delta(after, message)
    if after.attempt is state.attempt:
        return state, ()
    return after, () if show is None else (show,)


def _settle(d: Draft) -> None:
    """Rule 1."""
    before = None
    while before != d.state.phase:
        before = d.state.phase
        match d.state.phase:
            case "idle" | "streaming" | "waiting_retry" | "waiting_approval":
                pass
            case "starting":
                sending.go_on(d)
            case "deciding" | "running_tools":
                calls.go_on(d)
            case "compacting":
                compaction.go_on(d)
            case "cancelling":
                stopping.go_on(d)
            case _:
                assert_never(d.state.phase)


def _take(d: Draft, stimulus: AnyStimulus) -> None:
    match stimulus:
        case Opened():
            _opened(d)
        case Prompted():
            _prompted(d, stimulus)
        case WorkerReady():
            _worker_ready(d, stimulus)
        case WorkerStartFailed():
            _worker_start_failed(d, stimulus)
        case WorkerExited():
            _worker_exited(d, stimulus)
        case Swept():
            _swept(d, stimulus)
        case FromWorker():
            d.jitter, d.wall_s = stimulus.jitter, stimulus.wall_s
            _said(d, stimulus)
        case Tick():
            d.jitter = stimulus.jitter
            _tick(d)
        case CancelAsked():
            _cancel_asked(d, stimulus)
        case KillAsked():
            if stimulus.role is None:
                _kill_asked(d)
            else:
                _kill_worker_asked(d, stimulus.role)
        case Answered():
            _answered(d, stimulus)
        case Suspended():
            _suspended(d, stimulus)
        case _:
            assert_never(stimulus)


# The session and its runs


def _opened(d: Draft) -> None:
    state = d.state
    if state.opened:
        return
    state.opened = True
    settings = state.settings
    d.show(
        events.Init(
            model=settings.model,
            api=settings.api,
            cwd=settings.cwd,
            approval_mode=settings.approval_mode,
            retry=settings.retry.name,
            isolation=settings.isolation,
            limits=settings.run_limits,
            version=settings.version,
        )
    )
    seats.fill_all(d)


def _prompted(d: Draft, said: Prompted) -> None:
    state = d.state
    match state.phase:
        case "idle" if state.opened:
            state.run_number += 1
            state.turn = 0
            state.run = Run(started_at=d.now)
            state.window = repeat.Window()
            state.history = (*state.history, UserMessage(text=said.text))
            state.phase = "starting"
            active_time.start(d)
            d.show(events.Message(role="user", text=said.text))
            seats.fill_all(d)
        case "idle":
            pass  # the session is not open yet; the shell opens it first
        case (
            "starting"
            | "streaming"
            | "waiting_retry"
            | "deciding"
            | "waiting_approval"
            | "running_tools"
            | "compacting"
            | "cancelling"
        ):
            pass  # one run at a time; the shell refuses a prompt meanwhile
        case _:
            assert_never(state.phase)


def _cancel_asked(d: Draft, said: CancelAsked) -> None:
    match d.state.phase:
        case "idle":
            pass  # nothing runs
        case (
            "starting"
            | "streaming"
            | "waiting_retry"
            | "deciding"
            | "waiting_approval"
            | "running_tools"
            | "compacting"
        ):
            stopping.request(d, said.by, terminated=said.terminated)
        case "cancelling":
            stopping.escalate(d)
        case _:
            assert_never(d.state.phase)


def _kill_asked(d: Draft) -> None:
    match d.state.phase:
        case "idle":
            seats.kill(d, "llm", stopping.KILLED)
            seats.kill(d, "tool", stopping.KILLED)
        case (
            "starting"
            | "streaming"
            | "waiting_retry"
            | "deciding"
            | "waiting_approval"
            | "running_tools"
            | "compacting"
            | "cancelling"
        ):
            stopping.kill(d)
        case _:
            assert_never(d.state.phase)


def _kill_worker_asked(d: Draft, role: Role) -> None:
    match d.state.phase:
        case "cancelling":
            stopping.kill_worker(d, role)
        case (
            "idle"
            | "starting"
            | "streaming"
            | "waiting_retry"
            | "deciding"
            | "waiting_approval"
            | "running_tools"
            | "compacting"
        ):
            overdue.died(d, role)
            seats.kill(d, role, stopping.KILLED)
        case _:
            assert_never(d.state.phase)


def _answered(d: Draft, said: Answered) -> None:
    match d.state.phase:
        case "waiting_approval":
            calls.answered(d, said)
        case (
            "idle"
            | "starting"
            | "streaming"
            | "waiting_retry"
            | "deciding"
            | "running_tools"
            | "compacting"
            | "cancelling"
        ):
            pass  # the question is gone
        case _:
            assert_never(d.state.phase)


# Workers: their lives


def _worker_ready(d: Draft, said: WorkerReady) -> None:
    """In every phase alike: a seat that waits for its worker has it. What waits for the seat goes on in `_settle`."""
    if d.seat(said.role).state == "starting":
        seats.ready(d, said)


def _worker_start_failed(d: Draft, said: WorkerStartFailed) -> None:
    seat = d.seat(said.role)
    was_killed = seat.state == "dying" and not seat.dead and seat.worker_id is None
    if seat.state != "starting" and not was_killed:
        return
    if was_killed or d.state.phase == "cancelling":
        seats.ended_in_start(d, said)  # by order of ours: no failed start
    else:
        seats.start_failed(d, said)
    match d.state.phase:
        case "cancelling":
            stopping.worker_dying(d, said.role)
        case (
            "idle"
            | "starting"
            | "streaming"
            | "waiting_retry"
            | "deciding"
            | "waiting_approval"
            | "running_tools"
            | "compacting"
        ):
            pass  # Swept follows and fills the seat; what waits for one that gave up ends in `_settle`
        case _:
            assert_never(d.state.phase)


def _worker_exited(d: Draft, said: WorkerExited) -> None:
    seat = d.seat(said.role)
    is_ready_one = seat.state == "ready" and seat.worker_id == said.worker_id
    is_killed_one = seat.state == "dying" and not seat.dead and seat.worker_id in (None, said.worker_id)
    if not (is_ready_one or is_killed_one):
        return
    seats.exited(d, said)
    overdue.died(d, said.role)
    match d.state.phase:
        case "streaming" | "compacting" if said.role == "llm":
            attempt_ends.lost(d, d.state.llm.ended)
        case "cancelling":
            stopping.worker_dying(d, said.role)
        case (
            "idle"
            | "starting"
            | "streaming"
            | "waiting_retry"
            | "deciding"
            | "waiting_approval"
            | "running_tools"
            | "compacting"
        ):
            pass  # no work of it is lost before its tree was swept
        case _:
            assert_never(d.state.phase)


def _swept(d: Draft, said: Swept) -> None:
    if seats.is_swept_by(d, said):
        _gone(d, said.role, killed=said.killed, survivors=said.survivors)


def _gone(d: Draft, role: Role, *, killed: int, survivors: int) -> None:
    """The tree of a dead worker was seen gone, or was waited for long enough."""
    overdue.died(d, role)
    match d.state.phase:
        case "cancelling":
            stopping.worker_gone(d, role, killed=killed, survivors=survivors)
        case "streaming" | "compacting" if role == "llm":
            attempt_ends.lost(d, d.state.llm.ended)  # its exit was never reported; else the attempt is closed by now
        case "running_tools" if role == "tool":
            calls.lost(d)
        case (
            "idle"
            | "starting"
            | "streaming"
            | "waiting_retry"
            | "deciding"
            | "waiting_approval"
            | "running_tools"
            | "compacting"
        ):
            pass  # it had no work
        case _:
            assert_never(d.state.phase)
    seats.emptied(d, role)


# Workers: what they say


def _said(d: Draft, said: FromWorker) -> None:
    """Rule 5. Phase and generation of work are looked at where the work is known."""
    seat = d.seat(said.role)
    if seat.worker_id != said.worker_id or seat.state != "ready":
        return
    match said.message:
        case Heartbeat():
            _heartbeat(d, said.role, said.message)
        case Delta():
            pass  # rule 6
        case AttemptProgress():
            sending.progressed(d, said.message)
        case AttemptEnded():
            attempt_ends.ended(d, said.message)
        case AttemptFailed():
            attempt_ends.failed(d, said.message)
        case ToolStarted():
            calls.started(d, said.message)
        case ToolEnded():
            calls.ended(d, said.message)
        case ToolLeadsOutside():
            calls.led_outside(d, said.message)
        case CancelAcknowledged():
            stopping.acknowledged(d, said.role, said.message)
            overdue.acknowledged(d, said.role, said.message)
        case CancelDone():
            stopping.done(d, said.role, said.message)
            overdue.done(d, said.role, said.message)
        case _:
            assert_never(said.message)


def _heartbeat(d: Draft, role: Role, message: Heartbeat) -> None:
    name = deadlines.name_of("hang", role)
    if name in d.state.deadlines:
        d.state.deadlines = deadlines.with_deadline(d.state.deadlines, name, d.now + times.SILENCE_S)
    if role == "llm" and d.state.phase in ("streaming", "compacting"):
        sending.heard(d, message)


# Time


def _tick(d: Draft) -> None:
    """Every deadline that has passed, the earliest first; each is taken out before it is acted upon."""
    while (name := deadlines.first_due(d.state.deadlines, d.now)) is not None:
        d.state.deadlines = deadlines.without(d.state.deadlines, name)
        kind, of = deadlines.parsed(name)
        _passed(d, kind, of)


def _passed(d: Draft, kind: DeadlineKind, of: str) -> None:
    role: Role = "llm" if of == "llm" else "tool"
    match kind:
        case "start":
            seats.start_late(d, role)
        case "retry":
            d.state.phase = "starting" if d.state.compaction is None else "compacting"
        case "seconds":
            _time_is_up(d)
        case "seconds_warning":
            sending.warn(d)
            active_time.arm(d)
        case "work":
            overdue.ask(d, role, overdue.TOO_LATE)
        case "hang":
            overdue.ask(d, role, overdue.SILENT)
        case "ack" | "done" if d.state.phase == "cancelling":
            stopping.late(d, role, acknowledged=kind == "done")
        case "ack" | "done":
            overdue.late(d, role)
        case "gone":
            _gone(d, role, killed=0, survivors=1)
        case _:
            assert_never(kind)


def _time_is_up(d: Draft) -> None:
    settings = d.state.settings
    trip = budget.seconds_tripped(d.state.ledger, settings.run_limits, settings.session_limits, d.now)
    if trip is None:
        active_time.arm(d)
    else:
        stopping.of_limit(d, trip)


def _suspended(d: Draft, said: Suspended) -> None:
    """The supervisor did not run: nobody is late by that (L5)."""
    state = d.state
    state.deadlines = deadlines.moved(state.deadlines, said.gap_s)
    state.ledger = budget.moved(state.ledger, said.gap_s)
    state.window = repeat.moved(state.window, said.gap_s)
