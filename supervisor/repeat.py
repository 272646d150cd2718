"""Whether a model goes in circles: the detector of the same call made again and again (H1, H2, H8). Pure.

Rules
1. Two calls are the same when tool and raw argument text are, ends stripped. Only consecutive calls count.
2. The third in a row is not run, nor any identical one after it: the results stand above.
3. If the two results before it differ, the model is polling: it may, POLLS in a row.
4. A call that starts SLOW_S or more after the one before ended does not count; after SLOW_CALLS of them the model
   is told once.
5. The ladder is the detector's own and climbs over a run: told; told, and turns deducted; ended. Nobody is asked on
   the way, with a terminal or without. A prompt begins a new window and a new ladder.
"""

from hashlib import sha256
from typing import Literal

import msgspec

from haltline.protocol.messages import Outcome

STREAK = 3
"""Identical consecutive calls of which the last is refused (H1)."""
POLLS = 10
"""Identical consecutive calls that may run while their results change (H2)."""
SLOW_S = 60.0
"""Pause after which a repeated call is waiting, not looping (H2, R54)."""
SLOW_CALLS = 10
DEDUCTED_TURNS = 5
"""Taken from the run's allowance at the second step of a ladder (H8)."""

LadderStep = Literal["feedback", "deduct", "stop"]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of the last calls of a run."""

    fingerprint: str | None = None
    """Of the last call, None before the first."""
    streak: int = 0
    """Identical calls in a row that count, the last included, run or not."""
    open: int = 0
    """Those of them that were let through and have not ended."""
    results: tuple[str, ...] = ()
    """Digests of the last two results of the streak."""
    ended_at: float | None = None
    slow: int = 0
    """Calls of this streak that came after a pause (rule 4)."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    window: Window
    refused: bool
    slow: bool = False
    """True once: the model is to be told that it waits by calling (rule 4)."""


def fingerprint(name: str, arguments_raw: str) -> str:
    """Rule 1. One different space is a different call."""
    return _digest(f"{name}\0{arguments_raw.strip()}")


def seen(window: Window, name: str, arguments_raw: str, now: float) -> Verdict:
    """The window with one more call, and whether that call is refused."""
    mark = fingerprint(name, arguments_raw)
    if mark != window.fingerprint:
        return Verdict(window=Window(fingerprint=mark, streak=1, open=1), refused=False)
    if window.open == 0 and window.ended_at is not None and now - window.ended_at >= SLOW_S:
        slow = window.slow + 1
        waiting = msgspec.structs.replace(window, slow=slow, open=1)
        return Verdict(window=waiting, refused=False, slow=slow == SLOW_CALLS)
    streak = window.streak + 1
    if streak >= STREAK and not (streak <= POLLS and is_polling(window)):
        return Verdict(window=msgspec.structs.replace(window, streak=streak), refused=True)
    return Verdict(window=msgspec.structs.replace(window, streak=streak, open=window.open + 1), refused=False)


def is_polling(window: Window) -> bool:
    """Rule 3: all earlier calls of the streak have ended, and the last two results differ."""
    return window.open == 0 and len(window.results) == 2 and window.results[0] != window.results[1]


def ended(window: Window, name: str, arguments_raw: str, outcome: Outcome, now: float) -> Window:
    """The window after a call that it had let through ended, in whatever way."""
    if window.fingerprint != fingerprint(name, arguments_raw):
        return window
    results = (*window.results, _digest(f"{outcome.status}\0{outcome.exit_code}\0{outcome.text}"))
    return msgspec.structs.replace(window, open=max(0, window.open - 1), results=results[-2:], ended_at=now)


def moved(window: Window, gap_s: float) -> Window:
    """Time in which the supervisor did not run is no pause of the model's."""
    if window.ended_at is None:
        return window
    return msgspec.structs.replace(window, ended_at=window.ended_at + gap_s)


def ladder(trips: int) -> LadderStep:
    """What the `trips`-th trip (from 1) of a detector in a run leads to (rule 5)."""
    if trips <= 1:
        return "feedback"
    return "deduct" if trips == 2 else "stop"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
