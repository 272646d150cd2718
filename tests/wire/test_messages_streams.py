"""What Anthropic's messages, and gateways that speak them, make of the format (D1 to D7). Its samples are read in
test_streams.py."""

from __future__ import annotations

import json
from functools import partial

import pytest
from support.wire_readings import ending
from support.wire_readings import read as read_any

from haltline.protocol.conversation import Reasoning, Usage
from haltline.worker.llm.happenings import Malformed

read = partial(read_any, "messages")


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


START = event("message_start", message={"usage": {"input_tokens": 25, "output_tokens": 1}})
STOP = event("message_stop")


def block(index: int, kind: str, **fields: object) -> bytes:
    return event("content_block_start", index=index, content_block={"type": kind, **fields})


def delta(index: int, kind: str, **fields: object) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, **fields})


def text(index: int, words: str) -> bytes:
    return delta(index, "text_delta", text=words)


def closed(index: int) -> bytes:
    return event("content_block_stop", index=index)


def ends(reason: str, **more: object) -> bytes:
    return event("message_delta", delta={"stop_reason": reason}, **more) + STOP


def thought(index: int, words: str, signature: str) -> bytes:
    return (
        block(index, "thinking", thinking="", signature="")
        + delta(index, "thinking_delta", thinking=words)
        + (delta(index, "signature_delta", signature=signature) if signature else b"")
    )


def called(index: int, id_: str, name: str, *pieces: str) -> bytes:
    opened = block(index, "tool_use", id=id_, name=name, input={})
    return opened + b"".join(delta(index, "input_json_delta", partial_json=piece) for piece in pieces)


def test_a_stop_reason_without_the_last_event_is_truncated() -> None:
    """D2, R24: `message_stop` alone says that nothing is missing."""
    body = START + block(0, "text", text="") + text(0, "a") + closed(0) + event("message_delta", delta={})
    assert ending(read([body])) == "truncated"
    assert ending(read([body.replace(b'"delta": {}', b'"delta": {"stop_reason": "end_turn"}')])) == "truncated"
    reading = read([body + STOP])
    assert (ending(reading), reading.text) == ("stop", "a")


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("something_new", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "content_filter"),
    ],
)
def test_stop_reasons_are_normalised_and_their_words_kept(reason: str, finish: str) -> None:
    """D2. A paused turn is one that goes on, like one that was cut."""
    summary = read([START + ends(reason)]).summary
    assert (summary.finish, summary.finish_raw) == (finish, reason)


def test_an_end_without_a_reason_is_what_came_before_it() -> None:
    assert ending(read([START + called(0, "t1", "x", "{}") + closed(0) + STOP])) == "tool_calls"


def test_a_refusal_says_why() -> None:
    details = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "No such thing."}}
    summary = read([START + event("message_delta", delta=details) + STOP]).summary
    assert (summary.finish, summary.refusal) == ("content_filter", "No such thing.")


def test_a_signed_block_is_kept_with_its_place_and_an_unsigned_or_open_one_is_not() -> None:
    """D7, R47."""
    body = (
        START
        + thought(0, "One. ", "s1")
        + closed(0)
        + block(1, "text", text="")
        + text(1, "So: ")
        + closed(1)
        + thought(2, "Two. ", "s2")
        + closed(2)
        + block(3, "redacted_thinking", data="b3BhcXVl")
        + closed(3)
        + called(4, "t1", "x", "{}")
        + closed(4)
        + thought(5, "Unsigned. ", "")
        + closed(5)
        + thought(6, "Open. ", "s6")
    )
    reading = read([body + ends("tool_use")])
    assert reading.reasoning == "One. Two. Unsigned. Open. "
    assert reading.summary.reasoning == (
        Reasoning(text="One. ", field="thinking", signature="s1"),
        Reasoning(text="Two. ", field="thinking", signature="s2", after_text=4),
        Reasoning(text="", field="redacted_thinking", opaque="b3BhcXVl", after_text=4),
    )
    assert read([body]).summary.reasoning == ()


def test_thinking_that_is_not_shown_is_kept_by_its_signature() -> None:
    body = START + block(0, "thinking", thinking="", signature="") + delta(0, "signature_delta", signature="s")
    reading = read([body + closed(0) + block(1, "text", text="a") + ends("end_turn")])
    assert reading.summary.reasoning == (Reasoning(text="", field="thinking", signature="s"),)


def test_the_last_call_of_a_response_that_was_cut_is_incomplete_though_its_block_is_closed_and_parses() -> None:
    """R41, R42."""
    body = START + called(0, "t1", "x", '{"a":1}') + closed(0) + called(1, "t2", "y", '{"b":2}') + closed(1)
    calls = read([body + ends("max_tokens")]).summary.calls
    assert [(call.name, call.complete) for call in calls] == [("x", True), ("y", False)]
    cut_in_text = body + block(2, "text", text="") + text(2, "And n")
    calls = read([cut_in_text + ends("max_tokens")]).summary.calls
    assert [call.complete for call in calls] == [True, True]


