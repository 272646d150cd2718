"""One request to the model after another: sent, streamed, ended, failed, sent again (A2, C1, C9, D, E4, I). Pure.

Rules
1. Limits are looked at before a request and nothing changes before they were (I5).
2. One attempt at a time. What belongs to another session, run, turn, attempt or generation is stale and is
   dropped without a word.
3. However an attempt ends, it is charged, its text is told whole, and its text is kept (D6, F8).
4. A response that did not end well runs no call (D3). A failure has one handling; where the way back that it names
   is used up, it surfaces.
5. A retry is the same turn; a continuation, a nudge, and an answer to fed back words are the next.
"""

from typing import assert_never

import msgspec

from haltline.protocol import events, times
from haltline.protocol.conversation import Reasoning, ToolCall, Usage
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import Handling, Phase
from haltline.protocol.messages import (
    AttemptEnded,
    AttemptFailed,
    AttemptProgress,
    CallDraft,
    Delta,
    Heartbeat,
    StartAttempt,
)
from haltline.supervisor import arguments, budget, deadlines, ends, estimate, failures, feedback, history, retry, seats
from haltline.supervisor.budget import Trip
from haltline.supervisor.effects import SendAttempt, Show
from haltline.supervisor.failures import Failure
from haltline.supervisor.state import Attempt, Call, Draft, SessionState, extended

CONTINUATIONS = 3
"""In a run (E4)."""
NUDGES = 1
"""In a run (D8)."""
INVALID_ROW = 4
"""Invalid calls in a row that end the run (I4)."""
STALLED_AGAIN_MS = 5_000
"""Further silence after which a stalled model is told of again."""


# Sending


def go_on(d: Draft) -> None:
    """Phase starting: a request is due. Sent once the LLM worker is ready."""
    state = d.state
    if state.llm.gave_up is not None:
        ends.fail_of_worker(d, state.llm.gave_up)
        return
    if state.llm.state != "ready":
        return
    settings = state.settings
    system = settings.system_prompt or feedback.system_prompt(settings.cwd)
    new_turn = not state.run.retry_turn
    tripped = budget.tripped(state.ledger, settings.run_limits, settings.session_limits, d.now, new_turn=new_turn)
    if tripped is not None:
        ends.trip(d, tripped)
        return
    items = history.request_items(state.history)
    if new_turn:
        state.turn += 1
        state.ledger = budget.turn_begun(state.ledger)
        state.run = msgspec.structs.replace(state.run, turn_attempts=0, turn_retries=0)
    warn(d)
    state.attempt_number += 1
    state.run = msgspec.structs.replace(
        state.run,
        attempts=state.run.attempts + 1,
        turn_attempts=state.run.turn_attempts + 1,
        retry_turn=False,
    )
    state.attempt = Attempt(
        number=state.attempt_number,
        request_tokens=estimate.request_tokens(system, items, arguments.OFFERED),
    )
    state.phase = "streaming"
    hang = deadlines.name_of("hang", "llm")
    state.deadlines = deadlines.with_deadline(state.deadlines, hang, d.now + times.SILENCE_S)
    whole_s = deadlines.attempt_s(settings.stream)
    if whole_s is not None:
        work = deadlines.name_of("work", "llm")
        state.deadlines = deadlines.with_deadline(state.deadlines, work, d.now + whole_s)
    d.do(
        SendAttempt(
            message=StartAttempt(
                session_id=state.session_id,
                run=state.run_number,
                turn=state.turn,
                generation=state.generation,
                attempt=state.attempt_number,
                api=settings.api,
                base_url=settings.base_url,
                model=settings.model,
                system=system,
                items=items,
                tools=arguments.OFFERED,
                max_output_tokens=settings.max_output_tokens,
                limits=settings.stream,
            )
        )
    )


