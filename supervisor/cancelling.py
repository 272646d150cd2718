"""Bookkeeping of one stop: who owes what, what came, and in which order it is told (F1 to F5, F10). Pure.

Rules
1. A worker that was ready owes two reports, acknowledged and done. One that is starting, dying or killed owes its
   death, which stands for done; it has no acknowledgement.
2. What came is told in one order, whatever order it came in: acknowledged llm, acknowledged tool, done llm,
   done tool. A report that came early waits for its turn.
3. A worker that is killed during the stop skips the acknowledgement that it still owed.
4. The stop is over when nothing is owed any more; only then may anything be called stopped (F1).
5. The hardest rung of all is the rung of the stop.
"""

from typing import Literal

import msgspec

from haltline.protocol.events import CancelReceipt, CancelStep
from haltline.protocol.ids import Role
from haltline.protocol.kinds import RUNG_ORDER, CancelBy, IsolationWish, Rung
from haltline.protocol.messages import CallOutcome
from haltline.supervisor.budget import Trip

StopReason = Literal["cancelled", "limit", "killed"]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What ended one worker's part. `ms` from the request of the stop."""

    ms: float
    rung: Rung
    killed: int
    survivors: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's part of a stop."""

    role: Role
    pid: int | None
    """None: it had not said hello."""
    owes: Literal["reports", "death"]
    killed: bool = False
    """By this stop."""
    acknowledged_ms: float | None = None
    done: Done | None = None
    told: Literal["nothing", "acknowledged", "done"] = "nothing"


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    by: CancelBy
    reason: StopReason
    terminated: bool = False
    trip: Trip | None = None
    level: int = 1
    requested_at: float
    stream_open: bool
    """A request to the model was in flight."""
    tools_open: bool
    """A call was in the tool worker's hands."""
    parts: tuple[Part, ...]
    outcomes: tuple[CallOutcome, ...] = ()


def part_of(stop: Stop, role: Role) -> Part | None:
    """The part of that worker, if it has one and is not done."""
    return next((part for part in stop.parts if part.role == role and part.done is None), None)


def with_part(stop: Stop, changed: Part) -> Stop:
    parts = tuple(changed if part.role == changed.role else part for part in stop.parts)
    return msgspec.structs.replace(stop, parts=parts)


def since_ms(stop: Stop, now: float) -> float:
    return round((now - stop.requested_at) * 1000, 3)


def acknowledged(stop: Stop, part: Part, now: float) -> Stop:
    """The first acknowledgement of a part that owes reports."""
    return with_part(stop, msgspec.structs.replace(part, acknowledged_ms=since_ms(stop, now)))


def reported_done(
    stop: Stop, part: Part, now: float, *, rung: Rung, killed: int, survivors: int, outcomes: tuple[CallOutcome, ...]
) -> Stop:
    """The worker's own report, of a part that owes it; it stands for an acknowledgement too."""
    ms = since_ms(stop, now)
    done = Done(ms=ms, rung=rung, killed=killed, survivors=survivors)
    acknowledged_ms = ms if part.acknowledged_ms is None else part.acknowledged_ms
    changed = with_part(stop, msgspec.structs.replace(part, acknowledged_ms=acknowledged_ms, done=done))
    return msgspec.structs.replace(changed, outcomes=(*changed.outcomes, *outcomes))


def owes_death(stop: Stop, role: Role, *, killed: bool) -> Stop:
    """Rule 1: from here on only the worker's end counts. `killed`: by order of this stop."""
    part = part_of(stop, role)
    if part is None:
        return stop
    return with_part(stop, msgspec.structs.replace(part, owes="death", killed=part.killed or killed))


def died(stop: Stop, role: Role, now: float, *, isolation: IsolationWish, killed: int, survivors: int) -> Stop:
    """The worker is dead and its tree was seen empty, or not. The tree of a tool worker in a PID namespace died with
    it, whoever ended it; `killed` counts what of that was seen."""
    part = part_of(stop, role)
    if part is None:
        return stop
    rung: Rung = "worker_kill" if part.killed else "sweep"
    if role == "tool" and isolation == "pidns":
        rung = "pidns"
    done = Done(ms=since_ms(stop, now), rung=rung, killed=killed, survivors=survivors)
    return with_part(stop, msgspec.structs.replace(part, owes="death", done=done))


def tell(stop: Stop) -> tuple[Stop, tuple[CancelStep, ...]]:
    """What may be told now (rules 2 and 3)."""
    steps: list[CancelStep] = []
    for part in stop.parts:
        if part.told != "nothing":
            continue
        if part.acknowledged_ms is not None:
            steps.append(CancelStep(phase="acknowledged", role=part.role, pid=part.pid, ms=part.acknowledged_ms))
        elif part.owes == "reports":
            return stop, tuple(steps)
        stop = with_part(stop, msgspec.structs.replace(part, told="acknowledged"))
    for part in stop.parts:
        if part.told == "done":
            continue
        if part.done is None:
            break
        steps.append(
            CancelStep(
                phase="done",
                role=part.role,
                pid=part.pid,
                ms=part.done.ms,
                rung=part.done.rung,
                killed=part.done.killed,
                survivors=part.done.survivors,
            )
        )
        stop = with_part(stop, msgspec.structs.replace(part, told="done"))
    return stop, tuple(steps)


def is_over(stop: Stop) -> bool:
    """Rule 4."""
    return all(part.done is not None for part in stop.parts)


def receipt(stop: Stop, now: float) -> CancelReceipt:
    """How the stop went; for a stop that is over."""
    dones = tuple((part, part.done) for part in stop.parts if part.done is not None)
    stream = next((part.acknowledged_ms or done.ms for part, done in dones if part.role == "llm"), None)
    tools = next((done.ms for part, done in dones if part.role == "tool"), None)
    hardest: Rung = "ack"
    for _, done in dones:
        if RUNG_ORDER.index(done.rung) > RUNG_ORDER.index(hardest):
            hardest = done.rung
    return CancelReceipt(
        stream_ms=stream if stop.stream_open else None,
        tools_ms=tools if stop.tools_open else None,
        total_ms=since_ms(stop, now),
        rung=hardest,
        killed=sum(done.killed for _, done in dones),
        survivors=sum(done.survivors for _, done in dones),
    )
