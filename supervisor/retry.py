"""When the next attempt of a turn may be sent, or why none will be (requirements C3 to C6). Pure.

1. The session asks only for failures whose handling is `retry`; this module counts and times.
2. wait = max(what the server asked for, the policy's own delay): never earlier than the server said.
3. A wait that the policy or the run cannot afford is surfaced at once, never shortened.
"""

import math

import msgspec

from haltline.protocol.settings import RetryPolicy
from haltline.supervisor.failure_words import clock_time
from haltline.supervisor.failures import Failure

MAX_DOUBLINGS = 64
"""Beyond this the cap has long been reached; keeps the power within a float."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Send attempt number `attempt` (of `of` in all) after `ms` milliseconds."""

    ms: int
    attempt: int
    of: int


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """No further attempt; `words` says why, to be put after the failure's message."""

    words: str


def delay(policy: RetryPolicy, n: int, jitter: float) -> float:
    """Milliseconds before retry number `n` (from 1) when the server asked for nothing; `jitter` in [0, 1).

    equal: uniform in [window/2, window] with window = min(cap, base * factor^(n-1)).
    added: base * factor^(n-1), plus up to `jitter_share` of it, at most cap.
    """
    grown = policy.base_ms * policy.factor ** min(max(n, 1) - 1, MAX_DOUBLINGS)
    window = min(policy.cap_ms, grown)
    match policy.jitter:
        case "equal":
            return window / 2 + jitter * window / 2
        case "added":
            return min(policy.cap_ms, window * (1 + jitter * policy.jitter_share))


def plan(
    policy: RetryPolicy,
    *,
    retries_done: int,
    run_retries: int,
    failure: Failure,
    jitter: float,
    seconds_left: float | None,
) -> Wait | Surface:
    """The next step after a failure whose handling is `retry`.

    `retries_done`: retries of this turn so far; `run_retries`: of all turns of this run together.
    `seconds_left`: active time left of the run and session, None without a limit.
    """
    attempts = min(policy.attempts, policy.local_attempts) if failure.local else policy.attempts
    if retries_done + 1 >= attempts:
        return Surface(words=f"gave up after {_attempts(retries_done + 1)}")
    if run_retries >= policy.run_retries:
        return Surface(words=f"gave up: {run_retries} retries in this run, the most allowed")
    asked_ms = failure.retry_after_ms or 0
    ms = math.ceil(max(float(asked_ms), delay(policy, retries_done + 1, jitter)))
    if ms > policy.longest_wait_ms:
        return Surface(
            words=f"the server asks to wait {duration(ms)}, longer than the {duration(policy.longest_wait_ms)} "
            f"allowed; it may work {_moment(failure, ms)}"
        )
    if seconds_left is not None and ms > seconds_left * 1000:
        return Surface(
            words=f"the next attempt would be in {duration(ms)}, the run has {duration(max(0.0, seconds_left * 1000))} "
            f"left; it may work {_moment(failure, ms)}"
        )
    return Wait(ms=ms, attempt=retries_done + 2, of=attempts)


def duration(ms: float) -> str:
    """`800 ms`, `12 s`, `3 min 5 s`, `2 h 30 min`, `3 d 5 h`."""
    if ms < 1000:
        return f"{math.ceil(ms)} ms"
    seconds = math.ceil(ms / 1000)
    for size, unit, rest_size, rest_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return f"{whole} {unit}" + (f" {rest // rest_size} {rest_unit}" if rest >= rest_size else "")
    return f"{seconds} s"


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"


def _moment(failure: Failure, ms: int) -> str:
    if failure.retry_at_s is None:
        return f"in {duration(ms)}"
    return f"in {duration(ms)}, {clock_time(failure.retry_at_s)}"
