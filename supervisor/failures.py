"""Every failure has one owner: what failed, in one closed list, and what is done about it (A1 to A6). Pure.

Theory of operation
1. `normalise` turns the facts of a failed attempt into a Failure; nothing else in haltline looks at a status.
   Our own timers come first, then the transport's exceptions (failure_transport.py), then what the answer says
   (failure_table.py), then that it could not be read, then the mere end of the body.
2. `handling` decides from kind, subkind, `again`, phase, emitted and who asks; it is total and knows no texts.
   Can the model mend it? feed back. Can only another moment? retry. Neither? surface. Unknown is never retried.
3. After the first delta that was shown nothing is sent again: what the user has seen is never replayed.
"""

import re
from typing import Literal, assert_never

import msgspec

from haltline.protocol.kinds import Again, Api, Finish, Handling, Kind, Phase, StreamTimer, Subkind
from haltline.protocol.messages import AttemptFailed
from haltline.supervisor import (
    failure_evidence,
    failure_table,
    failure_tokens,
    failure_transport,
    failure_words,
    retry_after,
)
from haltline.supervisor.failure_evidence import Evidence

Asking = Literal["turn", "compaction"]
"""Whose request failed: a turn's, or the one that writes a summary."""

Owner = Literal["model", "harness", "user"]
"""Who can do something about a failure: the model (feedback), we (retry, compact, continue), the user (surface)."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One failed attempt, normalised."""

    kind: Kind
    subkind: Subkind | None = None
    again: Again = "unknown"
    phase: Phase
    emitted: int = 0
    provider_status: int | None = None
    message: str
    """One line for the user: what failed, the provider's words. Never HTML, JSON or a key."""
    advice: str = ""
    """What the user can do where it surfaces; "": nothing."""
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

    def surfaced(self, more: str = "") -> str:
        """The line where nothing else is done about it. `more`: why no more was tried."""
        return "; ".join(part for part in (self.message, more, self.advice) if part)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Kind and subkind, before waits and words are added."""

    kind: Kind
    subkind: Subkind | None = None
    again: Again = "unknown"
    local: bool = False


def normalise(
    failed: AttemptFailed,
    *,
    emitted: int,
    phase: Phase,
    wall_s: float,
    base_url: str = "",
    api: Api = "chat",
    over_window: bool = False,
) -> Failure:
    """The failure that these facts describe. Never raises, whatever the body and the headers hold.

    `emitted`: text and reasoning deltas of this attempt that were passed on. `wall_s`: Unix seconds at arrival.
    `base_url`: where the request went; its host and port are named where the network failed. `api`: in which format.
    `over_window`: the request is larger than the window that is known, so that a refusal in words of no known meaning
    is about that (R67).
    """
    headers = {name.lower(): value for name, value in failed.headers.items()}
    evidence = failure_evidence.read(failed.status, headers, failed.body)
    verdict = _verdict(failed, evidence, phase)
    if over_window and verdict.kind == "bad_request" and verdict.subkind is None:
        verdict = Verdict(kind="context_overflow")
    resets_at_s = retry_after.reset_moment(evidence.hints, wall_s)
    # The moment at which a quota is full again is no wait that a retry could keep.
    hints = () if verdict.kind == "quota_exhausted" and resets_at_s is not None else evidence.hints
    retry_after_ms = retry_after.asked_ms(headers, hints, evidence.texts, wall_s)
    tokens = failure_tokens.tokens(evidence) if verdict.kind == "context_overflow" else failure_tokens.NO_TOKENS
    status = failed.status if _refused(failed) else evidence.status
    words = failure_words.words_of(
        verdict.kind,
        verdict.subkind,
        status=status,
        evidence=evidence if failed.timer is None else None,
        said=failure_words.exception_words(failed.exception) if failed.exception else failed.malformed or "",
        resets_at_s=resets_at_s,
        base_url=base_url,
        api=api,
        unsent=failed.status is None and failed.exception is not None,
    )
    return Failure(
        kind=verdict.kind,
        subkind=verdict.subkind,
        again=_again(headers.get("x-should-retry", ""), evidence, verdict),
        phase=phase,
        emitted=emitted,
        provider_status=status,
        message=words.what,
        advice=words.do,
        retry_after_ms=retry_after_ms,
        retry_at_s=resets_at_s if retry_after_ms is None else wall_s + retry_after_ms / 1000,
        limit_tokens=tokens.limit,
        requested_tokens=tokens.requested,
        output_tokens=tokens.output,
        local=verdict.local,
    )


def of_finish(finish: Finish, *, has_text: bool, has_calls: bool, refusal: str, emitted: int) -> Failure | None:
    """What is wrong with a response that ended with a positive end signal; None: nothing.

    `has_calls`: it asked for at least one call. `refusal`: the provider's refusal text, "" without one.
    """
    verdict: Verdict
    match finish:
        case "length":
            verdict = Verdict(kind="output_truncated")
        case "content_filter":
            verdict = Verdict(kind="content_filtered", subkind="refusal" if refusal else None)
        case "stop" | "tool_calls" if refusal and not has_calls:
            verdict = Verdict(kind="content_filtered", subkind="refusal")
        case "stop" | "tool_calls" if has_text or has_calls:
            return None
        case "stop" | "tool_calls":
            verdict = Verdict(kind="malformed_response", subkind="empty")
        case _:
            assert_never(finish)
    said = failure_words.words_of(verdict.kind, verdict.subkind, said=refusal)
    return Failure(
        kind=verdict.kind,
        subkind=verdict.subkind,
        phase="body",
        emitted=emitted,
        message=said.what,
        advice=said.do,
    )


def silently_cut(read: int, sent: int, emitted: int) -> Failure:
    """A server answered, and has read `read` of about `sent` tokens of the request (R71)."""
    return Failure(
        kind="context_overflow",
        phase="body",
        emitted=emitted,
        message=f"the server has read {read:,} of about {sent:,} tokens of the request: it cuts what is too long "
        "without saying so",
    )


def worker_lost(phase: Phase, emitted: int, words: str, *, base_url: str = "") -> Failure:
    """The LLM worker died with an attempt to `base_url` open; `words` says how it ended."""
    verdict = _broken(phase)
    said = failure_words.worker_lost(words, base_url)
    return Failure(
        kind=verdict.kind,
        subkind=verdict.subkind,
        phase=phase,
        emitted=emitted,
        message=said.what,
        advice=said.do,
    )


def handling(kind: Kind, subkind: Subkind | None, again: Again, phase: Phase, emitted: int, asking: Asking) -> Handling:
    """The one handling of a failure (A2, A3, A6). Counters and caps are the caller's.

    `retry` of malformed_response/empty is the nudge (D8): a new request, not the same one again, so reasoning that
    was shown does not forbid it.
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


