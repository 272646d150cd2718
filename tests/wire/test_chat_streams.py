"""Every chat stream of data/streams gives what its .json says, however the network cuts it (D1, D2, D3, D5, D6)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haltline.protocol.conversation import Reasoning, Usage
from haltline.protocol.messages import CallDraft
from haltline.worker.llm.adapters import adapter_for
from haltline.worker.llm.body import BodyReader
from haltline.worker.llm.happenings import ErrorReport, Malformed, ReasoningText, Step, Summary, Text

STREAMS = Path(__file__).parent / "data" / "streams"
NAMES = sorted(path.stem for path in STREAMS.glob("chat-*.sse"))
RANDOM_CUTS = 50


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker learns from one body."""

    text: str
    reasoning: str
    summary: Summary
    problem: ErrorReport | Malformed | None
    steps: int


def read(chunks: Iterable[bytes], content_type: str = "text/event-stream", *, closed: bool = True) -> Reading:
    reader = adapter_for("chat").reader()
    body = BodyReader(reader, content_type)
    happenings = [happening for chunk in chunks for happening in body.feed(chunk)]
    if closed:
        happenings += body.close()
    problems = [one for one in happenings if isinstance(one, ErrorReport | Malformed)]
    assert len(problems) <= 1
    return Reading(
        text="".join(one.text for one in happenings if isinstance(one, Text)),
        reasoning="".join(one.text for one in happenings if isinstance(one, ReasoningText)),
        summary=reader.summary(),
        problem=problems[0] if problems else None,
        steps=sum(isinstance(one, Text | ReasoningText | Step) for one in happenings),
    )


def sample(name: str) -> tuple[bytes, Mapping[str, Any]]:
    return (STREAMS / f"{name}.sse").read_bytes(), json.loads((STREAMS / f"{name}.json").read_text())


def bytewise(data: bytes) -> Iterator[bytes]:
    return (data[i : i + 1] for i in range(len(data)))


def cut_at(data: bytes, places: Iterable[int]) -> Iterator[bytes]:
    start = 0
    for place in sorted(places):
        yield data[start:place]
        start = place
    yield data[start:]


def ending(reading: Reading) -> str:
    """The word of the .json files for how it ended."""
    if reading.problem is not None:
        return "error"
    return reading.summary.finish or "truncated"


def whole_call(call: CallDraft) -> dict[str, object]:
    return {"id": call.provider_id, "name": call.name, "arguments": json.loads(call.arguments_raw.strip() or "{}")}


def cut_call(call: CallDraft) -> dict[str, object]:
    return {"id": call.provider_id, "name": call.name, "arguments_raw": call.arguments_raw}


def assert_expected(reading: Reading, expected: Mapping[str, Any]) -> None:
    assert reading.text == expected["text"]
    assert reading.reasoning == expected["reasoning"]
    calls = reading.summary.calls
    assert [whole_call(call) for call in calls if call.complete] == expected["tool_calls"]
    assert [cut_call(call) for call in calls if not call.complete] == expected.get("incomplete_tool_calls", [])
    usage = expected["usage"]
    assert reading.summary.usage == (None if usage is None else Usage(**usage))
    assert reading.summary.refusal == expected.get("refusal", "")
    if any(pause["ms"] is None for pause in expected.get("pauses", ())):
        assert reading.summary.finish is None  # a timer ends it, see test_llm_worker_limits
        assert reading.problem is None
        return
    assert ending(reading) == expected["finish"]
    assert reading.summary.finish_raw == expected.get("finish_raw", reading.summary.finish_raw)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_reads_as_its_description_says_whole_bytewise_and_cut_anywhere(name: str) -> None:
    data, expected = sample(name)
    closed = not any(pause["ms"] is None for pause in expected.get("pauses", ()))
    kind = expected["content_type"]
    whole = read([data], kind, closed=closed)
    assert_expected(whole, expected)
    assert read(bytewise(data), kind, closed=closed) == whole
    if expected["chunks"]:
        sizes = iter(expected["chunks"])
        places: list[int] = []
        at = 0
        for size in sizes:
            at += size
            places.append(at)
        assert read(cut_at(data, places), kind, closed=closed) == whole
    randomness = random.Random(name)
    for _ in range(RANDOM_CUTS):
        places = [randomness.randrange(len(data) + 1) for _ in range(randomness.randrange(1, 8))]
        assert read(cut_at(data, places), kind, closed=closed) == whole


