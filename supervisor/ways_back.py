"""What is done about a response that did not end well: each way back, its counter, its cap (A2, C, D8, E, I4). Pure.

Rules
1. A failure has one handling; where the way back that it names is used up, it surfaces.
2. Every way back has its own counter and cap, and two never share one.
3. Whatever the way, the error is told first, with the handling that is really taken.
"""

from typing import assert_never

import msgspec

from haltline.protocol import events
from haltline.protocol.conversation import Reasoning
from haltline.protocol.kinds import Handling
from haltline.protocol.messages import CallDraft
from haltline.supervisor import (
    budget,
    compaction,
    deadlines,
    ends,
    failures,
    feedback,
    history,
    response_calls,
    retry,
    seats,
)
from haltline.supervisor.budget import Trip
from haltline.supervisor.failure_lines import show_error, show_retry
from haltline.supervisor.failures import Failure
from haltline.supervisor.state import Draft

CONTINUATIONS = 3
"""In a run (E4)."""
NUDGES = 1
"""In a run (D8)."""
INVALID_ROW = 4
"""Invalid calls in a row that end the run (I4)."""


def take(
    d: Draft, failure: Failure, text: str, drafts: tuple[CallDraft, ...], reasoning: tuple[Reasoning, ...]
) -> None:
    """Rule 1. The attempt is closed; `text`, `drafts` and `reasoning` are what had come of it."""
    handling = _handling(failure)
    match handling:
        case "retry" if failure.subkind == "empty":
            _nudge(d, failure, text)
        case "retry":
            _retry(d, failure, text)
        case "continue":
            _continue(d, failure, text, drafts, reasoning)
        case "feedback":
            _feed_back(d, failure, text)
        case "compact":
            why_not = compaction.overflowed(d, failure)
            if why_not is not None:
                _surface(d, failure, text, why_not)
        case "surface":
            _surface(d, failure, text)
        case _:
            assert_never(handling)


def with_a_new_worker(d: Draft, failure: Failure, text: str) -> None:
    """The LLM worker was lost. A new worker, not another moment, is what is waited for: the wait is that for the seat,
    the counter worker_restart, the cap the restart intensity (L2)."""
    if _handling(failure) != "retry":
        _surface(d, failure, text)
        return
    if not seats.may_restart(d):
        show_error(d, failure, "surface")
        ends.fail_of_worker(d, f"{failure.message}; it was replaced {seats.RESTARTS} times already")
        return
    show_error(d, failure, "retry")
    tried = d.state.run.turn_attempts
    left = seats.RESTARTS - len(seats.recent_restarts(d))
    show_retry(d, failure, attempt=tried + 1, of=tried + left, wait_ms=0)
    _same_turn_again(d)
    d.state.phase = "starting"


def count_invalid(d: Draft) -> Trip | None:
    """One more invalid call; the limit where it is the last of the row (I4)."""
    run = d.state.run
    counters = msgspec.structs.replace(run.counters, invalid_call=run.counters.invalid_call + 1)
    d.state.run = msgspec.structs.replace(run, counters=counters, invalid_row=run.invalid_row + 1)
    if d.state.run.invalid_row < INVALID_ROW:
        return None
    return Trip(scope="run", which="invalid_calls", allowed=INVALID_ROW, used=d.state.run.invalid_row)


def _surface(d: Draft, failure: Failure, text: str, more: str = "") -> None:
    show_error(d, failure, "surface", more)
    d.state.message = history.message_of(text, partial=True)
    ends.fail(d, failure, more)


def _retry(d: Draft, failure: Failure, text: str) -> None:
    state = d.state
    settings = state.settings
    plan = retry.plan(
        settings.retry,
        retries_done=state.run.turn_retries,
        run_retries=state.run.counters.transport_retry,
        failure=failure,
        jitter=d.jitter,
        seconds_left=budget.seconds_left(state.ledger, settings.run_limits, settings.session_limits, d.now),
    )
    match plan:
        case retry.Surface(words=words):
            _surface(d, failure, text, words)
        case retry.Wait(ms=ms, attempt=attempt, of=of):
            show_error(d, failure, "retry")
            counters = state.run.counters
            d.count(msgspec.structs.replace(counters, transport_retry=counters.transport_retry + 1))
            state.run = msgspec.structs.replace(state.run, turn_retries=state.run.turn_retries + 1)
            show_retry(d, failure, attempt=attempt, of=of, wait_ms=ms)
            _same_turn_again(d)
            state.deadlines = deadlines.with_deadline(state.deadlines, "retry", d.now + ms / 1000)
            state.phase = "waiting_retry"
        case _:
            assert_never(plan)


def _nudge(d: Draft, failure: Failure, text: str) -> None:
    counters = d.state.run.counters
    if counters.empty_response >= NUDGES:
        _surface(d, failure, text)
        return
    show_error(d, failure, "retry")
    d.count(msgspec.structs.replace(counters, empty_response=counters.empty_response + 1))
    d.state.notes = (feedback.nudge(),)
    _next_turn(d)


def _continue(
    d: Draft, failure: Failure, text: str, drafts: tuple[CallDraft, ...], reasoning: tuple[Reasoning, ...]
) -> None:
    """The response was cut by the output limit (E4)."""
    counters = d.state.run.counters
    used_up = counters.continuation >= CONTINUATIONS
    show_error(d, failure, "surface" if used_up else "continue")
    calls = response_calls.take_calls(d, drafts)
    d.state.message = history.message_of(
        text, calls=tuple(call.call for call in calls), reasoning=reasoning, partial=True
    )
    d.state.calls = calls
    for call in calls:
        d.show(response_calls.tool_use(call.call))
        ends.close_call(d, call, ends.nothing_changed("refused_incomplete", feedback.incomplete()))
    if used_up:
        ends.fail(d, failure, f"it was continued {CONTINUATIONS} times already")
        return
    d.count(msgspec.structs.replace(counters, continuation=counters.continuation + 1))
    d.show(events.Continuation(count=counters.continuation + 1, of=CONTINUATIONS))
    d.state.notes = (feedback.go_on(),)
    _next_turn(d)


def _feed_back(d: Draft, failure: Failure, text: str) -> None:
    """The provider refused what its own model wrote (A3)."""
    show_error(d, failure, "feedback")
    d.state.message = history.message_of(text, partial=True)
    d.state.notes = (feedback.invalid_generation(failure.message),)
    row = count_invalid(d)
    if row is not None:
        ends.trip(d, row)
        return
    _next_turn(d)


def _handling(failure: Failure) -> Handling:
    return failures.handling(
        failure.kind, failure.subkind, failure.again, failure.phase, failure.emitted, asking="turn"
    )


def _next_turn(d: Draft) -> None:
    ends.commit_turn(d)
    d.state.phase = "starting"


def _same_turn_again(d: Draft) -> None:
    d.state.run = msgspec.structs.replace(d.state.run, retry_turn=True)