def warn(d: Draft) -> None:
    """Limits that have come to their warning share, once each."""
    settings = d.state.settings
    d.state.ledger, due = budget.warnings(d.state.ledger, settings.run_limits, settings.session_limits, d.now)
    for row in due:
        d.show(events.Budget(which=row.which, used=row.used, allowed=row.allowed, level="warning"))


# While it streams


def is_current(state: SessionState, message: Delta | AttemptProgress | AttemptEnded | AttemptFailed) -> bool:
    """Rule 2."""
    return (
        state.phase == "streaming"
        and state.attempt is not None
        and message.attempt == state.attempt.number
        and message.generation == state.generation
        and message.run == state.run_number
        and message.turn == state.turn
        and message.session_id == state.session_id
    )


def delta(state: SessionState, message: Delta) -> Show | None:
    """Takes one piece of text into a copied state; None: stale. The one path that runs thousands of times a second:
    it touches nothing but the open attempt."""
    attempt = state.attempt
    if attempt is None or not is_current(state, message):
        return None
    if message.reasoning:
        event: events.Message | events.Reasoning = events.Reasoning(text=message.text, delta=True)
        text, reasoning = attempt.text, extended(attempt.reasoning, message.text)
    else:
        event = events.Message(role="assistant", text=message.text, delta=True)
        text, reasoning = extended(attempt.text, message.text), attempt.reasoning
    state.attempt = Attempt(
        number=attempt.number,
        phase="body",
        text=text,
        reasoning=reasoning,
        emitted=attempt.emitted + 1,
        request_tokens=attempt.request_tokens,
    )
    return Show(event=event, run=state.run_number, turn=state.turn)


def progressed(d: Draft, message: AttemptProgress) -> None:
    if d.state.attempt is not None and is_current(d.state, message):
        d.state.attempt = msgspec.structs.replace(d.state.attempt, phase=message.phase)


def heard(d: Draft, message: Heartbeat) -> None:
    """A heartbeat of the LLM worker while an attempt is open: is the model silent (D4)?"""
    attempt = d.state.attempt
    silent_ms = message.model_silent_ms
    if attempt is None or silent_ms is None:
        return
    if silent_ms < d.state.settings.stalled_after_s * 1000:
        if attempt.stalled_ms is not None:
            d.state.attempt = msgspec.structs.replace(attempt, stalled_ms=None)
        return
    if attempt.stalled_ms is None or silent_ms >= attempt.stalled_ms + STALLED_AGAIN_MS:
        d.state.attempt = msgspec.structs.replace(attempt, stalled_ms=silent_ms)
        d.show(events.Worker(role="llm", pid=d.state.llm.pid, state="stalled", silent_ms=silent_ms))


# Its end


def ended(d: Draft, message: AttemptEnded) -> None:
    """A positive end signal came."""
    attempt = d.state.attempt
    if attempt is None or not is_current(d.state, message):
        return
    failure = failures.of_finish(
        message.finish,
        has_text=bool(attempt.text.text.strip()),
        has_calls=bool(_distinct(message.calls)),
        refusal=message.refusal,
        emitted=attempt.emitted,
    )
    text = _close_attempt(d, attempt, message.usage, message.calls, phase="body", partial=failure is not None)
    if failure is not None:
        _handle(d, failure, text, message.calls, message.reasoning)
        return
    calls = _take_calls(d, message.calls)
    d.state.message = history.message_of(text, calls=tuple(call.call for call in calls), reasoning=message.reasoning)
    d.state.calls = calls
    if not calls:
        ends.complete(d)
        return
    for call in calls:
        d.show(_tool_use(call.call))
    for call, draft in zip(calls, _distinct(message.calls), strict=True):
        if not draft.complete:
            ends.close_call(d, call, ends.nothing_changed("refused_incomplete", feedback.incomplete()))
    d.state.phase = "deciding"


def failed(d: Draft, message: AttemptFailed) -> None:
    attempt = d.state.attempt
    if attempt is None or not is_current(d.state, message):
        return
    fail(d, _normalised(d, attempt, message), message.usage, message.calls)


