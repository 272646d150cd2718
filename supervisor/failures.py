"""Every failure has one owner: what failed, in one closed list, and what is done about it (A1 to A6). Pure.

Theory of operation
1. `normalise` turns the facts of a failed attempt into a Failure; nothing else in haltline looks at a status.
   Our own timers and a refused event come first, then the transport's exceptions, then what the answer says
   (failure_table.py), then the mere end of the body.
2. `handling` decides from kind, subkind, `again`, phase, emitted and who asks; it is total and knows no texts.
   Can the model mend it? feed back. Can only another moment? retry. Neither? surface. Unknown is never retried.
3. After the first delta that was shown, nothing is sent again: what the user has seen is never replayed.
"""

import re
from typing import Literal, assert_never

import msgspec

from haltline.protocol.kinds import Again, Finish, Handling, Kind, Phase, StreamTimer, Subkind
from haltline.protocol.messages import AttemptFailed
from haltline.supervisor import failure_evidence, failure_table, failure_transport, failure_words, retry_after
from haltline.supervisor.failure_evidence import Evidence

Asking = Literal["turn", "compaction"]
"""Whose request failed: a turn's, or the one that writes a summary."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One failed attempt, normalised."""

    kind: Kind
    subkind: Subkind | None = None
    again: Again = "unknown"
    phase: Phase
    emitted: int = 0
    provider_status: int | None = None
    message: str
    """One line for the user: what failed, the provider's words, what to do. Never HTML, JSON or a key."""
    retry_after_ms: int | None = None
    """What the server asked to wait, from the moment of the failure."""
    retry_at_s: float | None = None
    """The same moment, or that of a quota's reset, in Unix seconds."""
    limit_tokens: int | None = None
    """context_overflow: the window that the error names."""
    requested_tokens: int | None = None
    """context_overflow: the whole request as the error counts it, `output_tokens` included."""
    output_tokens: int | None = None
    """context_overflow: the part of it that max_tokens reserves. Lowering that may be enough (E5)."""
    local: bool = False
    """Connection refused on this machine, or no such host: waiting rarely helps (C5)."""