@given(st.sampled_from(NAMES), st.lists(st.integers(0, 5000), max_size=20))
def test_any_cutting_into_chunks_gives_the_same_reading(name: str, places: list[int]) -> None:
    data, expected = sample(name)
    kind = expected["content_type"]
    assert read(cut_at(data, places), kind) == read([data], kind)


@given(
    st.sampled_from([name for name in NAMES if name != "chat-200-json-completion"]), st.floats(0, 1, exclude_max=True)
)
def test_a_stream_cut_before_its_end_signal_is_truncated_and_has_no_complete_call(name: str, share: float) -> None:
    """D2, D3. What is an end signal is read from the bytes, not asked of the reader."""
    data, expected = sample(name)
    first_end = min(
        (
            at
            for mark in (b'"finish_reason":"', b"[DONE]", b'"error"', b"event: error", b"{not")
            if (at := data.find(mark)) >= 0
        ),
        default=len(data),
    )
    reading = read([data[: int(first_end * share)]], expected["content_type"])
    if expected["content_type"] == "text/event-stream":
        assert ending(reading) == "truncated"
    assert reading.summary.finish is None
    assert not any(call.complete for call in reading.summary.calls)


@given(st.binary(max_size=3000), st.sampled_from(["text/event-stream", "application/json", "text/html", ""]))
@example(b"data: " + b"[" * 100_000 + b"\n\n", "text/event-stream")
@example(b'data: {"choices":[{"delta":{"content":' + b"9" * 5000 + b"}}]}\n\n", "text/event-stream")
@example(b"{" * 100_000, "application/json")
def test_no_bytes_raise(data: bytes, content_type: str) -> None:
    read([data], content_type)


@given(
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
                b'"choices"',
                b"[DONE]",
                b"error",
                b"\xff",
                b"\xef\xbb\xbf",
            ]
        ),
        max_size=40,
    )
)
def test_no_shuffled_pieces_of_a_stream_raise_or_depend_on_chunks(pieces: list[bytes]) -> None:
    assert read(pieces) == read([b"".join(pieces)])


def chunk(delta: str, finish: str = "null", rest: str = "") -> bytes:
    return f'data: {{"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]{rest}}}\n\n'.encode()


def calls_of(*deltas: str, finish: str = '"tool_calls"') -> list[tuple[str, str, str | None, bool]]:
    pieces = [chunk(f'{{"tool_calls":[{delta}]}}') for delta in deltas]
    reading = read([*pieces, chunk("{}", finish), b"data: [DONE]\n\n"])
    assert reading.problem is None
    return [(call.name, call.arguments_raw, call.provider_id, call.complete) for call in reading.summary.calls]


def test_a_known_id_wins_over_a_wrong_index() -> None:
    """R37."""
    assert calls_of(
        '{"index":0,"id":"A","function":{"name":"x","arguments":"{\\"a\\":"}}',
        '{"index":0,"id":"B","function":{"name":"y","arguments":"{\\"b\\":"}}',
        '{"index":1,"function":{"arguments":"2}"}}',
        '{"index":1,"id":"A","function":{"arguments":"1}"}}',
    ) == [("x", '{"a":1}', "A", True), ("y", '{"b":2}', "B", True)]


def test_pieces_without_index_and_id_belong_to_the_call_opened_last() -> None:
    """R36."""
    assert calls_of(
        '{"id":"A","function":{"name":"x","arguments":""}}',
        '{"function":{"arguments":"{\\"a\\""}}',
        '{"function":{"arguments":":1}"}}',
    ) == [("x", '{"a":1}', "A", True)]


def test_glued_objects_are_passed_on_as_they_are() -> None:
    """R38: refused later, with their raw text; never guessed."""
    glued = '{"path":"a"}{"path":"b"}'
    assert calls_of(f'{{"index":0,"id":"A","function":{{"name":"x","arguments":{json.dumps(glued)}}}}}') == [
        ("x", glued, "A", True)
    ]


def test_arguments_that_are_an_object_are_taken_as_written() -> None:
    """R40."""
    assert calls_of('{"index":0,"id":"A","function":{"name":"x","arguments":{"command": "ls"}}}') == [
        ("x", '{"command": "ls"}', "A", True)
    ]


def test_the_same_call_sent_twice_under_one_id_is_one_call() -> None:
    """R43."""
    call = '{{"index":{},"id":"A","function":{{"name":"x","arguments":"{{\\"a\\":1}}"}}}}'
    assert calls_of(call.format(0), call.format(1)) == [("x", '{"a":1}', "A", True)]