def _normalised(d: Draft, attempt: Attempt, facts: AttemptFailed) -> Failure:
    return failures.normalise(
        facts, emitted=attempt.emitted, phase=facts.phase, wall_s=d.wall_s, base_url=d.state.settings.base_url
    )


def fail(d: Draft, failure: Failure, usage: Usage | None, calls: tuple[CallDraft, ...] = ()) -> None:
    """The open attempt ended with this failure."""
    attempt = d.state.attempt
    if attempt is None:
        return
    text = _close_attempt(d, attempt, usage, calls, phase=failure.phase, partial=True)
    _handle(d, failure, text, calls, ())


def overdue(d: Draft, usage: Usage | None) -> None:
    """The worker did not end the attempt at its limit; asked to stop, it did (L6)."""
    attempt = d.state.attempt
    if attempt is None:
        return
    facts = AttemptFailed(
        session_id=d.state.session_id,
        run=d.state.run_number,
        turn=d.state.turn,
        generation=d.state.generation,
        attempt=attempt.number,
        phase=attempt.phase,
        timer="whole_request",
    )
    fail(d, _normalised(d, attempt, facts), usage)


def lost(d: Draft, words: str) -> None:
    """The LLM worker died with the attempt open (L2). A new worker, not another moment, is what it waits for: the
    wait is that for the seat, the counter worker_restart, the bound the restart intensity."""
    attempt = d.state.attempt
    if attempt is None:
        return
    failure = failures.worker_lost(attempt.phase, attempt.emitted, words, base_url=d.state.settings.base_url)
    text = _close_attempt(d, attempt, None, (), phase=failure.phase, partial=True)
    if _handling(failure) != "retry":
        _surface(d, failure, text)
        return
    if not seats.may_restart(d):
        _show_error(d, failure, "surface")
        ends.fail_of_worker(d, f"{failure.message}; it was replaced {seats.RESTARTS} times already")
        return
    _show_error(d, failure, "retry")
    tried = d.state.run.turn_attempts
    left = seats.RESTARTS - len(seats.recent_restarts(d))
    _show_retry(d, failure, attempt=tried + 1, of=tried + left, wait_ms=0)
    _same_turn_again(d)
    d.state.phase = "starting"


def _close_attempt(
    d: Draft, attempt: Attempt, usage: Usage | None, calls: tuple[CallDraft, ...], *, phase: Phase, partial: bool
) -> str:
    """Rule 3."""
    state = d.state
    ends.charge(d, attempt, usage, phase=phase, drafts=calls)
    text = ends.show_wholes(d, partial=partial)
    state.attempt = None
    state.deadlines = deadlines.without(
        state.deadlines, deadlines.name_of("work", "llm"), deadlines.name_of("hang", "llm")
    )
    return text


# What is done about a failure


def _handling(failure: Failure) -> Handling:
    return failures.handling(
        failure.kind, failure.subkind, failure.again, failure.phase, failure.emitted, asking="turn"
    )


def _handle(
    d: Draft, failure: Failure, text: str, drafts: tuple[CallDraft, ...], reasoning: tuple[Reasoning, ...]
) -> None:
    """Rule 4."""
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
        case "compact" | "surface":  # without compaction an overflow surfaces
            _surface(d, failure, text)
        case _:
            assert_never(handling)


def _surface(d: Draft, failure: Failure, text: str, more: str = "") -> None:
    _show_error(d, failure, "surface")
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
            _show_error(d, failure, "retry")
            counters = state.run.counters
            d.count(msgspec.structs.replace(counters, transport_retry=counters.transport_retry + 1))
            state.run = msgspec.structs.replace(state.run, turn_retries=state.run.turn_retries + 1)
            _show_retry(d, failure, attempt=attempt, of=of, wait_ms=ms)
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
    _show_error(d, failure, "retry")
    d.count(msgspec.structs.replace(counters, empty_response=counters.empty_response + 1))
    d.state.notes = (feedback.nudge(),)
    _next_turn(d)


