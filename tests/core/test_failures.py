"""Who owns a failure and what is done about it (A1 to A6, D2, D4, D8, E5, L2)."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from support.attempts import failed

from haltline.protocol.exits import exit_code
from haltline.protocol.kinds import Again, Finish, Handling, Kind, Phase, StreamTimer, Subkind
from haltline.protocol.messages import AttemptFailed
from haltline.supervisor import failure_words
from haltline.supervisor.failures import (
    Asking,
    Explained,
    Failure,
    explain,
    handling,
    normalise,
    of_finish,
    retryable,
    worker_lost,
)

KINDS: tuple[Kind, ...] = get_args(Kind)
SUBKINDS: tuple[Subkind | None, ...] = (None, *get_args(Subkind))
AGAINS: tuple[Again, ...] = get_args(Again)
PHASES: tuple[Phase, ...] = get_args(Phase)
ATTEMPT_PHASES: tuple[Phase, ...] = ("connect", "headers", "first_event", "body")
ASKING: tuple[Asking, ...] = get_args(Asking)

BEFORE_TEXT: dict[tuple[Kind, Subkind | None], tuple[Handling, Handling]] = {
    ("aborted", None): ("surface", "surface"),
    ("auth", None): ("surface", "surface"),
    ("quota_exhausted", None): ("surface", "surface"),
    ("rate_limited", None): ("retry", "retry"),
    ("server", None): ("retry", "retry"),
    ("server", "overloaded"): ("retry", "retry"),
    ("network", "dns"): ("retry", "retry"),
    ("network", "connect"): ("retry", "retry"),
    ("network", "reset"): ("retry", "retry"),
    ("network", "tls"): ("retry", "retry"),
    ("network", "timeout"): ("retry", "retry"),
    ("stream_truncated", None): ("retry", "retry"),
    ("stream_idle", "first_event"): ("retry", "retry"),
    ("stream_idle", "silence"): ("retry", "retry"),
    ("stream_idle", "no_progress"): ("retry", "retry"),
    ("stream_idle", "whole_request"): ("surface", "surface"),
    ("context_overflow", None): ("compact", "surface"),
    ("output_truncated", None): ("continue", "surface"),
    ("content_filtered", None): ("surface", "surface"),
    ("content_filtered", "refusal"): ("surface", "surface"),
    ("bad_request", None): ("surface", "surface"),
    ("bad_request", "invalid_generation"): ("feedback", "surface"),
    ("malformed_response", None): ("retry", "retry"),
    ("malformed_response", "empty"): ("retry", "retry"),
}
"""Before any text was shown: of a turn, of a compaction."""


@pytest.mark.parametrize(("what", "expected"), BEFORE_TEXT.items(), ids=lambda value: "/".join(map(str, value)))
def test_each_kind_has_one_handling_before_text(
    what: tuple[Kind, Subkind | None], expected: tuple[Handling, Handling]
) -> None:
    """A2, A3."""
    mendable: tuple[Again, ...] = ("yes", "unknown")
    for again, phase in itertools.product(mendable, ATTEMPT_PHASES):
        assert tuple(handling(*what, again, phase, 0, asking) for asking in ASKING) == expected


def test_every_kind_is_in_the_table() -> None:
    assert {kind for kind, _ in BEFORE_TEXT} == set(KINDS)


@pytest.mark.parametrize("asking", ASKING)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_sent_again_after_text_was_shown(kind: Kind, asking: Asking) -> None:
    """A6, R26: nor compacted, which would send the turn again. An empty response is nudged, not sent again (D8)."""
    for subkind, again, phase in itertools.product(SUBKINDS, AGAINS, ATTEMPT_PHASES):
        if (kind, subkind) == ("malformed_response", "empty"):
            continue
        assert handling(kind, subkind, again, phase, 1, asking) not in ("retry", "compact")


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_that_would_repeat_itself_is_never_retried(kind: Kind) -> None:
    """A2: again = no."""
    for subkind, phase, emitted, asking in itertools.product(SUBKINDS, PHASES, (0, 1), ASKING):
        assert handling(kind, subkind, "no", phase, emitted, asking) != "retry"


@pytest.mark.parametrize("kind", ["auth", "quota_exhausted", "content_filtered", "bad_request", "aborted"])
def test_a_wish_of_the_server_never_makes_these_retried(kind: Kind) -> None:
    """A3."""
    for subkind, phase, asking in itertools.product(SUBKINDS, PHASES, ASKING):
        assert handling(kind, subkind, "yes", phase, 0, asking) != "retry"


def test_a_failure_in_a_tool_goes_to_the_model() -> None:
    for kind in KINDS:
        asked = handling(kind, None, "unknown", "tool", 0, "turn")
        assert asked == ("surface" if kind == "aborted" else "feedback")


@pytest.mark.parametrize(
    ("timer", "kind", "subkind", "again"),
    [
        ("connect", "network", "timeout", "unknown"),
        ("first_event", "stream_idle", "first_event", "unknown"),
        ("silence", "stream_idle", "silence", "unknown"),
        ("no_progress", "stream_idle", "no_progress", "unknown"),
        ("whole_request", "stream_idle", "whole_request", "no"),
    ],
)
def test_each_limit_of_ours_is_a_kind(timer: StreamTimer, kind: Kind, subkind: Subkind, again: Again) -> None:
    """D4."""
    failure = normalise(failed(phase="body", status=200, timer=timer), emitted=0, phase="body", wall_s=0.0)
    assert (failure.kind, failure.subkind, failure.again) == (kind, subkind, again)


@pytest.mark.parametrize(
    ("exception", "subkind", "again", "local"),
    [
        ("ConnectError: [Errno -2] Name or service not known", "dns", "unknown", True),
        ("ConnectError: [Errno -3] Temporary failure in name resolution", "dns", "unknown", False),
        ("ConnectError: [Errno 111] Connection refused", "connect", "unknown", False),
        (
            (
                "ConnectError: All connection attempts failed <- ConnectionRefusedError: Connect call failed "
                "('127.0.0.1', 1)"
            ),
            "connect",
            "unknown",
            True,
        ),
        ("ConnectError: [Errno 113] No route to host", "connect", "unknown", False),
        ("ConnectError: [Errno 104] Connection reset by peer", "reset", "unknown", False),
        ("ConnectTimeout: ", "timeout", "unknown", False),
        ("PoolTimeout: ", "timeout", "unknown", False),
        ("ReadTimeout: ", "timeout", "unknown", False),
        ("ReadError:  <- BrokenResourceError:  <- ConnectionResetError: [Errno 104] x", "reset", "unknown", False),
        ("RemoteProtocolError: Server disconnected without sending a response.", "reset", "unknown", False),
        ("WriteError: [Errno 32] Broken pipe", "reset", "unknown", False),
        ("SomethingNew: nobody knows", "reset", "unknown", False),
        ("ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1006)", "tls", "no", False),
        ("ConnectError: [SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "tls", "no", False),
        ("ConnectError: EOF occurred in violation of protocol (_ssl.c:1006)", "tls", "unknown", False),
    ],
)
def test_a_connection_that_fails_before_the_headers_is_network(
    exception: str, subkind: Subkind, again: Again, local: bool
) -> None:
    """A1, C5, R33."""
    failure = normalise(failed(phase="connect", exception=exception), emitted=0, phase="connect", wall_s=0.0)
    assert (failure.kind, failure.subkind, failure.again, failure.local) == ("network", subkind, again, local)
    assert "Errno" not in failure.message


@pytest.mark.parametrize(
    "attempt",
    [
        failed(phase="connect", exception="ConnectError: [Errno -2] Name or service not known"),
        failed(phase="connect", exception="ConnectError: [Errno -3] Temporary failure in name resolution"),
        failed(phase="connect", exception="ConnectError: All connection attempts failed"),
        failed(phase="connect", exception="ConnectError: [SSL: WRONG_VERSION_NUMBER] wrong version number"),
        failed(phase="connect", timer="connect"),
        failed(phase="headers", exception="ReadError: "),
        failed(phase="headers"),
    ],
)
def test_every_network_failure_names_the_host_and_the_port(attempt: AttemptFailed) -> None:
    """The issue: with the gateway not there a run ends with 75, with host and port."""
    failure = normalise(attempt, emitted=0, phase=attempt.phase, wall_s=0.0, base_url="http://user:secret@Gate.way/v1")
    assert failure.kind == "network"
    assert "(gate.way:80)" in failure.message
    assert "secret" not in failure.message


def test_a_worker_that_was_lost_names_where_its_request_went() -> None:
    failure = worker_lost("connect", 0, "killed by signal 9", base_url="http://127.0.0.1:8080/v1")
    what = "the worker that held the request to 127.0.0.1:8080 ended: killed by signal 9"
    assert failure.surfaced() == f"{what}; what came is kept; ask again"
    assert failure.message == what, "a new one may be started or not: the events say so"
    assert worker_lost("body", 1, "").message == "the worker that held the request ended without a word"


@pytest.mark.parametrize(
    ("base_url", "server"),
    [
        ("http://127.0.0.1:8080/v1", "127.0.0.1:8080"),
        ("https://api.example.com/v1", "api.example.com:443"),
        ("http://[::1]:9/v1", "[::1]:9"),
        ("http://host:port/v1", "host"),
        ("http://[::1/v1", ""),
        ("nonsense", ""),
        ("", ""),
    ],
)
def test_where_a_base_url_leads(base_url: str, server: str) -> None:
    assert failure_words.server(base_url) == server


@pytest.mark.parametrize("exception", ["ReadError: ", "RemoteProtocolError: peer closed connection", "Unknown: x"])
@pytest.mark.parametrize("phase", ["first_event", "body"])
def test_a_connection_that_breaks_after_the_headers_is_a_truncated_stream(exception: str, phase: Phase) -> None:
    """D2."""
    failure = normalise(failed(phase=phase, status=200, exception=exception), emitted=0, phase=phase, wall_s=0.0)
    assert failure.kind == "stream_truncated"


def test_a_body_that_ends_without_its_end_signal_is_truncated() -> None:
    """D2, R27: also where nothing came at all."""
    failure = normalise(failed(phase="body", status=200, truncated=True), emitted=3, phase="body", wall_s=0.0)
    assert (failure.kind, retryable(failure)) == ("stream_truncated", True)
    assert handling(failure.kind, failure.subkind, failure.again, "body", failure.emitted, "turn") == "surface"


def test_the_error_event_wins_over_the_end_that_follows_it() -> None:
    """D2, R24."""
    body = '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    attempt = failed(phase="body", status=200, in_stream=True, body=body, truncated=True)
    assert normalise(attempt, emitted=3, phase="body", wall_s=0.0).kind == "server"


def test_an_error_answer_that_breaks_off_is_that_error() -> None:
    attempt = failed(phase="body", status=401, body='{"error":{"mess', exception="ReadError: ")
    assert normalise(attempt, emitted=0, phase="body", wall_s=0.0).kind == "auth"


def test_what_could_not_be_read_is_malformed_in_the_adapters_words() -> None:
    """L5."""
    attempt = failed(phase="body", status=200, malformed="a stream event of more than 8 MiB")
    failure = normalise(attempt, emitted=0, phase="body", wall_s=0.0)
    assert failure.kind == "malformed_response"
    assert "a stream event of more than 8 MiB" in failure.message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("Rate limit exceeded", "rate_limited"),
        ("upstream connect error or disconnect/reset before headers", "server"),
        ("this is not found to be valid JSON", "malformed_response"),
        ('{"choices":[{"delta":{"content":"429 Too Many Requests', "malformed_response"),
    ],
)
def test_words_in_place_of_an_event_are_read_but_never_taken_for_a_bad_request(body: str, kind: Kind) -> None:
    """R24: and what the model wrote is no evidence."""
    attempt = failed(phase="body", status=200, in_stream=True, body=body, malformed="not JSON")
    assert normalise(attempt, emitted=0, phase="body", wall_s=0.0).kind == kind


@pytest.mark.parametrize(
    ("finish", "has_text", "has_calls", "refusal", "expected"),
    [
        ("stop", True, False, "", None),
        ("stop", False, True, "", None),
        ("tool_calls", False, True, "", None),
        ("tool_calls", True, False, "", None),
        ("tool_calls", False, True, "no", None),
        ("stop", False, False, "", ("malformed_response", "empty")),
        ("tool_calls", False, False, "", ("malformed_response", "empty")),
        ("stop", False, False, "I cannot help", ("content_filtered", "refusal")),
        ("stop", True, False, "I cannot help", ("content_filtered", "refusal")),
        ("content_filter", True, False, "", ("content_filtered", None)),
        ("content_filter", False, False, "I cannot help", ("content_filtered", "refusal")),
        ("length", True, False, "", ("output_truncated", None)),
        ("length", False, True, "", ("output_truncated", None)),
        ("length", False, False, "", ("output_truncated", None)),
    ],
)
def test_an_ended_response_is_good_or_one_failure(
    finish: Finish, has_text: bool, has_calls: bool, refusal: str, expected: tuple[Kind, Subkind | None] | None
) -> None:
    """D8, E4, R46."""
    failure = of_finish(finish, has_text=has_text, has_calls=has_calls, refusal=refusal, emitted=2)
    assert (None if failure is None else (failure.kind, failure.subkind)) == expected
    if failure is not None:
        assert failure.emitted == 2
        assert refusal in failure.message


@pytest.mark.parametrize(
    ("phase", "kind"),
    [("connect", "network"), ("headers", "network"), ("first_event", "stream_truncated"), ("body", "stream_truncated")],
)
def test_a_lost_worker_is_a_lost_connection(phase: Phase, kind: Kind) -> None:
    """L2: before text retried, after text surfaced."""
    failure = worker_lost(phase, 0, "ended by signal 9")
    assert (failure.kind, failure.phase, retryable(failure)) == (kind, phase, True)
    assert "ended by signal 9" in failure.message
    assert handling(failure.kind, failure.subkind, failure.again, phase, 1, "turn") == "surface"


@pytest.mark.parametrize(
    ("words", "limit", "requested", "output"),
    [
        ("prompt is too long: 208732 tokens > 200000 maximum", 200_000, 208_732, None),
        ("input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000", 200_000, 242_959, 64_000),
        (
            (
                "This model's maximum context length is 8192 tokens. However, you requested 8213 tokens (6683 in the "
                "messages, 730 in the functions, and 800 in the completion)."
            ),
            8_192,
            8_213,
            800,
        ),
        (
            (
                "This model's maximum context length is 32768 tokens. However, you requested 8192 output tokens and "
                "your prompt contains at least 24577 input tokens, for a total of at least 32769 tokens."
            ),
            32_768,
            32_769,
            8_192,
        ),
        (
            (
                "'max_tokens' is too large: 30000. This model's maximum context length is 32768 tokens and your "
                "request has 5000 input tokens (30000 > 32768 - 5000)."
            ),
            32_768,
            35_000,
            30_000,
        ),
        (
            "The input token count (1,189,456) exceeds the maximum number of tokens (1,048,576).",
            1_048_576,
            1_189_456,
            None,
        ),
        ("Your request exceeded model token limit: 262144 (requested: 269030)", 262_144, 269_030, None),
        ("Range of input length should be [1, 129024]", 129_024, None, None),
        ("Context size has been exceeded.", None, None, None),
        ("prompt too long; exceeded max context length by 4096 tokens", None, None, None),
        ("Model context window is 128k tokens, you requested 256k tokens", None, None, None),
    ],
)
def test_an_overflow_names_the_window_and_the_request(
    words: str, limit: int | None, requested: int | None, output: int | None
) -> None:
    """E5, R70, R72."""
    failure = normalise(failed(status=400, body=words), emitted=0, phase="headers", wall_s=0.0)
    assert (failure.limit_tokens, failure.requested_tokens, failure.output_tokens) == (limit, requested, output)


def test_the_fields_of_an_overflow_beat_its_words() -> None:
    """R70."""
    body = (
        '{"error":{"code":400,"message":"the request exceeds the available context size",'
        '"type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}'
    )
    failure = normalise(failed(status=400, body=body), emitted=0, phase="headers", wall_s=0.0)
    assert (failure.limit_tokens, failure.requested_tokens) == (8_192, 14_429)


def test_no_key_gets_into_a_message() -> None:
    """J4."""
    body = '{"error":{"message":"Incorrect API key provided: sk-proj-abcdefghijklmnop1234567890."}}'
    failure = normalise(failed(status=401, body=body), emitted=0, phase="headers", wall_s=0.0)
    assert "abcdefghijkl" not in failure.message
    assert "sk-…" in failure.message


def test_a_message_says_what_failed_what_was_said_and_what_to_do() -> None:
    attempt = failed(status=429, body='{"error":{"message":"Slow"}}', headers={"retry-after": "2.5"})
    assert normalise(attempt, emitted=0, phase="headers", wall_s=1_000.0) == Failure(
        kind="rate_limited",
        phase="headers",
        provider_status=429,
        message="the provider limits the rate of requests (HTTP 429): Slow",
        advice="wait, or send less per minute",
        retry_after_ms=2_500,
        retry_at_s=1_002.5,
    )


def test_a_request_that_could_not_be_sent_is_not_said_to_be_refused_by_a_provider() -> None:
    reported = failed(phase="connect", exception="UnsupportedProtocol: ALL_PROXY is no address of a proxy")
    failure = normalise(reported, emitted=0, phase="connect", wall_s=0.0)
    assert (failure.kind, failure.again) == ("bad_request", "no")
    assert failure.surfaced() == (
        "the request could not be sent: ALL_PROXY is no address of a proxy; check the base URL and the settings"
    )


@pytest.mark.parametrize(
    ("status", "base_url", "advice"),
    [
        (404, "http://127.0.0.1:8080", "check the base URL (does it end in /v1?) and the model's name"),
        (302, "http://127.0.0.1:8080/", "check the base URL (does it end in /v1?) and the model's name"),
        (404, "http://127.0.0.1:8080/v1/", "check the base URL and the model's name"),
        (422, "http://127.0.0.1:8080", "check the model's name and the settings"),
    ],
)
def test_where_a_server_has_no_api_the_base_url_is_doubted(status: int, base_url: str, advice: str) -> None:
    failure = normalise(failed(status=status), emitted=0, phase="headers", wall_s=0.0, base_url=base_url)
    assert (failure.kind, failure.advice) == ("bad_request", advice)


def test_the_base_url_of_messages_is_not_doubted_for_a_missing_v1() -> None:
    attempt, where = failed(status=404), "http://127.0.0.1:8080"
    failure = normalise(attempt, emitted=0, phase="headers", wall_s=0.0, base_url=where, api="messages")
    assert failure.advice == "check the base URL and the model's name"


def test_a_quota_says_when_it_resets() -> None:
    """R20."""
    body = '{"error":{"type":"usage_limit_reached","message":"Usage limit reached","resets_at":1764510000}}'
    failure = normalise(failed(status=429, body=body), emitted=0, phase="headers", wall_s=1_764_500_000.0)
    assert (failure.kind, failure.retry_after_ms, failure.retry_at_s) == ("quota_exhausted", None, 1_764_510_000.0)
    assert failure.surfaced().endswith("add credit or wait for the reset (resets at 2025-11-30 13:40 UTC)")


def test_the_whole_table_can_be_explained() -> None:
    rows = explain()
    assert (
        Explained(seen="payment required", kind="quota_exhausted", subkind=None, owner="user", handling="surface")
        in rows
    )
    assert {row.kind for row in rows} == set(KINDS)
    assert all(row.seen for row in rows)
    assert {row.owner for row in rows} == {"model", "harness", "user"}


def test_every_kind_has_an_exit_code() -> None:
    assert {kind: exit_code("failed", kind=kind) for kind in ("auth", "server", "stream_truncated")} == {
        "auth": 77,
        "server": 75,
        "stream_truncated": 76,
    }