class _Verdict(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    subkind: Subkind | None = None
    again: Again = "unknown"
    local: bool = False


def normalise(failed: AttemptFailed, *, emitted: int, phase: Phase, wall_s: float) -> Failure:
    """The failure that these facts describe. Never raises, whatever the body and the headers hold.

    `emitted`: text and reasoning deltas of this attempt that were passed on. `wall_s`: Unix seconds at arrival.
    """
    headers = {name.lower(): value for name, value in failed.headers.items()}
    evidence = failure_evidence.read(failed.status, headers, failed.body)
    verdict = _verdict(failed, evidence, phase)
    again = _again(headers.get("x-should-retry", ""), evidence, verdict)
    retry_after_ms = retry_after.asked_ms(headers, evidence.hints, evidence.texts, wall_s)
    retry_at_s = (
        retry_after.reset_moment(evidence.hints, wall_s) if retry_after_ms is None else wall_s + retry_after_ms / 1000
    )
    tokens = failure_words.tokens(evidence) if verdict.kind == "context_overflow" else failure_words.NO_TOKENS
    status = failed.status if failed.status is not None and failed.status >= 300 else evidence.status
    said = failed.exception or failed.malformed or ""
    return Failure(
        kind=verdict.kind,
        subkind=verdict.subkind,
        again=again,
        phase=phase,
        emitted=emitted,
        provider_status=status,
        message=failure_words.line(
            verdict.kind, verdict.subkind, status=status, evidence=evidence, said=said, timer=failed.timer
        ),
        retry_after_ms=retry_after_ms,
        retry_at_s=retry_at_s,
        limit_tokens=tokens.limit,
        requested_tokens=tokens.requested,
        output_tokens=tokens.output,
        local=verdict.local,
    )


def of_finish(finish: Finish, *, has_text: bool, has_calls: bool, refusal: str, emitted: int) -> Failure | None:
    """What is wrong with a response that ended with a positive end signal; None: nothing.

    `has_calls`: it asked for at least one call. `refusal`: the provider's refusal text, "" without one.
    """
    verdict: _Verdict
    match finish:
        case "length":
            verdict = _Verdict(kind="output_truncated")
        case "content_filter":
            verdict = _Verdict(kind="content_filtered", subkind="refusal" if refusal else None)
        case "stop" | "tool_calls":
            if refusal and not has_calls:
                verdict = _Verdict(kind="content_filtered", subkind="refusal")
            elif has_text or has_calls:
                return None
            else:
                verdict = _Verdict(kind="malformed_response", subkind="empty")
        case _:
            assert_never(finish)
    return Failure(
        kind=verdict.kind,
        subkind=verdict.subkind,
        phase="body",
        emitted=emitted,
        message=failure_words.line(verdict.kind, verdict.subkind, said=refusal),
    )


def worker_lost(phase: Phase, emitted: int, words: str) -> Failure:
    """The LLM worker died with an attempt open; `words` says how it ended."""
    verdict = _broken(phase)
    return Failure(
        kind=verdict.kind,
        subkind=verdict.subkind,
        phase=phase,
        emitted=emitted,
        message=failure_words.worker_lost(words),
    )


def handling(kind: Kind, subkind: Subkind | None, again: Again, phase: Phase, emitted: int, asking: Asking) -> Handling:
    """The one handling of a failure (A2, A3, A6). Counters and caps are the caller's.

    `retry` of malformed_response/empty is the nudge (D8): a new request, not the same one again, so it is allowed
    after reasoning was shown.
    """
    if phase == "tool":
        return "surface" if kind == "aborted" else "feedback"
    match kind:
        case "aborted" | "auth" | "quota_exhausted" | "content_filtered":
            return "surface"
        case "bad_request":
            return "feedback" if subkind == "invalid_generation" and asking == "turn" else "surface"
        case "context_overflow":
            return "compact" if emitted == 0 and asking == "turn" else "surface"
        case "output_truncated":
            return "continue" if asking == "turn" else "surface"
        case "malformed_response":
            return "retry" if again != "no" and (emitted == 0 or subkind == "empty") else "surface"
        case "stream_idle":
            return "retry" if again != "no" and emitted == 0 and subkind != "whole_request" else "surface"
        case "rate_limited" | "server" | "network" | "stream_truncated":
            return "retry" if again != "no" and emitted == 0 else "surface"
        case _:
            assert_never(kind)


def retryable(failure: Failure) -> bool:
    """Would the same request make sense at another moment, whatever has been shown (events: `retryable`)."""
    return handling(failure.kind, failure.subkind, failure.again, failure.phase, 0, "turn") == "retry"


def _verdict(failed: AttemptFailed, evidence: Evidence, phase: Phase) -> _Verdict:
    if failed.timer is not None:
        return _timed_out(failed.timer)
    refused = failed.status is not None and failed.status >= 300
    if failed.exception is not None and not refused:
        broke = failure_transport.find(failed.exception, phase)
        return _Verdict(kind=broke.kind, subkind=broke.subkind, again=broke.again, local=broke.local)
    rule = None if evidence.empty and not refused else failure_table.find(evidence)
    if failed.malformed is not None and (rule is None or not evidence.structured):
        return _Verdict(kind="malformed_response", again="no" if evidence.html else "unknown")
    if evidence.html and not refused:
        return _Verdict(kind="malformed_response", again="no")
    if rule is not None:
        return _Verdict(kind=rule.kind, subkind=rule.subkind, again=rule.again)
    if failed.truncated:
        return _Verdict(kind="stream_truncated")
    if failed.status is not None and not refused and (evidence.empty or not evidence.structured):
        return _Verdict(kind="malformed_response")
    if failed.status is None and evidence.empty:
        return _broken(phase)
    return _Verdict(kind="bad_request", again="no")


def _timed_out(timer: StreamTimer) -> _Verdict:
    match timer:
        case "connect":
            return _Verdict(kind="network", subkind="timeout")
        case "first_event" | "silence" | "no_progress":
            return _Verdict(kind="stream_idle", subkind=timer)
        case "whole_request":
            return _Verdict(kind="stream_idle", subkind=timer, again="no")
        case _:
            assert_never(timer)


def _broken(phase: Phase) -> _Verdict:
    """A connection that ended: before the response's headers `network`, after them `stream_truncated` (D2)."""
    match phase:
        case "connect" | "headers" | "tool":
            return _Verdict(kind="network", subkind="reset")
        case "first_event" | "body":
            return _Verdict(kind="stream_truncated")
        case _:
            assert_never(phase)


_BUDGET = re.compile(r"limit:?\s*([\d,]+)\b.{0,60}?requested:?\s*([\d,]+)", re.IGNORECASE | re.DOTALL)


def _again(should_retry: str, evidence: Evidence, verdict: _Verdict) -> Again:
    """`x-should-retry` first; then what the failure itself shows."""
    match should_retry.strip().lower():
        case "true":
            return "yes"
        case "false":
            return "no"
    if verdict.kind == "rate_limited":
        budget = _BUDGET.search(evidence.full_text)
        if budget and int(budget[2].replace(",", "") or 0) > int(budget[1].replace(",", "") or 0):
            return "no"  # one request above the budget of a whole minute never passes
    return verdict.again
