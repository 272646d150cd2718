"""How calls, turns and runs end: each call with one result, each turn whole in the history, each run with one Result.

Rules
1. Every `tool_use` gets its one `tool_result` through close_call; a run that ends closes what is still open.
2. A turn goes into the history when all its calls are closed, or when its run ends, never in part.
3. An attempt is charged on every way out, by one rule (D6): what its provider reported; else nothing where no answer
   had begun, for nothing was accepted; else an estimate.
4. Result is the last line of a run; Finish follows it. Nothing is in flight by then.
"""

from typing import assert_never

import msgspec

from haltline.protocol import events, exits
from haltline.protocol.conversation import ToolResult, Usage
from haltline.protocol.events import LimitTripped
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import CallStatus, Detector, Phase, Reason
from haltline.protocol.messages import CallDraft, Outcome
from haltline.supervisor import budget, cancelling, deadlines, estimate, feedback, history, repeat
from haltline.supervisor.budget import Trip
from haltline.supervisor.cancelling import Stop
from haltline.supervisor.effects import Finish
from haltline.supervisor.failures import Failure, retryable
from haltline.supervisor.state import Attempt, Call, Draft, Run


def nothing_changed(status: CallStatus, text: str) -> Outcome:
    """The outcome of a call that was not run."""
    return Outcome(status=status, changed="nothing", exit_code=None, text=text, ms=0)


def unknown_outcome() -> Outcome:
    """The outcome of a call whose worker died with it."""
    return Outcome(status="outcome_unknown", changed="maybe", exit_code=None, text=feedback.outcome_unknown(), ms=0)


def succeeded(outcome: Outcome) -> bool:
    """`ok` of the event: done with exit code 0; tools without a process have none to fail with."""
    return outcome.status == "done" and outcome.exit_code in (0, None)


def set_call(d: Draft, changed: Call) -> None:
    d.state.calls = tuple(changed if call.call.call_id == changed.call.call_id else call for call in d.state.calls)


def close_call(d: Draft, call: Call, outcome: Outcome) -> None:
    """Its one result (rule 1). `call` is not closed yet."""
    state = d.state
    set_call(d, msgspec.structs.replace(call, stage="closed", outcome=outcome))
    if outcome.status != "refused_loop":
        state.window = repeat.ended(state.window, call.call.name, call.call.arguments_raw, outcome, d.now)
    forget_deadlines(d, call)
    d.show(
        events.ToolResult(
            call_id=call.call.call_id,
            ok=succeeded(outcome),
            status=outcome.status,
            changed=outcome.changed,
            exit_code=outcome.exit_code,
            text=outcome.text,
            ms=outcome.ms,
        )
    )


def forget_deadlines(d: Draft, call: Call) -> None:
    """The tool worker has this call no longer in hand."""
    state = d.state
    state.deadlines = deadlines.without(state.deadlines, deadlines.name_of("work", call.call.call_id))
    if not any(other.stage == "sent" for other in state.calls):
        state.deadlines = deadlines.without(state.deadlines, deadlines.name_of("hang", "tool"))


def open_call(d: Draft, call_id: CallId) -> Call | None:
    """The call of the present turn that the tool worker has in hand under this id."""
    return next((call for call in d.state.calls if call.call.call_id == call_id and call.stage == "sent"), None)


def commit_turn(d: Draft) -> None:
    """The turn, its results and its notes into the history (rule 2)."""
    state = d.state
    results = tuple(
        ToolResult(
            call_id=call.call.call_id,
            name=call.call.name,
            text=call.outcome.text,
            ok=succeeded(call.outcome),
            status=call.outcome.status,
        )
        for call in state.calls
        if call.outcome is not None
    )
    state.history = (*history.with_turn(state.history, state.message, results), *state.notes)
    state.message = None
    state.calls = ()
    state.notes = ()


def show_wholes(d: Draft, *, partial: bool) -> str:
    """The whole lines of the open attempt's reasoning and text, where there was any. Returns the text.
    A summary is the harness's own and is not told."""
    attempt = d.state.attempt
    if attempt is None or attempt.purpose == "summary":
        return ""
    if attempt.reasoning:
        d.show(events.Reasoning(text=attempt.reasoning.text, partial=partial))
    text = attempt.text.text
    if text:
        d.show(events.Message(role="assistant", text=text, partial=partial))
        d.state.run = msgspec.structs.replace(d.state.run, text=text)
    return text


def charge(
    d: Draft,
    attempt: Attempt,
    usage: Usage | None,
    *,
    phase: Phase,
    final: bool,
    drafts: tuple[CallDraft, ...] = (),
) -> None:
    """Rule 3. `usage`: as reported. `phase`: how far the attempt had come. `final`: it ended, so what is reported is
    all. `drafts`: what it had said beside text."""
    charged = usage if usage is not None and final else _so_far(usage, attempt, phase, drafts)
    d.state.ledger = budget.charged(d.state.ledger, charged)