def test_another_call_under_a_used_id_loses_the_id() -> None:
    """R43: the provider's id is a hint only."""
    assert calls_of(
        '{"index":0,"id":"A","function":{"name":"x","arguments":"{\\"a\\":1}"}}',
        '{"index":1,"id":"A","function":{"name":"x","arguments":""}}',
        '{"index":1,"id":"A","function":{"arguments":"{\\"a\\":2}"}}',
    ) == [("x", '{"a":1}', "A", True), ("x", '{"a":2}', None, True)]


def test_a_name_repeated_in_every_piece_opens_no_second_call() -> None:
    assert calls_of(
        '{"index":0,"id":"A","function":{"name":"x","arguments":"{\\"a\\":"}}',
        '{"index":0,"id":"A","function":{"name":"x","arguments":"1}"}}',
        '{"index":0,"id":"A","function":{"name":"x","arguments":""}}',
    ) == [("x", '{"a":1}', "A", True)]


def test_a_call_cut_by_the_output_limit_is_incomplete_though_it_parses() -> None:
    """R41, R42: only the last one can be cut."""
    assert calls_of(
        '{"index":0,"id":"A","function":{"name":"x","arguments":"{\\"a\\":1}"}}',
        '{"index":1,"id":"B","function":{"name":"y","arguments":"{\\"b\\":2}"}}',
        finish='"length"',
    ) == [("x", '{"a":1}', "A", True), ("y", '{"b":2}', "B", False)]


def test_no_lone_surrogate_comes_through_in_text_or_arguments() -> None:
    """R87. A pair stays what it is, and an escaped backslash is no escape."""
    reading = read(
        [
            chunk('{"content":"a\\ud83c b"}'),
            chunk('{"content":"\\ud83c\\udf89 \\\\ud83c"}'),
            chunk('{"tool_calls":[{"function":{"name":"x","arguments":"{\\"t\\":\\"\\\\ud83c\\"}"}}]}', '"tool_calls"'),
        ]
    )
    assert reading.text == "a\ufffd b\U0001f389 \\ud83c"
    assert [call.arguments_raw for call in reading.summary.calls] == ['{"t":"\\ufffd"}']


def test_bare_control_characters_inside_strings_are_read() -> None:
    assert read([b'data: {"choices":[{"delta":{"content":"a\tb"},"finish_reason":"stop"}]}\n\n']).text == "a\tb"


def test_reasoning_keeps_the_name_it_came_with_and_counts_once() -> None:
    """D7, R49."""
    reading = read([chunk('{"reasoning_content":"Hm.","reasoning":"Hm."}'), chunk('{"content":"x"}', '"stop"')])
    assert reading.reasoning == "Hm."
    assert reading.summary.reasoning == (Reasoning(text="Hm.", field="reasoning_content"),)


def test_reasoning_of_a_cut_response_is_no_finished_block() -> None:
    """D7, R47."""
    reading = read([chunk('{"reasoning_content":"Hm."}')])
    assert (reading.reasoning, reading.summary.reasoning) == ("Hm.", ())


def test_empty_deltas_and_pings_are_no_progress_of_the_model() -> None:
    """D4, R29: the first chunk says that the model began, later empty ones say nothing."""
    empty = chunk('{"content":""}')
    assert read([chunk('{"role":"assistant"}'), empty, empty, b": ping\n\n", b"event: ping\ndata: {}\n\n"]).steps == 1


def test_reasoning_and_argument_pieces_are_progress() -> None:
    """D4, R30."""
    piece = chunk('{"tool_calls":[{"index":0,"function":{"name":"x","arguments":"{"}}]}')
    assert read([chunk('{"content":null,"reasoning_content":"a"}'), piece, piece]).steps == 3


def test_usage_is_the_largest_of_each_field_never_the_sum() -> None:
    """R61, R64."""
    reports = [
        ',"usage":{"prompt_tokens":100,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":90}}',
        ',"usage":{"prompt_tokens":100,"completion_tokens":50,"prompt_tokens_details":null}',
        ',"usage":{"prompt_tokens":100,"completion_tokens":7}',
    ]
    reading = read([chunk('{"content":"a"}', rest=report) for report in reports])
    assert reading.summary.usage == Usage(input=10, cache_read=90, output=50)


