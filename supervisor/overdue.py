"""A worker whose work is overdue, or that is silent while work is due (L6). Pure.

Rules
1. It is asked to stop: the generation rises, the cancel goes to it alone, and it owes an acknowledgement and then a
   done, as in any stop. The run goes on around it.
2. If it gives both, it lives on: its attempt has failed by the limit of the whole request, its calls end as it says.
3. If it does not, it is killed, and what follows is what follows any death of a worker (L2).
"""

import msgspec

from haltline.protocol import events, times
from haltline.protocol.conversation import Usage
from haltline.protocol.ids import Role
from haltline.protocol.messages import Cancel, CancelAcknowledged, CancelDone
from haltline.supervisor import attempt_ends, calls, deadlines, seats
from haltline.supervisor.effects import BroadcastCancel
from haltline.supervisor.state import Draft, Hung

SILENT = f"no heartbeat for {times.SILENCE_S:g} s while work was due"
TOO_LATE = "its work did not end at its limit"


def ask(d: Draft, role: Role, words: str) -> None:
    """Rule 1. Nothing if the worker is not there to be asked, or is being asked already."""
    state = d.state
    if state.hung is not None or d.seat(role).state != "ready":
        return
    state.generation += 1
    state.hung = Hung(role=role, words=words)
    state.deadlines = deadlines.with_deadline(
        deadlines.without_kinds(state.deadlines, "work", "hang"),
        deadlines.name_of("ack", role),
        d.now + times.ACK_S,
    )
    d.show(events.Worker(role=role, pid=d.seat(role).pid, state="stalled", reason=words))
    d.do(
        BroadcastCancel(
            message=Cancel(session_id=state.session_id, generation=state.generation, grace_s=times.GRACE_S),
            roles=(role,),
        )
    )


def acknowledged(d: Draft, role: Role, message: CancelAcknowledged) -> None:
    hung = d.state.hung
    if hung is None or hung.role != role or message.generation != d.state.generation:
        return
    d.state.hung = msgspec.structs.replace(hung, usage=message.usage)
    d.state.deadlines = deadlines.with_deadline(
        deadlines.without(d.state.deadlines, deadlines.name_of("ack", role)),
        deadlines.name_of("done", role),
        d.now + times.done_s(times.GRACE_S),
    )


def done(d: Draft, role: Role, message: CancelDone) -> None:
    """Rule 2."""
    hung = d.state.hung
    if hung is None or hung.role != role or message.generation != d.state.generation:
        return
    usage: Usage | None = hung.usage
    _forget(d, role)
    if role == "llm":
        attempt_ends.overdue(d, usage)
    else:
        calls.stopped_by_worker(d, {entry.call_id: entry.outcome for entry in message.calls})


def late(d: Draft, role: Role) -> None:
    """Rule 3."""
    hung = d.state.hung
    if hung is not None and hung.role == role:
        _forget(d, role)
        seats.kill(d, role, f"{hung.words}; asked to stop, it did not")


def died(d: Draft, role: Role) -> None:
    """It ended while it was being asked."""
    if d.state.hung is not None and d.state.hung.role == role:
        _forget(d, role)


def _forget(d: Draft, role: Role) -> None:
    d.state.hung = None
    d.state.deadlines = deadlines.without(
        d.state.deadlines, deadlines.name_of("ack", role), deadlines.name_of("done", role)
    )
