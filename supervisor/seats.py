"""The lives of a session's two workers, as the core sees them: started, ready, dead, swept, replaced (L2, L3). Pure.

Rules
1. A seat is filled when a run begins and when its worker is lost during one; between runs it may stay empty, so a
   session that is being left is not filled behind the back of its shell.
2. A dead worker's seat is empty only when its tree was swept: a session never has two workers of a role.
3. A worker that ends before it was ready, or is not ready in time, is a failed start: START_TRIES in a row, then the
   seat gives up, in the worker's own words. A worker that was ready and is lost is a restart: RESTARTS in
   RESTART_WINDOW_S, the next gives up. What needs the seat then ends with reason worker_failed; what does not, goes on.
4. A prompt is a new chance for a seat that gave up.
5. Of a worker's words, one line is shown and kept (last_words.py): they may be a traceback, which is in the log.
"""

import msgspec

from haltline.protocol import events, times
from haltline.protocol.ids import ROLES, Role
from haltline.supervisor import deadlines, last_words
from haltline.supervisor.effects import KillWorker, SpawnWorker
from haltline.supervisor.state import Draft, Seat
from haltline.supervisor.stimuli import Swept, WorkerExited, WorkerReady, WorkerStartFailed

START_TRIES = 3
RESTARTS = 3
RESTART_WINDOW_S = 60.0
NOT_READY = f"it was not ready within {times.WORKER_START_S:g} s"
NAMES: dict[Role, str] = {"llm": "LLM worker", "tool": "tool worker"}


def fill_all(d: Draft) -> None:
    """A session opens, or a run begins (rules 1 and 4)."""
    for role in ROLES:
        seat = d.seat(role)
        if seat.gave_up is not None:
            d.set_seat(msgspec.structs.replace(seat, gave_up=None, failed_starts=0))
        if seat.state == "empty":
            _spawn(d, role)


def ready(d: Draft, said: WorkerReady) -> None:
    d.set_seat(Seat(role=said.role, state="ready", worker_id=said.worker_id, pid=said.pid))
    _await_start_no_more(d, said.role)
    d.show(events.Worker(role=said.role, pid=said.pid, state="ready"))


def start_failed(d: Draft, said: WorkerStartFailed) -> None:
    """It ended before it was ready; its tree, if any, is being swept (rule 3)."""
    words = last_words.line(said.words)
    _count_failed_start(d, said.role, words)
    d.set_seat(msgspec.structs.replace(d.seat(said.role), worker_id=said.worker_id, dead=True))
    if d.state.phase != "idle":
        d.show(events.Worker(role=said.role, pid=None, state="exited", reason=words))


def start_late(d: Draft, role: Role) -> None:
    """Its time to be ready is over (rule 3). Its death, which follows, is no second failure."""
    if d.seat(role).state != "starting":
        return
    if d.state.phase != "idle":
        d.show(events.Worker(role=role, pid=None, state="killed", reason=NOT_READY))
    d.do(KillWorker(role=role, reason=NOT_READY))
    _count_failed_start(d, role, NOT_READY)


def _count_failed_start(d: Draft, role: Role, words: str) -> None:
    failed = d.seat(role).failed_starts + 1
    gave_up = f"the {NAMES[role]} could not be started, {failed} times: {words}" if failed >= START_TRIES else None
    d.set_seat(Seat(role=role, state="dying", failed_starts=failed, gave_up=gave_up, ended=words))
    _await_start_no_more(d, role)
    _await_sweep(d, role)


def ended_in_start(d: Draft, said: WorkerStartFailed) -> None:
    """It was killed by order of ours before it was ready: no failed start."""
    seat = d.seat(said.role)
    d.set_seat(
        msgspec.structs.replace(
            seat, state="dying", worker_id=said.worker_id, ended=seat.ended or last_words.line(said.words), dead=True
        )
    )
    _await_start_no_more(d, said.role)
    _await_sweep(d, said.role)


def exited(d: Draft, said: WorkerExited) -> None:
    """A worker that had been ready is dead. Told unless it was killed by us, which was told then."""
    seat = d.seat(said.role)
    words = last_words.line(said.words)
    if seat.state == "ready" and d.state.phase != "idle":
        d.show(events.Worker(role=said.role, pid=said.pid, state="exited", reason=words))
    ended = seat.ended or words
    d.set_seat(msgspec.structs.replace(seat, state="dying", pid=said.pid, ended=ended, dead=True))
    _await_sweep(d, said.role)


def kill(d: Draft, role: Role, reason: str) -> None:
    """SIGKILL, now. Nothing where nothing lives."""
    seat = d.seat(role)
    if seat.state not in ("starting", "ready"):
        return
    d.show(events.Worker(role=role, pid=seat.pid, state="killed", reason=reason))
    d.do(KillWorker(role=role, reason=reason))
    d.set_seat(msgspec.structs.replace(seat, state="dying", ended=reason))
    _await_start_no_more(d, role)
    _await_sweep(d, role)


def emptied(d: Draft, role: Role) -> None:
    """The tree of the dead worker was seen gone, or was waited for long enough (rule 2). Fills the seat where a run
    is going on and is not being stopped."""
    seat = d.seat(role)
    d.state.deadlines = deadlines.without(d.state.deadlines, deadlines.name_of("gone", role))
    was_ready = seat.pid is not None
    running = d.state.phase not in ("idle", "cancelling")
    gave_up = seat.gave_up
    if gave_up is None and running and was_ready and not may_restart(d):
        gave_up = f"the {NAMES[role]} ended {RESTARTS + 1} times in {RESTART_WINDOW_S:.0f} s; at last: {seat.ended}"
    d.set_seat(Seat(role=role, failed_starts=seat.failed_starts, gave_up=gave_up))
    if not running or gave_up is not None:
        return
    if not was_ready:
        _spawn(d, role)
        return
    d.state.restarts = (*recent_restarts(d), d.now)
    counters = d.state.run.counters
    d.count(msgspec.structs.replace(counters, worker_restart=counters.worker_restart + 1))
    _spawn(d, role, replaces=seat.ended)


def recent_restarts(d: Draft) -> tuple[float, ...]:
    return tuple(at for at in d.state.restarts if d.now - at < RESTART_WINDOW_S)


def may_restart(d: Draft) -> bool:
    return len(recent_restarts(d)) < RESTARTS


def is_swept_by(d: Draft, said: Swept) -> bool:
    """Whether this report is about the worker that the seat waits for."""
    seat = d.seat(said.role)
    return seat.state == "dying" and seat.worker_id in (None, said.worker_id)


def _spawn(d: Draft, role: Role, *, replaces: str | None = None) -> None:
    seat = d.seat(role)
    d.set_seat(Seat(role=role, state="starting", failed_starts=seat.failed_starts))
    d.do(SpawnWorker(role=role))
    at = d.now + times.WORKER_START_S
    d.state.deadlines = deadlines.with_deadline(d.state.deadlines, deadlines.name_of("start", role), at)
    state: events.WorkerState = "starting" if replaces is None else "replaced"
    d.show(events.Worker(role=role, pid=None, state=state, reason=replaces))


def _await_start_no_more(d: Draft, role: Role) -> None:
    d.state.deadlines = deadlines.without(d.state.deadlines, deadlines.name_of("start", role))


def _await_sweep(d: Draft, role: Role) -> None:
    at = d.now + times.gone_s()
    d.state.deadlines = deadlines.with_deadline(d.state.deadlines, deadlines.name_of("gone", role), at)