@pytest.mark.parametrize("usage", ['"many"', "[1]", '{"prompt_tokens":"seven"}', "1e999", "7"])
def test_unreadable_usage_does_not_spoil_the_answer(usage: str) -> None:
    reading = read([chunk('{"content":"a"}', '"stop"', f',"usage":{usage}')])
    assert (reading.text, ending(reading), reading.summary.usage) == ("a", "stop", None)


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("MALFORMED_FUNCTION_CALL", "stop"),
        ("tool_use", "tool_calls"),
        ("MAX_TOKENS", "length"),
        ("content_filter: PROHIBITED_CONTENT", "content_filter"),
        ("SAFETY", "content_filter"),
    ],
)
def test_finish_reasons_are_normalised_and_their_words_kept(word: str, finish: str) -> None:
    """D2, R46."""
    summary = read([chunk("{}", f'"{word}"')]).summary
    assert (summary.finish, summary.finish_raw) == (finish, word)


def test_done_alone_is_a_positive_end_signal() -> None:
    reading = read([chunk('{"content":"a"}'), b"data: [DONE]"])
    assert (reading.text, ending(reading), reading.summary.finish_raw) == ("a", "stop", "[DONE]")


def test_a_clean_end_without_finish_and_done_is_truncated() -> None:
    """R27."""
    assert ending(read([chunk('{"content":"a"}') for _ in range(10)])) == "truncated"


def test_the_last_event_counts_without_its_blank_line_and_without_its_line_end() -> None:
    """D5."""
    for tail in (b"\n", b""):
        assert ending(read([chunk("{}", '"stop"').rstrip() + tail])) == "stop"


@pytest.mark.parametrize(
    "data",
    [
        'event: error\ndata: {"error":{"message":"x"}}',
        "event: error\ndata: overloaded, try later",
        'data: {"error":"x"}',
        'data: {"object":"error","message":"x","code":400}',
        'data: {"choices":[{"delta":{},"finish_reason":"error"}]}',
        'data: {"choices":[{"delta":{},"error":{"code":502}}]}',
    ],
)
def test_every_form_of_an_error_inside_a_stream_is_that_error(data: str) -> None:
    """D2: with the provider's own words, whole."""
    reading = read([chunk('{"content":"a"}'), data.encode() + b"\n\n", b"data: [DONE]\n\n"])
    assert (reading.text, reading.problem) == ("a", ErrorReport(data.rpartition("data: ")[2], in_stream=True))


@pytest.mark.parametrize("nothing", ["null", "{}", '""', "false"])
def test_an_empty_error_field_is_no_error(nothing: str) -> None:
    assert ending(read([chunk('{"content":"a"}', '"stop"', f',"error":{nothing}')])) == "stop"


def test_a_whole_answer_that_quotes_error_words_is_an_answer() -> None:
    """D2."""
    words = "The server said: 429 Too Many Requests, context_length_exceeded"
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}]}
    reading = read([json.dumps(body).encode()], "application/json")
    assert (reading.text, ending(reading)) == (words, "stop")


def test_a_json_error_in_place_of_a_stream_is_an_error_whatever_its_content_type() -> None:
    """D2, R25."""
    body = '{"error":{"code":502,"message":"x"}}'
    for content_type in ("application/json", "text/event-stream", "text/plain", ""):
        assert read([body.encode()], content_type).problem == ErrorReport(body, in_stream=False)


def test_a_stream_with_a_wrong_content_type_is_read_as_a_stream() -> None:
    data = b"\xef\xbb\xbf\r\n" + chunk('{"content":"a"}', '"stop"')
    for content_type in ("application/json", "text/plain", ""):
        assert read(bytewise(data), content_type).text == "a"


@pytest.mark.parametrize(
    "body", ["<html><h1>Bad gateway</h1>", "upstream connect error", "data base is down", '"text"']
)
def test_a_page_or_a_text_in_place_of_a_stream_is_malformed_and_not_shown(body: str) -> None:
    """D2, R32."""
    reading = read([body.encode()], "text/html")
    assert isinstance(reading.problem, Malformed)
    assert (reading.text, reading.problem.data, reading.problem.in_stream) == ("", body, False)


def test_an_event_above_eight_mebibytes_is_refused_and_what_came_before_it_is_kept() -> None:
    """L5."""
    pieces = [chunk('{"content":"a"}'), b'data: {"choices":[{"delta":{"content":"'] + [b"x" * 65536] * 129
    reading = read([*pieces, b'"}}]}\n\n', chunk('{"content":"b"}', '"stop"')])
    assert reading.text == "a"
    assert isinstance(reading.problem, Malformed)
