"""When the next attempt may be sent (C3 to C6, I4)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.attempts import failed

from haltline.protocol.settings import INTERACTIVE, PATIENT, RetryPolicy
from haltline.supervisor.failures import Failure, normalise
from haltline.supervisor.retry import Surface, Wait, delay, duration, plan

NOW_S = 1_764_500_000.0
"""2025-11-30 10:53:20 UTC."""


def failure(**headers: str) -> Failure:
    """A 429 with these headers, `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return normalise(failed(status=429, headers=named, body="{}"), emitted=0, phase="headers", wall_s=NOW_S)


def next_step(
    policy: RetryPolicy = INTERACTIVE,
    *,
    retries_done: int = 0,
    run_retries: int = 0,
    what: Failure | None = None,
    jitter: float = 0.5,
    seconds_left: float | None = None,
) -> Wait | Surface:
    return plan(
        policy,
        retries_done=retries_done,
        run_retries=run_retries,
        failure=what if what is not None else failure(),
        jitter=jitter,
        seconds_left=seconds_left,
    )


def test_interactive_delays_are_the_middle_of_doubling_windows() -> None:
    """C4."""
    assert [delay(INTERACTIVE, n, 0.5) for n in (1, 2, 3)] == [300, 600, 1200]
    assert (delay(INTERACTIVE, 2, 0.0), delay(INTERACTIVE, 2, 1.0)) == (400, 800)
    assert [delay(INTERACTIVE, n, 1.0) for n in (5, 6, 50, 100_000)] == [6400, 8000, 8000, 8000]


def test_patient_delays_double_with_a_quarter_of_jitter_at_most() -> None:
    """C5."""
    assert [delay(PATIENT, n, 0.0) for n in (1, 2, 3, 4, 5)] == [2000, 4000, 8000, 16_000, 30_000]
    assert (delay(PATIENT, 1, 0.5), delay(PATIENT, 4, 1.0)) == (2250, 20_000)
    assert [delay(PATIENT, n, 1.0) for n in (5, 100_000)] == [30_000, 30_000]


@given(st.sampled_from([INTERACTIVE, PATIENT]), st.integers(min_value=-3, max_value=10**9), st.floats(0, 1))
def test_a_delay_is_positive_and_never_above_the_cap(policy: RetryPolicy, n: int, jitter: float) -> None:
    assert 0 < delay(policy, n, jitter) <= policy.cap_ms


@pytest.mark.parametrize(("policy", "attempts"), [(INTERACTIVE, 3), (PATIENT, 6)])
def test_a_policy_allows_its_attempts_and_no_more(policy: RetryPolicy, attempts: int) -> None:
    """C4, C5."""
    steps = [next_step(policy, retries_done=done) for done in range(attempts)]
    waits = [step for step in steps if isinstance(step, Wait)]
    assert [(wait.attempt, wait.of) for wait in waits] == [(n, attempts) for n in range(2, attempts + 1)]
    assert steps[-1] == Surface(words=f"gave up after {attempts} attempts")


@pytest.mark.parametrize(
    "exception",
    [
        "ConnectError: [Errno -2] Name or service not known",
        "ConnectError: All attempts failed <- ConnectionRefusedError: [Errno 111] Connect call failed ('::1', 1)",
    ],
)
def test_a_server_that_is_not_there_is_tried_three_times_in_any_policy(exception: str) -> None:
    """C5."""
    attempt = failed(phase="connect", exception=exception)
    refused = normalise(attempt, emitted=0, phase="connect", wall_s=NOW_S)
    assert next_step(PATIENT, retries_done=1, what=refused, jitter=0.0) == Wait(ms=4000, attempt=3, of=3)
    assert next_step(PATIENT, retries_done=2, what=refused) == Surface(words="gave up after 3 attempts")


def test_a_run_has_its_own_count_of_retries() -> None:
    """I4: 20 in a run, whatever each turn has left."""
    assert isinstance(next_step(run_retries=19), Wait)
    assert next_step(run_retries=20) == Surface(words="gave up: 20 retries in this run, the most allowed")


@pytest.mark.parametrize(
    ("headers", "ms"),
    [
        ({"retry_after": "3"}, 3000),
        ({"retry_after": "2.5"}, 2500),
        ({"retry_after": "0.1"}, 300),
        ({"retry_after": "2.3"}, 2300),
        ({"retry_after": "1e-10"}, 300),
        ({"retry_after_ms": "2500", "retry_after": "9"}, 2500),
        ({"retry_after_ms": "oops", "retry_after": "9"}, 9000),
        ({"retry_after": "Sun, 30 Nov 2025 10:53:47 GMT"}, 27_000),
        ({"retry_after": "Sunday, 30-Nov-25 10:53:47 GMT"}, 27_000),
        ({"retry_after": "120"}, 120_000),
    ],
)
def test_no_attempt_is_earlier_than_the_server_asked_or_the_policy_says(headers: dict[str, str], ms: int) -> None:
    """C3, R16, R17, R19."""
    assert next_step(what=failure(**headers)) == Wait(ms=ms, attempt=2, of=3)


@pytest.mark.parametrize(
    "value",
    [
        *("0", "-5", "nan", "inf", "-inf", "1e400", "", " ", "soon", "1_0", "0x10", "10 s; 5", "\x00", "\uff19"),
        *("1" * 400, "99999999999", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 99 Foo 2099 99:99:99 GMT"),
    ],
)
def test_a_wait_that_makes_no_sense_counts_as_absent(value: str) -> None:
    """C3, R19, R96."""
    assert failure(retry_after=value).retry_after_ms is None
    assert next_step(what=failure(retry_after=value)) == Wait(ms=300, attempt=2, of=3)


@pytest.mark.parametrize(
    ("body", "ms"),
    [
        ("Please try again in 6.224s.", 6224),
        ("Rate limit reached. Try again in 28ms", 28),
        ("Please try again in 8m38.4s.", 518_400),
        ("Please retry after 12 seconds.", 12_000),
        ("wait 1 minute and 30 seconds", 90_000),
        ("Please wait before trying again.", None),
        ('{"error":{"message":"retry in 36.1s","details":[{"retryDelay":"36s"}]}}', 36_000),
        ('{"error":{"message":"x","retry_after":7}}', 7000),
        ('{"error":{"message":"x","retry_after_ms":7}}', 7),
        ('{"error":{"message":"x","resets_in_seconds":"90"}}', 90_000),
        ('{"error":{"message":"x","reset_at":1764500060}}', 60_000),
        ('{"error":{"message":"x","reset_at":"2025-11-30T10:54:20Z"}}', 60_000),
        ('{"error":{"message":"x","reset_at":1764499999}}', None),
        ("retry_delay {\n  seconds: 7\n}", 7000),
    ],
)
def test_the_body_is_asked_where_the_headers_say_nothing(body: str, ms: int | None) -> None:
    """C3."""
    said = normalise(failed(status=429, body=body), emitted=0, phase="headers", wall_s=NOW_S)
    assert said.retry_after_ms == ms
    both = normalise(
        failed(status=429, body=body, headers={"retry-after": "1"}), emitted=0, phase="headers", wall_s=NOW_S
    )
    assert both.retry_after_ms == 1000


def test_a_wait_beyond_the_longest_is_surfaced_with_its_time() -> None:
    """C6, R17, R18."""
    assert next_step(what=failure(retry_after="10800")) == Surface(
        words="the server asks to wait 3 h, longer than the 2 min allowed; it may work in 3 h, at 2025-11-30 13:53 UTC"
    )
    assert isinstance(next_step(what=failure(retry_after="120.001")), Surface)
    far = next_step(what=failure(retry_after="Wed, 21 Oct 2099 07:28:00 GMT"))
    assert isinstance(far, Surface)
    assert far.words.endswith("at 2099-10-21 07:28 UTC")


def test_a_wait_beyond_the_time_that_is_left_is_surfaced_at_once() -> None:
    """C6."""
    assert next_step(seconds_left=0.31) == Wait(ms=300, attempt=2, of=3)
    assert next_step(what=failure(retry_after="30"), seconds_left=12.0) == Surface(
        words="the next attempt would be in 30 s, the run has 12 s left; it may work in 30 s, at 2025-11-30 10:53 UTC"
    )
    assert isinstance(next_step(seconds_left=0.0), Surface)


def test_the_numbers_of_a_policy_are_its_own() -> None:
    """C5: base, factor, jitter, cap and attempts are configuration."""
    mine = msgspec.structs.replace(PATIENT, base_ms=100.0, factor=3.0, cap_ms=500.0, jitter_share=0.1, attempts=2)
    assert [delay(mine, n, 1.0) for n in (1, 2, 3)] == pytest.approx([110, 330, 500])
    assert next_step(mine, jitter=0.0) == Wait(ms=100, attempt=2, of=2)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (28, "28 ms"),
        (1_000, "1 s"),
        (59_000, "59 s"),
        (59_001, "1 min"),
        (60_000, "1 min"),
        (185_000, "3 min 5 s"),
        (9_000_000, "2 h 30 min"),
        (277_403_000, "3 d 5 h"),
    ],
)
def test_a_duration_is_said_in_two_units_at_most(ms: float, words: str) -> None:
    assert duration(ms) == words