def test_arguments_that_came_with_their_block_are_taken_as_written_and_pieces_win_over_them() -> None:
    """R40: gateways that do not stream arguments."""
    whole = block(0, "tool_use", id="t1", name="x", input={"a": 1}) + closed(0)
    assert [call.arguments_raw for call in read([START + whole + ends("tool_use")]).summary.calls] == ['{"a": 1}']
    pieces = whole.replace(closed(0), delta(0, "input_json_delta", partial_json='{"a":2}') + closed(0))
    assert [call.arguments_raw for call in read([START + pieces + ends("tool_use")]).summary.calls] == ['{"a":2}']


def test_deltas_without_an_index_belong_to_the_block_opened_last() -> None:
    """R36."""
    pieces = [called(0, "t1", "x") + closed(0), called(1, "t2", "y")]
    piece = event("content_block_delta", delta={"type": "input_json_delta", "partial_json": '{"b":2}'})
    calls = read([START, *pieces, piece, event("content_block_stop"), ends("tool_use")]).summary.calls
    assert [(call.name, call.arguments_raw) for call in calls] == [("x", ""), ("y", '{"b":2}')]


def test_the_same_call_sent_twice_under_one_id_is_one_call_and_another_one_loses_the_id() -> None:
    """R43."""
    body = b"".join(called(i, "t1", "x", arguments) + closed(i) for i, arguments in enumerate(("{}", "{}", '{"a":1}')))
    calls = read([START + body + ends("tool_use")]).summary.calls
    assert [(call.provider_id, call.arguments_raw) for call in calls] == [("t1", "{}"), (None, '{"a":1}')]


def test_usage_is_the_largest_of_each_field_in_four_parts() -> None:
    """D6, R61, R64: the input excludes what was cached; counts of later events are totals."""
    start = {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 1}
    body = event("message_start", message={"usage": start})
    body += event("message_delta", delta={}, usage={"output_tokens": 40})
    body += event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 30, "input_tokens": 0})
    usage = read([body + STOP]).summary.usage
    assert usage == Usage(input=10, cache_read=90, cache_write=5, output=40)


@pytest.mark.parametrize("usage", ["many", [1], {"input_tokens": "seven"}, 7, None])
def test_unreadable_usage_does_not_spoil_the_answer(usage: object) -> None:
    body = event("message_start", message={"usage": usage}) + block(0, "text", text="a") + ends("end_turn", usage=usage)
    reading = read([body])
    assert (reading.text, ending(reading), reading.summary.usage) == ("a", "stop", None)


def test_a_whole_message_in_place_of_a_stream_is_an_answer() -> None:
    """D2."""
    message = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "The server said overloaded_error."},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"d": "."}},
            {"type": "future", "text": "no"},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    reading = read([json.dumps(message).encode()], "application/json")
    assert (reading.text, reading.reasoning, ending(reading)) == (
        "The server said overloaded_error.",
        "Hm.",
        "tool_calls",
    )
    assert [(call.name, call.arguments_raw, call.complete) for call in reading.summary.calls] == [
        ("ls", '{"d": "."}', True)
    ]
    assert reading.summary.reasoning == (Reasoning(text="Hm.", field="thinking", signature="s"),)
    assert reading.summary.usage == Usage(input=3, output=4)


def test_pings_and_empty_deltas_are_no_progress_of_the_model_and_pieces_are() -> None:
    """D4, R29, R30."""
    nothing = [event("ping"), text(0, ""), delta(0, "future_delta", q=1), block(9, "future_block")]
    assert read([START, *nothing, START]).steps == 1
    pieces = [text(0, "a"), delta(0, "thinking_delta", thinking="b"), called(1, "t1", "x", "{", "}")]
    assert read([START, *pieces]).steps == 6


def test_no_lone_surrogate_comes_through_in_text_or_arguments() -> None:
    """R87."""
    body = START + text(0, "@ b") + called(1, "t1", "x", '{"t":"%"}') + closed(1) + ends("tool_use")
    body = body.replace(b"@", b"a\\ud83c").replace(b"%", b"\\\\ud83c")
    reading = read([body])
    assert reading.text == "a\ufffd b"
    assert [call.arguments_raw for call in reading.summary.calls] == ['{"t":"\\ufffd"}']


def test_the_last_event_counts_without_its_blank_line() -> None:
    """D5."""
    assert ending(read([START + ends("end_turn").rstrip()])) == "stop"


def test_a_known_event_of_another_shape_is_malformed() -> None:
    reading = read([START, event("content_block_delta", index=0, delta="text")])
    assert isinstance(reading.problem, Malformed)
