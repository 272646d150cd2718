"""The stop of a run, from the request to the last line (F1 to F10, I3). Pure; who owes what is in cancelling.py.

Rules
1. A stop raises the generation first: from then on everything older is refused, here and in the workers (F3).
2. It takes the run out of any phase: whatever waits stops waiting, whatever is open is told as it stands (F7, F8).
3. An acknowledgement that does not come in time, or a done that does not, kills that worker (F4). After a kill only
   its death and a swept tree count, with a fresh deadline.
4. A further request raises the level: no grace is left (F10). `kill` kills both workers at once, in a stop or not.
5. When nothing is owed any more, each open call gets its one truthful result, and the run ends.
"""

import msgspec

from haltline.protocol import events, times
from haltline.protocol.ids import ROLES, Role
from haltline.protocol.kinds import CancelBy
from haltline.protocol.messages import Cancel, CancelAcknowledged, CancelDone
from haltline.supervisor import active_time, calls, cancelling, deadlines, ends, feedback, history, seats
from haltline.supervisor.budget import Trip
from haltline.supervisor.cancelling import Part, Stop, StopReason
from haltline.supervisor.effects import BroadcastCancel
from haltline.supervisor.state import Call, Draft

NO_ANSWER = f"it did not acknowledge the stop within {times.ACK_S:g} s"
NOT_DONE = "it did not finish the stop in time"
KILLED = "killed on request"


def request(d: Draft, by: CancelBy, *, terminated: bool = False) -> None:
    """Somebody wants the run to stop. A run is going on and is not being stopped."""
    _begin(d, by, "cancelled", terminated=terminated)
    _broadcast(d)


def of_limit(d: Draft, trip: Trip) -> None:
    """A limit of time is used up with work in flight (I3)."""
    ends.show_tripped(d, trip)
    _begin(d, "limit", "limit", trip=trip)
    _broadcast(d)


def kill(d: Draft) -> None:
    """`kill` of the session: no grace, no acknowledgement (rule 4)."""
    if d.state.stop is None:
        _begin(d, "client", "killed")
    elif d.state.stop.reason == "killed":
        return
    else:
        d.state.stop = msgspec.structs.replace(d.state.stop, reason="killed", trip=None, level=2)
    for role in ROLES:
        _kill(d, role, KILLED)


def escalate(d: Draft) -> None:
    """A further request during the stop (rule 4). The second level is the last one that workers know."""
    stop = d.state.stop
    if stop is None or stop.reason == "killed" or stop.level >= 2:
        return
    d.state.stop = msgspec.structs.replace(stop, level=2)
    for part in stop.parts:
        name = deadlines.name_of("done", part.role)
        if name in d.state.deadlines and part.acknowledged_ms is not None:
            sooner = min(d.state.deadlines[name], d.now + times.done_s(times.NO_GRACE_S))
            d.state.deadlines = deadlines.with_deadline(d.state.deadlines, name, sooner)
    _broadcast(d)


def acknowledged(d: Draft, role: Role, message: CancelAcknowledged) -> None:
    stop = d.state.stop
    if stop is None or message.generation != d.state.generation:
        return
    if role == "llm" and message.usage is not None and d.state.attempt is not None:
        ends.charge(d, d.state.attempt, message.usage, phase=d.state.attempt.phase, final=False)
        d.state.attempt = None
    part = cancelling.part_of(stop, role)
    if part is None or part.owes == "death" or part.acknowledged_ms is not None:
        return
    d.state.stop = cancelling.acknowledged(stop, part, d.now)
    grace_s = deadlines.grace_s(stop.by, stop.level)
    d.state.deadlines = deadlines.with_deadline(
        deadlines.without(d.state.deadlines, deadlines.name_of("ack", role)),
        deadlines.name_of("done", role),
        d.now + times.done_s(grace_s),
    )


def done(d: Draft, role: Role, message: CancelDone) -> None:
    stop = d.state.stop
    if stop is None or message.generation != d.state.generation:
        return
    part = cancelling.part_of(stop, role)
    if part is None or part.owes == "death":
        return
    d.state.stop = cancelling.reported_done(
        stop,
        part,
        d.now,
        rung=message.rung,
        killed=message.killed,
        survivors=message.survivors,
        outcomes=message.calls,
    )
    _owes_nothing(d, role)


def late(d: Draft, role: Role, *, acknowledged: bool) -> None:
    """A report did not come in time (rule 3)."""
    _kill(d, role, NOT_DONE if acknowledged else NO_ANSWER)


def kill_worker(d: Draft, role: Role) -> None:
    """`kill` of one worker during the stop: its part ends the hard way."""
    _kill(d, role, KILLED)


def worker_dying(d: Draft, role: Role) -> None:
    """A worker died by itself during the stop; its tree is being swept."""
    if d.state.stop is not None:
        d.state.stop = cancelling.owes_death(d.state.stop, role, killed=False)
        _owes_nothing(d, role)


