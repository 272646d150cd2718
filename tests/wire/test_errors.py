"""What providers, proxies and transports say when they fail, and the kind that each becomes (A1, A3, A4, A5, C3)."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.attempts import NO_FUTURE_MOMENT_S, Sample, failed, samples

from haltline.protocol.messages import AttemptFailed
from haltline.supervisor import failures
from haltline.supervisor.failure_evidence import Json
from haltline.supervisor.failures import Failure, normalise, retryable

SAMPLES = samples()
SLOWEST_S = 0.003
"""Three times what one classification may take: 1 ms."""


def normalised(attempt: AttemptFailed, wall_s: float = NO_FUTURE_MOMENT_S) -> Failure:
    return normalise(attempt, emitted=0, phase=attempt.phase, wall_s=wall_s)


def error(message: str, **fields: object) -> str:
    return json.dumps({"error": {"message": message, **fields}})


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_a_sample_becomes_its_kind(sample: Sample) -> None:
    failure = normalised(sample.reported, sample.wall_s)
    assert failure.kind in sample.kinds
    if failure.kind == sample.kind:
        assert retryable(failure) is sample.retryable
        assert sample.subkind in (None, failure.subkind)
    assert failure.retry_after_ms == sample.retry_after_ms


def test_a_sample_takes_its_first_choice_of_kind_not_a_tolerated_one() -> None:
    assert [s.id for s in SAMPLES if normalised(s.reported, s.wall_s).kind != s.kind] == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_the_message_is_one_clear_line(sample: Sample) -> None:
    """R32: no markup; R35: with the provider's words. No JSON, no control characters, no key."""
    message = normalised(sample.reported).message
    assert len(message.splitlines()) == 1
    assert message.isprintable()
    assert not any(mark in message for mark in ("</", "<html", '{"', '\\"', "{'"))
    assert len(message) < 400


# What follows was written for haltline: other wordings and wrappings of the same failures.

OVERFLOWS = (
    (
        "This model's maximum context length is 4097 tokens, however you requested 4116 tokens (3860 in your prompt; "
        "256 for the completion). Please reduce your prompt; or completion length."
    ),
    "length of prompt_tokens (163280) must be less than max_seq_len (32768).",
    "Input tokens exceed the configured limit of 272000 tokens.",
    "Model context window is 128k tokens, you requested 256k tokens",
    "Prompt too large for this model",
    "prompt token count of 51808 exceeds the limit of 12288",
    "Request contains 35000 tokens, which exceeds the limit of 32768",
    "Your prompt (or context) is too large to be processed in time",
    "Input length 140000 exceeds the maximum allowed input length of 131040 tokens.",
    "Input length (265330) exceeds model's maximum context length (262144).",
    "prompt too long; exceeded max context length by 4096 tokens",
    (
        "You passed 40961 input tokens and requested 1 output tokens. However, the model's context length is only "
        "40960 tokens, resulting in a maximum input length of 40959 tokens."
    ),
    (
        "'max_tokens' is too large: 30000. This model's maximum context length is 32768 tokens and your request has "
        "5000 input tokens (30000 > 32768 - 5000)."
    ),
    "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens and 1000 `max_new_tokens`",
    "Context size has been exceeded.",
    "n_keep: 12000 >= n_ctx: 4096",
    "This request has 150000 tokens but the model only supports 128000",
    "the conversation has grown beyond the context window",
    "Range of input length should be [1, 129024]",
    "Conversation length exceeded. Please start a new session",
    "上下文长度超出限制",
)


