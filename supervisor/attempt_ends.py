"""How an attempt ends: good, failed, overdue, or lost with its worker (D, D6, F8, L2, L6). Pure.

Rules
1. However it ends, it is charged, its text is told whole, and its text is kept; but for that of a summary, which is
   the harness's own (compaction.py).
2. A response that did not end well runs no call (D3); what is done about it is in ways_back.py.
"""

from haltline.protocol.conversation import Usage
from haltline.protocol.kinds import Phase
from haltline.protocol.messages import AttemptEnded, AttemptFailed, CallDraft
from haltline.supervisor import (
    compaction,
    deadlines,
    ends,
    failures,
    feedback,
    history,
    response_calls,
    ways_back,
    window,
)
from haltline.supervisor.failure_lines import show_error
from haltline.supervisor.sending import is_current
from haltline.supervisor.state import Attempt, Draft


def ended(d: Draft, message: AttemptEnded) -> None:
    """A positive end signal came."""
    attempt = d.state.attempt
    if attempt is None or not is_current(d.state, message):
        return
    if attempt.purpose == "summary":
        text = _close_attempt(d, attempt, message.usage, message.calls, phase="body", final=True, partial=False)
        compaction.ended(d, message, text)
        return
    failure = failures.of_finish(
        message.finish,
        has_text=bool(attempt.text.text.strip()),
        has_calls=bool(response_calls.distinct(message.calls)),
        refusal=message.refusal,
        emitted=attempt.emitted,
    )
    partial = failure is not None
    text = _close_attempt(d, attempt, message.usage, message.calls, phase="body", final=True, partial=partial)
    read = window.silently_cut(d, attempt, message.usage)
    if read is None:
        window.fitted(d, attempt)
    elif failure is None:
        show_error(d, failures.silently_cut(read, attempt.request_tokens, attempt.emitted), "compact")
    if failure is not None:
        ways_back.take(d, failure, text, message.calls, message.reasoning)
        return
    calls = response_calls.take_calls(d, message.calls)
    d.state.message = history.message_of(text, calls=tuple(call.call for call in calls), reasoning=message.reasoning)
    d.state.calls = calls
    if not calls:
        ends.complete(d)
        return
    for call in calls:
        d.show(response_calls.tool_use(call.call))
    for call, draft in zip(calls, response_calls.distinct(message.calls), strict=True):
        if not draft.complete:
            ends.close_call(d, call, ends.nothing_changed("refused_incomplete", feedback.incomplete()))
    d.state.phase = "deciding"


def failed(d: Draft, message: AttemptFailed) -> None:
    attempt = d.state.attempt
    if attempt is None or not is_current(d.state, message):
        return
    _fail(d, attempt, message)


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
        usage=usage,
    )
    _fail(d, attempt, facts)


def lost(d: Draft, words: str) -> None:
    """The LLM worker died with the attempt open, in these words (L2)."""
    attempt = d.state.attempt
    if attempt is None:
        return
    failure = failures.worker_lost(attempt.phase, attempt.emitted, words, base_url=d.state.settings.base_url)
    text = _close_attempt(d, attempt, None, (), phase=failure.phase, final=False, partial=True)
    if attempt.purpose == "summary":
        compaction.lost(d, failure)
    else:
        ways_back.with_a_new_worker(d, failure, text)


def _fail(d: Draft, attempt: Attempt, facts: AttemptFailed) -> None:
    failure = failures.normalise(
        facts,
        emitted=attempt.emitted,
        phase=facts.phase,
        wall_s=d.wall_s,
        base_url=d.state.settings.base_url,
        api=d.state.settings.api,
        over_window=attempt.purpose == "turn" and window.is_over(d.state),
    )
    text = _close_attempt(d, attempt, facts.usage, facts.calls, phase=facts.phase, final=False, partial=True)
    if attempt.purpose == "summary":
        compaction.failed(d, failure)
    else:
        ways_back.take(d, failure, text, facts.calls, ())


def _close_attempt(
    d: Draft,
    attempt: Attempt,
    usage: Usage | None,
    calls: tuple[CallDraft, ...],
    *,
    phase: Phase,
    final: bool,
    partial: bool,
) -> str:
    """Rule 1. `final`: it ended by itself. Returns the text."""
    state = d.state
    ends.charge(d, attempt, usage, phase=phase, final=final, drafts=calls)
    ends.show_wholes(d, partial=partial)
    state.attempt = None
    state.deadlines = deadlines.without(
        state.deadlines, deadlines.name_of("work", "llm"), deadlines.name_of("hang", "llm")
    )
    if attempt.purpose == "turn":
        window.counted(d, attempt, usage)
    return attempt.text.text