def worker_gone(d: Draft, role: Role, *, killed: int, survivors: int) -> None:
    """Its tree was seen gone, or could not be."""
    if d.state.stop is not None:
        isolation = d.state.settings.isolation
        d.state.stop = cancelling.died(
            d.state.stop, role, d.now, isolation=isolation, killed=killed, survivors=survivors
        )
        _owes_nothing(d, role)


def go_on(d: Draft) -> None:
    """Phase cancelling: tells what may be told, and ends the run when nothing is owed (rule 5)."""
    if d.state.stop is None:
        return
    d.state.stop, steps = cancelling.tell(d.state.stop)
    for step in steps:
        d.show(step)
    if cancelling.is_over(d.state.stop):
        _end(d, d.state.stop)


def _begin(d: Draft, by: CancelBy, reason: StopReason, *, terminated: bool = False, trip: Trip | None = None) -> None:
    """Rules 1 and 2."""
    state = d.state
    state.generation += 1
    d.show(events.CancelStep(phase="requested", by=by))
    stream_open = state.attempt is not None
    text = ends.show_wholes(d, partial=True)
    if stream_open:
        state.message = history.message_of(text, partial=True)
    active_time.pause(d)
    state.deadlines = deadlines.only(state.deadlines, "gone")
    state.hung = None
    state.compaction = None
    state.stop = Stop(
        by=by,
        reason=reason,
        terminated=terminated,
        trip=trip,
        requested_at=d.now,
        stream_open=stream_open,
        tools_open=any(call.stage == "sent" for call in state.calls),
        parts=tuple(_part(d, role) for role in ROLES if d.seat(role).state != "empty"),
    )
    state.phase = "cancelling"


def _part(d: Draft, role: Role) -> Part:
    seat = d.seat(role)
    ready = seat.state == "ready"
    return Part(role=role, pid=seat.pid, owes="reports" if ready else "death")


def _broadcast(d: Draft) -> None:
    """Tells the living workers, and sets what they owe a deadline. One that is still starting is killed by the
    shell, which knows nothing to lose in it; should it not end, the deadline of a done kills it once more."""
    state = d.state
    if state.stop is None:
        return
    level = state.stop.level
    roles: tuple[Role, ...] = tuple(role for role in ROLES if d.seat(role).state in ("starting", "ready"))
    if not roles:
        return
    grace_s = deadlines.grace_s(state.stop.by, level)
    d.do(
        BroadcastCancel(
            message=Cancel(session_id=state.session_id, generation=state.generation, level=level, grace_s=grace_s),
            roles=roles,
        )
    )
    if level > 1:
        return
    for role in roles:
        if d.seat(role).state == "ready":
            name, at = deadlines.name_of("ack", role), d.now + times.ACK_S
        else:
            state.stop = cancelling.owes_death(state.stop, role, killed=True)
            name, at = deadlines.name_of("done", role), d.now + times.gone_s()
        state.deadlines = deadlines.with_deadline(state.deadlines, name, at)


def _kill(d: Draft, role: Role, reason: str) -> None:
    stop = d.state.stop
    if stop is None or cancelling.part_of(stop, role) is None:
        return
    alive = d.seat(role).state in ("starting", "ready")
    d.state.stop = cancelling.owes_death(stop, role, killed=alive)
    _owes_nothing(d, role)
    seats.kill(d, role, reason)


def _owes_nothing(d: Draft, role: Role) -> None:
    d.state.deadlines = deadlines.without(
        d.state.deadlines, deadlines.name_of("ack", role), deadlines.name_of("done", role)
    )


def _end(d: Draft, stop: Stop) -> None:
    """Rule 5."""
    state = d.state
    if state.attempt is not None:
        ends.charge(d, state.attempt, None, phase=state.attempt.phase, final=False)
        state.attempt = None
    had_calls = bool(state.calls)
    for call in state.calls:
        if call.stage != "closed":
            _close(d, stop, call)
    if stop.trip is not None:
        note = feedback.limit(stop.trip)
    else:
        by: feedback.Stopper = "killed" if stop.reason == "killed" else stop.by
        note = feedback.interrupted(by, had_text=state.message is not None, had_calls=had_calls)
    state.notes = (*state.notes, note)
    ends.stopped(d, stop)


def _close(d: Draft, stop: Stop, call: Call) -> None:
    """What is true of a call that was open when the stop came (F8)."""
    reported = next((entry.outcome for entry in stop.outcomes if entry.call_id == call.call.call_id), None)
    worker_died = any(part.role == "tool" and part.owes == "death" for part in stop.parts)
    if reported is not None:
        ends.close_call(d, call, reported)
    elif call.stage != "sent":
        ends.close_call(d, call, ends.nothing_changed("cancelled_not_started", feedback.not_started()))
    elif worker_died:
        ends.close_call(d, call, ends.unknown_outcome())
    else:
        ends.close_call(d, call, calls.unreported(call))