def _continue(
    d: Draft, failure: Failure, text: str, drafts: tuple[CallDraft, ...], reasoning: tuple[Reasoning, ...]
) -> None:
    """The response was cut by the output limit (E4)."""
    counters = d.state.run.counters
    used_up = counters.continuation >= CONTINUATIONS
    _show_error(d, failure, "surface" if used_up else "continue")
    calls = _take_calls(d, drafts)
    d.state.message = history.message_of(
        text, calls=tuple(call.call for call in calls), reasoning=reasoning, partial=True
    )
    d.state.calls = calls
    for call in calls:
        d.show(_tool_use(call.call))
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
    _show_error(d, failure, "feedback")
    d.state.message = history.message_of(text, partial=True)
    d.state.notes = (feedback.invalid_generation(failure.message),)
    row = count_invalid(d)
    if row is not None:
        ends.trip(d, row)
        return
    _next_turn(d)


def count_invalid(d: Draft) -> Trip | None:
    """One more invalid call; the limit where it is the last of the row (I4)."""
    run = d.state.run
    counters = msgspec.structs.replace(run.counters, invalid_call=run.counters.invalid_call + 1)
    d.state.run = msgspec.structs.replace(run, counters=counters, invalid_row=run.invalid_row + 1)
    if d.state.run.invalid_row < INVALID_ROW:
        return None
    return Trip(scope="run", which="invalid_calls", allowed=INVALID_ROW, used=d.state.run.invalid_row)


def _next_turn(d: Draft) -> None:
    ends.commit_turn(d)
    d.state.phase = "starting"


def _same_turn_again(d: Draft) -> None:
    d.state.run = msgspec.structs.replace(d.state.run, retry_turn=True)


def _show_error(d: Draft, failure: Failure, handling: Handling) -> None:
    d.show(
        events.Error(
            kind=failure.kind,
            subkind=failure.subkind,
            phase=failure.phase,
            emitted=failure.emitted,
            provider_status=failure.provider_status,
            message=failure.message,
            retryable=failures.retryable(failure),
            handling=handling,
        )
    )


def _show_retry(d: Draft, failure: Failure, *, attempt: int, of: int, wait_ms: int) -> None:
    d.show(events.Retry(attempt=attempt, of=of, wait_ms=wait_ms, kind=failure.kind, message=failure.message))


# Calls of a response


def _take_calls(d: Draft, drafts: tuple[CallDraft, ...]) -> tuple[Call, ...]:
    """The calls of a response under ids of ours."""
    kept = _distinct(drafts)
    first = d.state.call_number + 1
    d.state.call_number += len(kept)
    d.state.run = msgspec.structs.replace(d.state.run, tool_calls=d.state.run.tool_calls + len(kept))
    return tuple(
        Call(
            call=ToolCall(
                call_id=CallId(f"c{first + index}"),
                name=draft.name or "unnamed",
                arguments_raw=draft.arguments_raw.strip(),
                parsed=isinstance(arguments.parse(draft.arguments_raw), arguments.Parsed),
            )
        )
        for index, draft in enumerate(kept)
    )


def _distinct(drafts: tuple[CallDraft, ...]) -> tuple[CallDraft, ...]:
    """Without a second copy of a call that came twice under one provider id (R43), and without pieces of a cut
    response that have no name (K5)."""
    kept: list[CallDraft] = []
    for draft in drafts:
        if not draft.complete and not draft.name:
            continue
        twice = draft.provider_id and any(
            (other.provider_id, other.name, other.arguments_raw) == (draft.provider_id, draft.name, draft.arguments_raw)
            for other in kept
        )
        if not twice:
            kept.append(draft)
    return tuple(kept)


def _tool_use(call: ToolCall) -> events.ToolUse:
    return events.ToolUse(call_id=call.call_id, name=call.name, arguments_raw=call.arguments_raw)