@pytest.mark.parametrize("status", [400, 413, 500, 200, None])
@pytest.mark.parametrize("words", OVERFLOWS)
def test_an_overflow_is_known_by_its_words_with_any_status(words: str, status: int | None) -> None:
    """R67, R69, R70: the same words as 400, as 500, inside a 200 and without a status."""
    attempt = failed(status=status, body=error(words), in_stream=status == 200)
    assert normalised(attempt).kind == "context_overflow"


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for this model",
        "The maximum tokens you requested exceeds the model limit of 4096.",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6123456 bytes > 5242880 bytes",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got one of length 140.",
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
        "Model context window too small (minimum is 16000 tokens)",
        "Range of max_tokens should be [1, 8192]",
        "Unknown parameter: 'context_length_limit'.",
        "Function name 'too many requests' is invalid: 503 overloaded_error",
        "Missing `signature` in thinking block: messages.1.content.0 'rate limit exceeded'",
        "The reasoning_content in the thinking mode must be passed back to the API.",
        'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row',
        "something nobody has said before",
    ],
)
def test_another_400_is_never_taken_for_an_overflow_or_for_another_moment(words: str) -> None:
    """R67: an unknown 400 is never retried."""
    failure = normalised(failed(status=400, body=error(words)))
    assert (failure.kind, retryable(failure)) == ("bad_request", False)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, error("Too many tokens, please wait before trying again."), "rate_limited"),
        (400, '{"__type":"ThrottlingException","message":"Too many tokens, please wait."}', "rate_limited"),
        (None, "ThrottlingException: Too many tokens, please wait before trying again.", "rate_limited"),
        (429, error("The input token count exceeds the maximum"), "rate_limited"),
    ],
)
def test_throttling_is_never_taken_for_an_overflow(status: int | None, body: str, kind: str) -> None:
    """R68: the throttle rows stand before the overflow rows."""
    assert normalised(failed(status=status, body=body)).kind == kind


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, error("Your credit balance is too low to access the API. Please go to Plans & Billing.")),
        (400, error("You have reached your specified API usage limits. You will regain access on 2099-01-01.")),
        (429, error("x", code="insufficient_quota")),
        (429, error("Extra usage is required for long context requests.", type="rate_limit_error")),
        (429, error("Rate limit exceeded: free-models-per-day. Add 10 credits to unlock more", code=429)),
        (
            429,
            '{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"XPerDay"}]}]}}',
        ),
        (402, error("x", code="quota_exceeded")),
        (402, ""),
        (403, error("user quota is not enough", code="insufficient_user_quota")),
        (200, '{"type":"response.failed","response":{"error":{"code":"insufficient_quota","message":"x"}}}'),
    ],
)
def test_a_used_up_account_is_asked_once(status: int, body: str) -> None:
    """R20, R21, A3: one request, then surface, whatever `x-should-retry` says."""
    failure = normalised(failed(status=status, body=body, headers={"x-should-retry": "true"}, in_stream=status == 200))
    assert (failure.kind, retryable(failure)) == ("quota_exhausted", False)


@pytest.mark.parametrize("status", [401, 403, 407])
@pytest.mark.parametrize("body", ["", "<html><title>Forbidden</title></html>", error("no"), '"no"', "[]", "null"])
def test_a_refused_key_is_asked_once_in_any_form(status: int, body: str) -> None:
    """R22."""
    failure = normalised(failed(status=status, body=body))
    assert (failure.kind, retryable(failure), failure.provider_status) == ("auth", False, status)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 524, 525, 529, 599])
@pytest.mark.parametrize("body", ["", "<html><h1>Bad gateway", error("x"), "error code: 5xx", "\x00\xff"])
def test_any_5xx_is_another_moment(status: int, body: str) -> None:
    """R32."""
    failure = normalised(failed(status=status, body=body))
    assert (failure.kind, retryable(failure)) == ("server", True)


def test_a_page_is_reduced_to_its_status_and_one_line() -> None:
    """R32."""
    page = "<!DOCTYPE html><html><head><style>a{}</style><title>524: A timeout\n occurred</title></head><body>x</body>"
    failure = normalised(failed(status=524, headers={"content-type": "text/html"}, body=page))
    assert failure.message == "the provider failed (HTTP 524): 524: A timeout occurred"
    assert failure.surfaced() == "the provider failed (HTTP 524): 524: A timeout occurred; try again later"


