"""Every time limit that the supervisor holds, computed from its parts (I6). Pure.

A deadline is an absolute time in monotonic seconds, kept in the session's state under a name `KIND` or
`KIND:OF_WHAT`. The shell sends one Tick when the earliest is reached; nothing else in the supervisor waits.

Rules
1. A limit that contains others is the sum of them: a part that is raised raises the whole.
2. Each part is enforced by its owner (the worker for an attempt and a call, the supervisor for the rest), so
   that a whole passes only when its owner did not do its part.
3. A deadline that passed is taken out of the state before it is acted upon: none fires twice.
4. Time in which the supervisor did not run moves every deadline (L5, L6).
"""

from collections.abc import Mapping
from typing import Literal, cast

from haltline.protocol.ids import CallId, Role
from haltline.protocol.kinds import CancelBy
from haltline.protocol.settings import StreamLimits

Deadlines = Mapping[str, float]

DeadlineKind = Literal["retry", "seconds", "seconds_warning", "work", "hang", "ack", "done", "gone"]
"""retry: the wait before the next attempt ends. seconds, seconds_warning: active time of the run. work: a piece
of work given out should long be over. hang: no heartbeat while work is due. ack, done: reports of a stop.
gone: a killed or dead worker should have been seen empty."""

ACK_S = 2.0
"""From a cancel to its acknowledgement (F4)."""
GRACE_S = 2.0
"""From SIGTERM to SIGKILL of a tool's group (F5)."""
NO_GRACE_S = 0.0
"""On a second cancel (F10)."""
DEATH_GRACE_S = 1.0
"""What a tree gets instead of GRACE_S after the death of one of ours, the client included, so that G2's 2 s hold."""
KILL_S = 1.0
"""From SIGKILL to a tree seen empty. Measured 9 to 90 ms for 50 to 107 processes; the rest is a busy machine."""
MARGIN_S = 1.0
"""For the way of a report through a loaded loop. Late is not dead (L5)."""
LATE_S = 2.0
"""By how much a worker may miss its own limit for a piece of work before it is asked to stop (L6)."""
SILENCE_S = 10.0
"""Without heartbeat while work is due (L6): ten heartbeats."""


def grace_s(by: CancelBy, level: int) -> float:
    """What the groups of a session's tools have to obey SIGTERM in, by who stops them and how often they were asked."""
    if level > 1:
        return NO_GRACE_S
    return DEATH_GRACE_S if by == "lost_client" else GRACE_S


def done_s(grace_s: float) -> float:
    """From an acknowledgement to "its tree is gone"."""
    return grace_s + KILL_S + MARGIN_S


def gone_s() -> float:
    """From the death of a worker, or the order to kill it, to its tree seen empty."""
    return DEATH_GRACE_S + KILL_S + MARGIN_S


def attempt_s(limits: StreamLimits) -> float:
    """From StartAttempt to its end, whatever the worker does."""
    return limits.whole_s + LATE_S


def call_s(timeout_s: float) -> float:
    """From RunTool to its end: the call's limit, the end of its tree, and some lateness."""
    return timeout_s + GRACE_S + KILL_S + LATE_S


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
    """Rule 4."""
    return {name: at + gap_s for name, at in deadlines.items()}


def only(deadlines: Deadlines, kind: DeadlineKind) -> dict[str, float]:
    return {name: at for name, at in deadlines.items() if name.partition(":")[0] == kind}


def without_kinds(deadlines: Deadlines, *kinds: DeadlineKind) -> dict[str, float]:
    return {name: at for name, at in deadlines.items() if name.partition(":")[0] not in kinds}
