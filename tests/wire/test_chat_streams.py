"""What chat servers make of the format (D1 to D6, R36 to R51). Its samples are read in test_streams.py."""

from __future__ import annotations

import json
from functools import partial

import pytest
from support.wire_readings import bytewise, ending
from support.wire_readings import read as read_any

from haltline.protocol.conversation import Reasoning, Usage
from haltline.worker.llm.happenings import ErrorReport, Malformed

read = partial(read_any, "chat")


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