def _so_far(reported: Usage | None, attempt: Attempt, phase: Phase, drafts: tuple[CallDraft, ...]) -> Usage:
    """Of an attempt that was cut off. Some servers count the output once at the start, as nearly nothing, and once at
    the end that never came: what came since is estimated."""
    estimated = _unreported(attempt, phase, drafts)
    if reported is None or reported.output >= estimated.output:
        return reported or estimated
    return msgspec.structs.replace(reported, output=estimated.output, estimated=True)


def _unreported(attempt: Attempt, phase: Phase, drafts: tuple[CallDraft, ...]) -> Usage:
    match phase:
        case "connect" | "headers" | "tool":
            return Usage()
        case "first_event" | "body":
            said = len(attempt.text.text) + len(attempt.reasoning.text)
            said += sum(len(draft.name + draft.arguments_raw) for draft in drafts)
            return estimate.usage(attempt.request_tokens, said)
        case _:
            assert_never(phase)


def complete(d: Draft) -> None:
    _finish(d, "completed", message="completed")


def fail(d: Draft, failure: Failure, more: str = "") -> None:
    """The run ends because of a failure that nothing in the harness can mend. `more`: why no more was tried."""
    _finish(
        d,
        "context_overflow" if failure.kind == "context_overflow" else "failed",
        message=failure.surfaced(more),
        failure=failure,
    )


def fail_of_worker(d: Draft, words: str) -> None:
    _finish(d, "worker_failed", message=words)


def trip(d: Draft, tripped: Trip) -> None:
    """A limit is used up and nothing is in flight: it is shown, and said to the model (I2)."""
    show_tripped(d, tripped)
    d.state.notes = (*d.state.notes, feedback.limit(tripped))
    _finish(d, "limit", message=limit_words(tripped), tripped=tripped)


def show_tripped(d: Draft, tripped: Trip) -> None:
    d.show(events.Budget(which=tripped.which, used=tripped.used, allowed=tripped.allowed, level="tripped"))


def loop(d: Draft, detector: Detector, count: int) -> None:
    _finish(d, "loop", message=f"the model made the same call {count} times in a row", detector=detector)


def stopped(d: Draft, stop: Stop) -> None:
    """The end of a stop that is over."""
    receipt = cancelling.receipt(stop, d.now)
    words = {"cancelled": "stopped", "killed": "killed", "limit": "stopped by a limit"}[stop.reason]
    if stop.trip is not None:
        words = limit_words(stop.trip)
    if receipt.survivors:
        words = f"{words}; {receipt.survivors} process(es) could not be seen to end"
    _finish(d, stop.reason, message=words, tripped=stop.trip, stop=stop)


def limit_words(tripped: Trip) -> str:
    """`the time limit of 2 s is reached (2.0 s used)`."""
    whose = "session's " if tripped.scope == "session" else ""
    allowed, used = feedback.amount(tripped.allowed), feedback.amount(tripped.used)
    match tripped.which:
        case "seconds":
            return f"the {whose}time limit of {allowed} s is reached ({tripped.used:.1f} s used)"
        case "turns":
            return f"the {whose}limit of {allowed} turns is reached ({used} used)"
        case "tokens":
            return f"the {whose}limit of {tripped.allowed:,.0f} tokens is reached ({tripped.used:,.0f} used)"
        case "usd":
            return f"the {whose}limit of {tripped.allowed:.2f} USD is reached ({tripped.used:.2f} used)"
        case "invalid_calls":
            return f"the limit of {allowed} invalid calls in a row is reached ({used} made)"
        case _:
            assert_never(tripped.which)


def _finish(
    d: Draft,
    reason: Reason,
    *,
    message: str,
    failure: Failure | None = None,
    tripped: Trip | None = None,
    detector: Detector | None = None,
    stop: Stop | None = None,
) -> None:
    state = d.state
    for call in state.calls:
        if call.stage != "closed":
            close_call(d, call, nothing_changed("cancelled_not_started", feedback.run_ended_before()))
    commit_turn(d)
    run = state.run
    kind = None if failure is None else failure.kind
    limit = None if tripped is None else LimitTripped(which=tripped.which, allowed=tripped.allowed, used=tripped.used)
    d.show(
        events.Result(
            reason=reason,
            kind=kind,
            subkind=None if failure is None else failure.subkind,
            limit=limit,
            detector=detector,
            message=message,
            text=run.text,
            retryable=failure is not None and retryable(failure),
            provider_status=None if failure is None else failure.provider_status,
            exit_code=exits.exit_code(
                reason,
                kind=kind,
                limit=None if limit is None else limit.which,
                terminated=stop is not None and stop.terminated,
            ),
            usage=state.ledger.usage,
            counters=run.counters,
            turns=state.turn,
            attempts=run.attempts,
            tool_calls=run.tool_calls,
            tool_runs=run.tool_runs,
            ms=round((d.now - run.started_at) * 1000),
            cancel=None if stop is None else cancelling.receipt(stop, d.now),
        )
    )
    d.do(Finish())
    state.phase = "idle"
    state.attempt = None
    state.stop = None
    state.hung = None
    state.compaction = None
    state.run = Run()
    state.ledger = budget.paused(state.ledger, d.now)
    state.deadlines = deadlines.only(state.deadlines, "start", "gone")
