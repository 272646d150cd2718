"""Every time limit that the supervisor holds, computed from the parts in protocol/times.py (I6). Pure.

A deadline is an absolute time in monotonic seconds, kept in the session's state under a name `KIND` or
`KIND:OF_WHAT`. The shell sends one Tick when the earliest is reached; nothing else in the supervisor waits.

Rules
1. Each part is enforced by its owner (the worker for an attempt and a call, the supervisor for the rest), so
   that a whole passes only when its owner did not do its part.
2. A deadline that passed is taken out of the state before it is acted upon: none fires twice.
3. Time in which the supervisor did not run moves every deadline (L5, L6).
"""

from collections.abc import Mapping
from typing import Literal, cast

from haltline.protocol import times
from haltline.protocol.ids import CallId, Role
from haltline.protocol.kinds import CancelBy
from haltline.protocol.settings import StreamLimits

Deadlines = Mapping[str, float]

DeadlineKind = Literal["start", "retry", "seconds", "seconds_warning", "work", "hang", "ack", "done", "gone"]
"""start: a worker that was asked for should be ready. retry: the wait before the next attempt ends. seconds,
seconds_warning: active time of the run. work: a piece of work given out should long be over. hang: no heartbeat while
work is due. ack, done: reports of a stop. gone: a killed or dead worker should have been seen empty."""


def grace_s(by: CancelBy, level: int) -> float:
    """What the groups of a session's tools have to obey SIGTERM in, by who stops them and how often they were asked."""
    if level > 1:
        return times.NO_GRACE_S
    return times.DEATH_GRACE_S if by == "lost_client" else times.GRACE_S


def attempt_s(limits: StreamLimits) -> float | None:
    """From StartAttempt to its end: the worker's limit for it, what it needs to end it, and LATE_S (L6). None: it has
    no limit."""
    return limits.whole_s + times.ATTEMPT_END_S + times.LATE_S if limits.whole_s > 0 else None


def call_s(timeout_s: float) -> float:
    """From RunTool to its end: the worker's limit for it, what it needs to end it, and LATE_S (L6)."""
    return timeout_s + times.CALL_END_S + times.LATE_S


def name_of(kind: DeadlineKind, of: Role | CallId | None = None) -> str:
    return kind if of is None else f"{kind}:{of}"


def parsed(name: str) -> tuple[DeadlineKind, str]:
    """The kind, and of what; "" where a kind has only one."""
    kind, _, of = name.partition(":")
    return cast(DeadlineKind, kind), of


def with_deadline(deadlines: Deadlines, name: str, at: float) -> dict[str, float]:
    return {**deadlines, name: at}


def without(deadlines: Deadlines, *names: str) -> dict[str, float]:
    return {name: at for name, at in deadlines.items() if name not in names}


def earliest(deadlines: Deadlines) -> float | None:
    return min(deadlines.values(), default=None)


def first_due(deadlines: Deadlines, now: float) -> str | None:
    """The name of the deadline that passed first, or None. Equal times: in the order in which they were set."""
    due = [(at, index, name) for index, (name, at) in enumerate(deadlines.items()) if at <= now]
    return min(due)[2] if due else None


def moved(deadlines: Deadlines, gap_s: float) -> dict[str, float]:
    """Rule 3."""
    return {name: at + gap_s for name, at in deadlines.items()}


def only(deadlines: Deadlines, *kinds: DeadlineKind) -> dict[str, float]:
    return {name: at for name, at in deadlines.items() if name.partition(":")[0] in kinds}


def without_kinds(deadlines: Deadlines, *kinds: DeadlineKind) -> dict[str, float]:
    return {name: at for name, at in deadlines.items() if name.partition(":")[0] not in kinds}