def test_a_page_in_place_of_an_answer_is_malformed_and_not_asked_for_again() -> None:
    failure = normalised(failed(status=200, headers={"content-type": "text/html"}, body="<html><title>Log in</title>"))
    assert (failure.kind, failure.again) == ("malformed_response", "no")


@pytest.mark.parametrize(
    "body",
    [
        '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
        'data: {"error":{"message":"Overloaded","type":"overloaded_error"}}',
        error("Provider returned error", metadata={"raw": '{"error":{"code":"slow_down"}}'}),
    ],
)
def test_an_overload_inside_a_200_is_an_overload(body: str) -> None:
    """R23, R25: kind by type, not by status."""
    failure = normalised(failed(status=200, phase="first_event", in_stream=True, body=body))
    assert (failure.kind, failure.subkind, retryable(failure)) == ("server", "overloaded", True)


@pytest.mark.parametrize(
    "body",
    [
        error("Failed to call a function.", code="tool_use_failed", failed_generation="<function=x>"),
        error("x", failed_generation="rate limit exceeded, context_length_exceeded, invalid api key"),
        error("error parsing tool call: raw='{\"a\"', err=unexpected end of JSON input", type="api_error"),
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_what_the_model_wrote_wrongly_goes_back_to_the_model(body: str, status: int) -> None:
    """R45; the generation itself is no evidence."""
    failure = normalised(failed(status=status, body=body))
    assert (failure.kind, failure.subkind) == ("bad_request", "invalid_generation")
    asked = failures.handling(failure.kind, failure.subkind, failure.again, "headers", 0, "turn")
    assert asked == "feedback"


def test_one_request_above_a_budget_per_minute_is_not_sent_again() -> None:
    words = "Request too large on tokens per minute (TPM): Limit 6000, Requested 7200, please reduce your message size"
    failure = normalised(failed(status=413, body=error(words, type="tokens", code="rate_limit_exceeded")))
    assert (failure.kind, failure.again, retryable(failure)) == ("rate_limited", "no", False)


@pytest.mark.parametrize(("header", "again"), [("true", "yes"), ("FALSE", "no"), ("maybe", "unknown")])
def test_the_servers_wish_overrides_again_but_not_the_kind(header: str, again: str) -> None:
    failure = normalised(failed(status=500, headers={"X-Should-Retry": header}, body=error("x")))
    assert (failure.kind, failure.again) == ("server", again)


# Mutations: what a gateway does to an error must not change what it is.

STRUCTURED = tuple(
    s for s in SAMPLES if s.provider != "client" and s.body[:1] in ("{", "[", '"') and s.http_status != 200
)
SAYS_NOTHING_ITSELF = {
    "err-ollama-bad-request-01",
    "err-lmstudio-bad-request-01",
    "err-openai-bad-request-12",
}
"""Their words and codes do not say whose fault it was: a gateway that makes a 500 of them makes it the server's."""


def _swapped(value: Json) -> Json:
    match value:
        case str():
            return value.swapcase()
        case list():
            return [_swapped(item) for item in value]
        case dict():
            return {key: _swapped(item) for key, item in value.items()}
        case _:
            return value


@pytest.mark.parametrize("sample", STRUCTURED, ids=lambda sample: sample.id)
def test_the_kind_survives_a_lost_status(sample: Sample) -> None:
    assert normalised(failed(body=sample.body)).kind in sample.kinds
    assert normalised(failed(status=200, in_stream=True, phase="body", body=sample.body)).kind in sample.kinds


@pytest.mark.parametrize("sample", STRUCTURED, ids=lambda sample: sample.id)
def test_the_kind_survives_another_case(sample: Sample) -> None:
    body = json.dumps(_swapped(json.loads(sample.body)))
    assert normalised(failed(status=sample.http_status, body=body)).kind in sample.kinds


@pytest.mark.parametrize("sample", STRUCTURED, ids=lambda sample: sample.id)
def test_the_kind_survives_wrapping(sample: Sample) -> None:
    """The shapes of OpenRouter, of gateways that keep the code, of Python clients and of LiteLLM."""
    code = sample.http_status
    wrapped = {
        "metadata.raw": (500, error("Provider returned error", code=code, metadata={"raw": sample.body})),
        "message": (500, error(sample.body, type="upstream_error", code=code)),
        "list": (500, json.dumps([{"error": {"code": code, "message": sample.body}}])),
        "event": (200, "event: error\ndata: " + sample.body.replace("\n", " ")),
        "repr": (None, f"Error code: {code} - {json.loads(sample.body)!r}"),
        "litellm": (500, error(f"litellm.APIError: APIError: OpenAIException - {sample.body}", code="500")),
    }
    if sample.id in SAYS_NOTHING_ITSELF:
        del wrapped["litellm"]
    kinds = {name: normalised(failed(status=status, body=body)).kind for name, (status, body) in wrapped.items()}
    assert {name: kind for name, kind in kinds.items() if kind not in sample.kinds} == {}


@pytest.mark.parametrize("sample", STRUCTURED, ids=lambda sample: sample.id)
def test_the_kind_survives_a_body_that_was_cut(sample: Sample) -> None:
    """Workers send the start of a body: it need not be JSON any more."""
    assert normalised(failed(status=sample.http_status, headers=sample.headers, body=sample.body[:-2])).kind in (
        sample.kinds
    )


# Never an exception, never slow.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["error", "code", "status", "type", "message", "detail", "retryDelay", "resets_at", "n_ctx"]
            )
            | st.text(max_size=8),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)
