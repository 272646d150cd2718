"""Every stream of data/streams gives what its .json says, however the network cuts it, and no bytes at all break a
reader: one set of properties for the three wire formats (D1, D2, D3, D5, D6, D7)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.attempts import Sample, failed, samples
from support.wire_readings import NAMES, Reading, assert_expected, bytewise, cut_at, ending, read, sample

from haltline.protocol.kinds import Api
from haltline.supervisor.failures import Failure, normalise
from haltline.worker.llm import messages_stream, responses_stream
from haltline.worker.llm.happenings import ErrorReport, Malformed

RANDOM_CUTS = 50
APIS: tuple[Api, ...] = ("chat", "responses", "messages")
STREAM = "text/event-stream"

END_SIGNALS: Mapping[Api, tuple[bytes, ...]] = {
    "chat": (b'"finish_reason":"', b"[DONE]", b"{not"),
    "responses": (b"response.completed", b"response.incomplete", b"response.failed"),
    "messages": (b"message_stop",),
}
"""How the first event begins that ends or spoils the reading, besides errors."""


def places_of(sizes: list[int]) -> Iterator[int]:
    at = 0
    for size in sizes:
        at += size
        yield at


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_reads_as_its_description_says_whole_bytewise_and_cut_anywhere(name: str) -> None:
    data, expected = sample(name)
    api, kind = expected["api"], expected["content_type"]
    closed = not any(pause["ms"] is None for pause in expected.get("pauses", ()))
    whole = read(api, [data], kind, closed=closed)
    assert_expected(whole, expected)
    assert read(api, bytewise(data), kind, closed=closed) == whole
    if expected["chunks"]:
        assert read(api, cut_at(data, places_of(expected["chunks"])), kind, closed=closed) == whole
    randomness = random.Random(name)
    for _ in range(RANDOM_CUTS):
        places = [randomness.randrange(len(data) + 1) for _ in range(randomness.randrange(1, 8))]
        assert read(api, cut_at(data, places), kind, closed=closed) == whole


def kind_of(problem: ErrorReport | Malformed, wall_s: float = 0.0) -> Failure:
    """What the supervisor makes of it."""
    malformed = problem.words if isinstance(problem, Malformed) else None
    attempt = failed(phase="body", status=200, body=problem.data, in_stream=problem.in_stream, malformed=malformed)
    return normalise(attempt, emitted=0, phase="body", wall_s=wall_s)


REPORTED = [
    name for name in NAMES if sample(name)[1]["finish"] == "error" and sample(name)[1]["error_kind"] != "stream_idle"
]


@pytest.mark.parametrize("name", REPORTED)
def test_what_a_stream_reports_becomes_the_kind_that_its_description_says(name: str) -> None:
    """A1, A5, R23: what leaves the adapter is enough for the one classifier."""
    data, expected = sample(name)
    problem = read(expected["api"], [data], expected["content_type"]).problem
    assert problem is not None
    failure = kind_of(problem)
    assert failure.kind == expected["error_kind"]
    assert failure.retry_after_ms == expected.get("retry_after_ms", failure.retry_after_ms)


def in_stream_rows() -> Iterator[tuple[Api, Sample]]:
    for api in APIS:
        for row in samples():
            if row.in_stream and row.api == api and row.body.startswith("{"):
                yield api, row


@pytest.mark.parametrize(("api", "row"), tuple(in_stream_rows()), ids=lambda value: getattr(value, "id", value))
def test_an_error_inside_a_stream_is_reported_so_that_it_keeps_its_kind(api: Api, row: Sample) -> None:
    """D2, R23: each of them as the only event of its stream."""
    reading = read(api, [b"data: " + row.body.encode() + b"\n\n"])
    if row.kind in ("output_truncated", "content_filtered"):  # ends, not errors
        assert reading.problem is None
    else:
        assert reading.problem is not None
        assert kind_of(reading.problem, row.wall_s).kind in row.kinds


@given(st.sampled_from(NAMES), st.lists(st.integers(0, 5000), max_size=20))
def test_any_cutting_into_chunks_gives_the_same_reading(name: str, places: list[int]) -> None:
    data, expected = sample(name)
    api, kind = expected["api"], expected["content_type"]
    assert read(api, cut_at(data, places), kind) == read(api, [data], kind)


@given(st.sampled_from([name for name in NAMES if sample(name)[1]["content_type"] == STREAM]), st.floats(0, 1))
def test_a_stream_cut_before_its_end_signal_is_truncated_and_has_no_complete_call(name: str, share: float) -> None:
    """D2, D3, D7. What is an end signal is read from the bytes, not asked of the reader."""
    data, expected = sample(name)
    marks = (*END_SIGNALS[expected["api"]], b'"error":{', b"event: error")
    end = min((at for mark in marks if (at := data.find(mark)) >= 0), default=len(data))
    reading = read(expected["api"], [data[: int(end * share)]])
    assert ending(reading) == "truncated"
    assert not any(call.complete for call in reading.summary.calls)
    assert reading.summary.reasoning == ()


@given(
    st.sampled_from(APIS),
    st.binary(max_size=3000),
    st.sampled_from([STREAM, "application/json", "text/html", ""]),
)
@example("chat", b"data: " + b"[" * 100_000 + b"\n\n", STREAM)
@example("responses", b"data: " + b'{"item":' * 100_000 + b"\n\n", STREAM)
@example("messages", b'data: {"type":"content_block_start","content_block":' + b"[" * 100_000 + b"\n\n", STREAM)
@example("chat", b'data: {"choices":[{"delta":{"content":' + b"9" * 5000 + b"}}]}\n\n", STREAM)
@example("messages", b'data: {"type":"content_block_stop","index":' + b"9" * 5000 + b"}\n\n", STREAM)
@example("responses", b'data: {"type":"response.output_item.done","output_index":1e999}\n\n', STREAM)
@example("chat", b"{" * 100_000, "application/json")
@example("responses", b'{"output":' + b"[" * 100_000, "application/json")
def test_no_bytes_raise(api: Api, data: bytes, content_type: str) -> None:
    read(api, [data], content_type)


@given(
    st.sampled_from(APIS),
    st.lists(
        st.sampled_from(
            [
                b"data",
                b"event",
                b":",
                b": ",
                b"\n",
                b"\r",
                b"\r\n",
                b"{",
                b"}",
                b'{"type":"message_stop"}',
                b'{"type":"response.completed"}',
                b'"choices"',
                b"[DONE]",
                b"error",
                b"\xff",
                b"\xef\xbb\xbf",
            ]
        ),
        max_size=40,
    ),
)
def test_no_shuffled_pieces_of_a_stream_raise_or_depend_on_chunks(api: Api, pieces: list[bytes]) -> None:
    assert read(api, pieces) == read(api, [b"".join(pieces)])


# Events in which everything that a reader looks at may be of any shape, and that come in any order.

WORDS = (
    "type", "index", "delta", "text", "thinking", "signature", "partial_json", "content_block", "message", "usage",
    "stop_reason", "stop_details", "item", "item_id", "output_index", "arguments", "name", "id", "call_id", "response",
    "output", "status", "content", "summary", "encrypted_content", "incomplete_details", "input", "data", "refusal",
)  # fmt: skip
VALUES = (
    "text", "text_delta", "thinking", "thinking_delta", "redacted_thinking", "signature_delta", "input_json_delta",
    "tool_use", "server_tool_use", "function_call", "reasoning", "output_text", "refusal", "completed", "incomplete",
    "failed", "end_turn", "max_tokens", "{}", '{"a":1}', "x", "",
)  # fmt: skip
KINDS = sorted({*messages_stream.EVENTS, *responses_stream.EVENTS, "response.created", "future", "error", "ping"})

SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.floats() | st.sampled_from(VALUES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=12,
)
EVENTS = st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(WORDS), SHAPES, max_size=6))


def as_stream(events: list[tuple[str, dict[str, Any]]]) -> bytes:
    return b"".join(b"data: " + json.dumps({**fields, "type": kind}).encode() + b"\n\n" for kind, fields in events)


@given(st.sampled_from(("responses", "messages")), st.lists(EVENTS, max_size=8))
def test_no_events_raise_and_none_runs_a_call_without_an_end_signal(
    api: Api, events: list[tuple[str, dict[str, Any]]]
) -> None:
    """D3. Every event beside its end signals may be of a kind and a shape that nobody knew."""
    reading: Reading = read(api, [as_stream(events)])
    if not any(kind.encode() in END_SIGNALS[api] for kind, _ in events):
        assert reading.summary.finish is None
        assert not any(call.complete for call in reading.summary.calls)
        assert reading.summary.reasoning == ()


@given(st.sampled_from(("responses", "messages")), SHAPES)
def test_no_whole_body_raises(api: Api, body: object) -> None:
    read(api, [json.dumps({"content": body, "output": body, "status": "completed"}).encode()], "application/json")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("body", ["<html><h1>Bad gateway</h1>", "upstream connect error", '{"hello":"world"}', "[]"])
def test_what_is_no_stream_and_no_answer_is_malformed_and_never_shown(api: Api, body: str) -> None:
    """D2, R32."""
    reading = read(api, [body.encode()], STREAM if body.startswith("<") else "application/json")
    assert isinstance(reading.problem, Malformed)
    assert (reading.text, reading.problem.in_stream) == ("", False)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("body", ['{"error":{"code":502,"message":"x"}}', '{"type":"error","error":{"type":"a"}}'])
def test_a_json_error_in_place_of_a_stream_is_that_error(api: Api, body: str) -> None:
    """D2, R25: whatever its content type says."""
    for content_type in ("application/json", STREAM, ""):
        assert read(api, [body.encode()], content_type).problem == ErrorReport(body, in_stream=False)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "block", ["event: error\ndata: overloaded, try later", 'data: {"error":{"message":"x"}}', 'data: {"type":"error"}']
)
def test_an_error_inside_a_stream_is_that_error_in_every_format(api: Api, block: str) -> None:
    """D2, R24: with the provider's own words, and never as text."""
    reading = read(api, [f"{block}\n\n".encode()])
    assert (reading.text, reading.problem) == ("", ErrorReport(block.rpartition("data: ")[2], in_stream=True))


@pytest.mark.parametrize("api", ["responses", "messages"])
@pytest.mark.parametrize(
    "block",
    [
        "event: future\ndata: what is this?",
        'event: future\ndata: {"type":"future","delta":7,"text":"no"}',
        'data: {"type":"future","text":"no","item":[1],"content_block":false}',
        "event: ping\ndata: ...",
        'data: {"type":"ping"}',
        "data: [DONE]",
        "data:",
        ": comment",
    ],
)
def test_an_event_that_we_do_not_know_is_nothing(api: Api, block: str) -> None:
    """Versions to come add events; R24: none becomes text."""
    assert read(api, [f"{block}\n\n".encode()]) == read(api, [b": \n\n"])


def test_garbage_where_an_event_that_we_know_is_due_is_malformed() -> None:
    known: dict[Api, str] = {"responses": "response.output_item.done", "messages": "content_block_delta"}
    for api, name in known.items():
        reading = read(api, [f"event: {name}\ndata: {{not json\n\n".encode()])
        assert isinstance(reading.problem, Malformed)
