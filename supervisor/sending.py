"""One request to the model: when it may be sent, and what is heard while it streams (A2, C1, D4, I). Pure.

Rules
1. Limits are looked at before a request and nothing changes before they were (I5).
2. One attempt at a time. What belongs to another session, run, turn, attempt or generation is stale and is
   dropped without a word.
3. A retry is the same turn, and so is what is sent after a compaction; a continuation, a nudge, and an answer to fed
   back words are the next.
"""

import msgspec

from haltline.protocol import events
from haltline.protocol.messages import AttemptEnded, AttemptFailed, AttemptProgress, Delta, Heartbeat
from haltline.supervisor import arguments, budget, compaction, ends, requests, window
from haltline.supervisor.effects import Show
from haltline.supervisor.state import Attempt, Draft, SessionState, extended

STALLED_AGAIN_MS = 5_000
"""Further silence after which a stalled model is told of again."""


def go_on(d: Draft) -> None:
    """Phase starting: a request is due. Sent once the LLM worker is ready."""
    state = d.state
    if state.llm.gave_up is not None:
        ends.fail_of_worker(d, state.llm.gave_up)
        return
    if state.llm.state != "ready":
        return
    settings = state.settings
    new_turn = not state.run.retry_turn
    tripped = budget.tripped(state.ledger, settings.run_limits, settings.session_limits, d.now, new_turn=new_turn)
    if tripped is not None:
        ends.trip(d, tripped)
        return
    if new_turn:
        state.turn += 1
        state.ledger = budget.turn_begun(state.ledger)
        state.run = msgspec.structs.replace(state.run, turn_attempts=0, turn_retries=0, turn_compactions=0)
        compaction.before_request(d)
        if state.phase != "starting":
            return
    warn(d)
    state.run = msgspec.structs.replace(state.run, turn_attempts=state.run.turn_attempts + 1, retry_turn=False)
    state.phase = "streaming"
    requests.send(
        d,
        purpose="turn",
        system=window.system_of(state),
        items=state.history,
        tools=arguments.OFFERED,
        max_output_tokens=state.run.max_output_tokens or settings.max_output_tokens,
    )


def warn(d: Draft) -> None:
    """Limits that have come to their warning share, once each."""
    settings = d.state.settings
    d.state.ledger, due = budget.warnings(d.state.ledger, settings.run_limits, settings.session_limits, d.now)
    for row in due:
        d.show(events.Budget(which=row.which, used=row.used, allowed=row.allowed, level="warning"))


def is_current(state: SessionState, message: Delta | AttemptProgress | AttemptEnded | AttemptFailed) -> bool:
    """Rule 2."""
    return (
        state.phase in ("streaming", "compacting")
        and state.attempt is not None
        and message.attempt == state.attempt.number
        and message.generation == state.generation
        and message.run == state.run_number
        and message.turn == state.turn
        and message.session_id == state.session_id
    )


def delta(state: SessionState, message: Delta) -> Show | None:
    """Takes one piece of text into a copied state; None: stale, or a summary's, which is not shown. The one path that
    runs thousands of times a second: it touches nothing but the open attempt."""
    attempt = state.attempt
    if attempt is None or not is_current(state, message):
        return None
    if attempt.purpose == "summary":
        text = attempt.text if message.reasoning else extended(attempt.text, message.text)
        state.attempt = msgspec.structs.replace(attempt, phase="body", text=text)
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