HEADERS = st.dictionaries(
    st.sampled_from(["retry-after", "retry-after-ms", "x-should-retry", "content-type", "Retry-After"]) | st.text(),
    st.text(max_size=40) | st.integers().map(str) | st.floats().map(str),
    max_size=4,
)
BODIES = (
    st.text(max_size=400) | JSON.map(json.dumps) | JSON.map(repr) | JSON.map(json.dumps).map(lambda b: b[: len(b) // 2])
)


@given(
    attempt=st.builds(
        failed,
        phase=st.sampled_from(["connect", "headers", "first_event", "body", "tool"]),
        status=st.none() | st.integers(min_value=-1, max_value=999),
        headers=HEADERS,
        body=BODIES,
        in_stream=st.booleans(),
        exception=st.none() | st.text(max_size=80),
        truncated=st.booleans(),
        malformed=st.none() | st.text(max_size=20),
    ),
    wall_s=st.floats(min_value=0, max_value=4e9),
)
def test_nothing_that_a_server_can_send_raises(attempt: AttemptFailed, wall_s: float) -> None:
    failure = normalised(attempt, wall_s)
    assert failure.retry_after_ms is None or failure.retry_after_ms > 0
    assert len(failure.message.splitlines()) == 1
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=Failure) == failure


HOSTILE = {
    "deep list": "[" * 16_384,
    "deep object": '{"a":' * 3_000,
    "escapes": '\\"' * 8_000,
    "numbers": "1 " * 8_000,
    "one number": "try again in " + "1" * 16_000,
    "one word": "A" * 16_384,
    "waits": "try again in " * 1_200,
    "titles": "<html>" + "<title " * 2_300,
    "headings": "<html>" + "<h1>" * 4_000,
    "overflow words": "input request tokens context exceed " * 450,
    "quotes": "'a': '" * 2_700,
    "wide": json.dumps({"error": [{"message": f"prompt {i}"} for i in range(600)]})[:16_384],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_takes_no_more_than_one_step_of_a_loop(name: str) -> None:
    """L5: no step holds a loop longer than 100 ms."""
    began = time.perf_counter()
    normalised(failed(status=500, body=HOSTILE[name]))
    assert time.perf_counter() - began < 0.1


def test_a_classification_takes_less_than_a_millisecond() -> None:
    slowest = 0.0
    for sample in SAMPLES:
        attempt = sample.reported
        best = 1.0
        for _ in range(3):
            began = time.perf_counter()
            normalised(attempt)
            best = min(best, time.perf_counter() - began)
        slowest = max(slowest, best)
    assert slowest < SLOWEST_S