def _refused(failed: AttemptFailed) -> bool:
    """The answer's status was an error's, or a redirect's."""
    return failed.status is not None and failed.status >= 300


def _verdict(failed: AttemptFailed, evidence: Evidence, phase: Phase) -> Verdict:
    if failed.timer is not None:
        return _timed_out(failed.timer)
    refused = _refused(failed)
    if failed.exception is not None and not refused:
        broke = failure_transport.find(failed.exception, phase)
        return Verdict(kind=broke.kind, subkind=broke.subkind, again=broke.again, local=broke.local)
    rule = failure_table.find(evidence) if refused or not evidence.empty else None
    # What an adapter could not read may still be plain words about another moment; it is never taken for a bad request.
    if rule is not None and (failed.malformed is None or evidence.structured or rule.kind != "bad_request"):
        return Verdict(kind=rule.kind, subkind=rule.subkind, again=rule.again)
    if evidence.html:
        return Verdict(kind="malformed_response", again="no")
    if failed.malformed is not None:
        return Verdict(kind="malformed_response")
    if failed.truncated:
        return Verdict(kind="stream_truncated")
    if failed.status is None:
        return _broken(phase) if evidence.empty else Verdict(kind="bad_request", again="no")
    # A 200: an error object of no known kind is a refusal; anything else could not be read.
    return Verdict(kind="bad_request", again="no") if evidence.structured else Verdict(kind="malformed_response")


def _timed_out(timer: StreamTimer) -> Verdict:
    match timer:
        case "connect":
            return Verdict(kind="network", subkind="timeout")
        case "first_event" | "silence" | "no_progress":
            return Verdict(kind="stream_idle", subkind=timer)
        case "whole_request":
            return Verdict(kind="stream_idle", subkind=timer, again="no")
        case _:
            assert_never(timer)


def _broken(phase: Phase) -> Verdict:
    """A connection that ended: before the response's headers `network`, after them `stream_truncated` (D2)."""
    match phase:
        case "connect" | "headers" | "tool":
            return Verdict(kind="network", subkind="reset")
        case "first_event" | "body":
            return Verdict(kind="stream_truncated")
        case _:
            assert_never(phase)


_BUDGET = re.compile(r"limit:?\s{0,3}(\d[\d,]{0,14})\b.{0,60}?requested:?\s{0,3}(\d[\d,]{0,14})", re.IGNORECASE)


def _again(should_retry: str, evidence: Evidence, verdict: Verdict) -> Again:
    """`x-should-retry` first; then what the failure itself shows."""
    match should_retry.strip().lower():
        case "true":
            return "yes"
        case "false":
            return "no"
        case _:
            pass
    if verdict.kind == "rate_limited" and (budget := _BUDGET.search(evidence.full_text)):
        allowed, requested = (int(digits.replace(",", "")) for digits in budget.groups())
        if requested > allowed:
            return "no"  # one request above the budget of a whole minute never passes
    return verdict.again


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table in docs/: what was seen, what it is, whose it is, what happens before any text came."""

    seen: str
    kind: Kind
    subkind: Subkind | None
    owner: Owner
    handling: Handling


def explain() -> tuple[Explained, ...]:
    """All rows, in the order in which they are tried."""
    timers: tuple[StreamTimer, ...] = ("connect", "first_event", "silence", "no_progress", "whole_request")
    finishes: tuple[Finish, ...] = ("length", "content_filter", "stop")
    ended = [(f, of_finish(f, has_text=False, has_calls=False, refusal="", emitted=0)) for f in finishes]
    return (
        *(_explained(f"our own limit: {timer}", _timed_out(timer)) for timer in timers),
        *(_explained(rule.note, rule) for rule in failure_transport.RULES),
        *(_explained(rule.note, rule) for rule in failure_table.RULES),
        *(
            _explained(f"end signal {f}, without text and calls", failure)
            for f, failure in ended
            if failure is not None
        ),
    )


def _explained(seen: str, what: Verdict | Failure | failure_table.Rule | failure_transport.TransportRule) -> Explained:
    done = handling(what.kind, what.subkind, what.again, "headers", 0, "turn")
    return Explained(seen=seen, kind=what.kind, subkind=what.subkind, owner=_owner(done), handling=done)


def _owner(handling: Handling) -> Owner:
    match handling:
        case "feedback":
            return "model"
        case "retry" | "compact" | "continue":
            return "harness"
        case "surface":
            return "user"
        case _:
            assert_never(handling)
