"""The ledger of a session: what was used, what is allowed, what tripped (I1 to I3, I5). Pure.

Rules
1. Turns and tokens are looked at before each request, retries and continuations included; nothing changes in the
   state before they were. Active seconds are a deadline.
2. Every attempt is charged, whatever became of it (D6).
3. A run and its session have the same three limits; 0 means none. The session's count goes on over its runs.
4. Time spent waiting for a human is not active time.
"""

from typing import Literal

import msgspec

from haltline.protocol.conversation import Usage
from haltline.protocol.kinds import LimitName
from haltline.protocol.settings import Limits

WARNING_SHARE = 0.8
"""Share of a limit at which the user is warned, once per limit (interface, `budget`)."""

Scope = Literal["run", "session"]


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """One limit and how far it was used; `used` >= `allowed` where it tripped."""

    scope: Scope
    which: LimitName
    allowed: float
    used: float


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    usage: Usage = Usage()
    """Of the run."""
    session_usage: Usage = Usage()
    """Of the runs before."""
    turns: int = 0
    deducted_turns: int = 0
    """Taken from the run's allowance by a loop detector (H8)."""
    session_turns: int = 0
    active_s: float = 0.0
    """Up to `active_since`."""
    active_since: float | None = None
    """None: no run, or one that waits for a human."""
    session_active_s: float = 0.0
    warned: tuple[str, ...] = ()
    """`SCOPE:WHICH` of the warnings that were given; those of the run are forgotten with it."""


def plus(a: Usage, b: Usage) -> Usage:
    return Usage(
        input=a.input + b.input,
        cache_read=a.cache_read + b.cache_read,
        cache_write=a.cache_write + b.cache_write,
        output=a.output + b.output,
        estimated=a.estimated or b.estimated,
    )


def new_run(ledger: Ledger, now: float) -> Ledger:
    """The last run's amounts go to the session; the new run starts at nothing, active."""
    return Ledger(
        session_usage=plus(ledger.session_usage, ledger.usage),
        session_turns=ledger.session_turns + ledger.turns,
        session_active_s=ledger.session_active_s + active_seconds(ledger, now),
        active_since=now,
        warned=tuple(name for name in ledger.warned if name.startswith("session:")),
    )


def charged(ledger: Ledger, usage: Usage) -> Ledger:
    return msgspec.structs.replace(ledger, usage=plus(ledger.usage, usage))


def turn_begun(ledger: Ledger) -> Ledger:
    return msgspec.structs.replace(ledger, turns=ledger.turns + 1)


def turns_deducted(ledger: Ledger, turns: int) -> Ledger:
    return msgspec.structs.replace(ledger, deducted_turns=ledger.deducted_turns + turns)


def active_seconds(ledger: Ledger, now: float) -> float:
    """Of the run."""
    return ledger.active_s + (now - ledger.active_since if ledger.active_since is not None else 0.0)


def paused(ledger: Ledger, now: float) -> Ledger:
    """Rule 4: a human is being waited for, or the run is over."""
    return msgspec.structs.replace(ledger, active_s=active_seconds(ledger, now), active_since=None)


def resumed(ledger: Ledger, now: float) -> Ledger:
    return msgspec.structs.replace(ledger, active_since=now)


def moved(ledger: Ledger, gap_s: float) -> Ledger:
    """Time in which the supervisor did not run is not active time."""
    if ledger.active_since is None:
        return ledger
    return msgspec.structs.replace(ledger, active_since=ledger.active_since + gap_s)


def standing(ledger: Ledger, run: Limits, session: Limits, now: float) -> tuple[Trip, ...]:
    """Every limit that is set and how far it was used; the run's before the session's."""
    seconds = active_seconds(ledger, now)
    table: tuple[tuple[Scope, LimitName, float, float], ...] = (
        ("run", "turns", run.turns, ledger.turns + ledger.deducted_turns),
        ("run", "seconds", run.seconds, seconds),
        ("run", "tokens", run.tokens, ledger.usage.total),
        ("session", "turns", session.turns, ledger.session_turns + ledger.turns),
        ("session", "seconds", session.seconds, ledger.session_active_s + seconds),
        ("session", "tokens", session.tokens, ledger.session_usage.total + ledger.usage.total),
    )
    return tuple(
        Trip(scope=scope, which=which, allowed=float(allowed), used=float(used))
        for scope, which, allowed, used in table
        if allowed > 0
    )


def tripped(ledger: Ledger, run: Limits, session: Limits, now: float, *, new_turn: bool) -> Trip | None:
    """The first limit that forbids another request, or None. `new_turn` False: the request repeats one of a turn
    that was counted already."""
    rows = standing(ledger, run, session, now)
    return next((row for row in rows if row.used >= row.allowed and (new_turn or row.which != "turns")), None)


def seconds_tripped(ledger: Ledger, run: Limits, session: Limits, now: float) -> Trip | None:
    """The limit of active time that is used up, or None. Half a millisecond is forgiven: the deadline was computed
    by adding, `used` by subtracting."""
    rows = standing(ledger, run, session, now)
    return next((row for row in rows if row.which == "seconds" and row.used >= row.allowed - 0.0005), None)


def warnings(ledger: Ledger, run: Limits, session: Limits, now: float) -> tuple[Ledger, tuple[Trip, ...]]:
    """Limits at WARNING_SHARE or above that were not warned of, and the ledger that remembers them."""
    fresh = tuple(
        row
        for row in standing(ledger, run, session, now)
        if row.allowed * WARNING_SHARE - 0.0005 <= row.used < row.allowed
        and f"{row.scope}:{row.which}" not in ledger.warned
    )
    if not fresh:
        return ledger, ()
    names = tuple(f"{row.scope}:{row.which}" for row in fresh)
    return msgspec.structs.replace(ledger, warned=ledger.warned + names), fresh


def seconds_left(ledger: Ledger, run: Limits, session: Limits, now: float) -> float | None:
    """Active seconds until a limit of time trips, at least 0; None: no such limit."""
    left = [row.allowed - row.used for row in standing(ledger, run, session, now) if row.which == "seconds"]
    return max(0.0, min(left)) if left else None


def seconds_to_warning(ledger: Ledger, run: Limits, session: Limits, now: float) -> float | None:
    """Active seconds until the next warning about time, at least 0; None: none is due any more, because it was given
    or because the limit itself is used up."""
    left = [
        row.allowed * WARNING_SHARE - row.used
        for row in standing(ledger, run, session, now)
        if row.which == "seconds" and row.used < row.allowed and f"{row.scope}:{row.which}" not in ledger.warned
    ]
    return max(0.0, min(left)) if left else None
