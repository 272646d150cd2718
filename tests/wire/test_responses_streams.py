"""What OpenAI's responses, and gateways that speak them, make of the format (D1 to D7). Its samples are read in
test_streams.py."""

from __future__ import annotations

import json
from functools import partial

import pytest
from support.wire_readings import ending
from support.wire_readings import read as read_any

from haltline.protocol.conversation import Reasoning, Usage
from haltline.worker.llm.happenings import ErrorReport, Malformed

read = partial(read_any, "responses")


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def response(kind: str, **fields: object) -> bytes:
    return event(f"response.{kind}", response={"object": "response", "status": kind, "error": None, **fields})


START = response("created", status="in_progress") + response("in_progress")
END = response("completed")


def text(words: str, **more: object) -> bytes:
    return event("response.output_text.delta", delta=words, **more)


def message(*words: str) -> dict[str, object]:
    return {"type": "message", "content": [{"type": "output_text", "text": one} for one in words]}


def call(
    call_id: str, name: str = "x", arguments: object = "", *, item_id: str = "", status: str = "completed"
) -> dict[str, object]:
    fields = {"call_id": call_id, "name": name, "arguments": arguments, "status": status}
    return {"type": "function_call", **fields, **({"id": item_id} if item_id else {})}


def reasoning(encrypted: str | None, *summary: str, status: str = "completed") -> dict[str, object]:
    parts = [{"type": "summary_text", "text": one} for one in summary]
    return {"id": "rs_1", "type": "reasoning", "summary": parts, "encrypted_content": encrypted, "status": status}


def added(item: object, **place: object) -> bytes:
    return event("response.output_item.added", item=item, **place)


def done(item: object, **place: object) -> bytes:
    return event("response.output_item.done", item=item, **place)


def piece(arguments: str, **place: object) -> bytes:
    return event("response.function_call_arguments.delta", delta=arguments, **place)


def calls_of(*events: bytes, end: bytes = END) -> list[tuple[str | None, str, str, bool]]:
    reading = read([START, *events, end])
    assert reading.problem is None
    return [(one.provider_id, one.name, one.arguments_raw, one.complete) for one in reading.summary.calls]


def test_done_alone_is_no_end() -> None:
    """D2: nor is the end of the text."""
    body = START + text("a") + event("response.output_text.done", text="a") + b"data: [DONE]\n\n"
    assert ending(read([body])) == "truncated"
    assert ending(read([body + END])) == "stop"


@pytest.mark.parametrize(
    ("details", "finish", "raw"),
    [
        ({"reason": "max_output_tokens"}, "length", "max_output_tokens"),
        ({"reason": "content_filter"}, "content_filter", "content_filter"),
        ({"reason": "something_new"}, "length", "something_new"),
        (None, "length", "incomplete"),
    ],
)
def test_an_incomplete_response_says_why(details: object, finish: str, raw: str) -> None:
    """D2: whatever event it ends with."""
    for end in ("incomplete", "completed"):
        summary = read([START + response(end, status="incomplete", incomplete_details=details)]).summary
        assert (summary.finish, summary.finish_raw) == (finish, raw)


def test_a_failed_response_reports_its_error_without_our_own_request_beside_it() -> None:
    """A5: the response repeats its instructions, whose words are no evidence."""
    error = {"code": "rate_limit_exceeded", "message": "Slow down."}
    instructions = "If the context window is exceeded, your API key is invalid."
    for end in ("failed", "completed"):
        reading = read([START + text("a") + response(end, status="failed", error=error, instructions=instructions)])
        assert (reading.text, ending(reading)) == ("a", "error")
        assert isinstance(reading.problem, ErrorReport)
        assert json.loads(reading.problem.data) == {"error": error}


def test_a_refusal_is_a_refusal_though_the_response_is_complete() -> None:
    """D2: in pieces, or only at an end."""
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    pieces = event("response.refusal.delta", delta="I ") + event("response.refusal.delta", delta="cannot.")
    for body in (pieces + done(refusal) + response("completed", output=[refusal]), done(refusal) + END):
        summary = read([START + body]).summary
        assert (summary.finish, summary.refusal) == ("content_filter", "I cannot.")
    assert read([START + response("completed", output=[refusal])]).summary.refusal == "I cannot."


def test_a_text_that_comes_three_times_counts_once_whichever_comes_first() -> None:
    whole = response("completed", output=[message("Hi", " there")])
    for body in (
        text("Hi") + text(" there") + done(message("Hi", " there")) + whole,
        done(message("Hi", " there")) + whole,
        whole,
    ):
        assert read([START + body]).text == "Hi there"


def test_a_second_message_that_came_whole_is_not_lost_behind_a_first_one_in_pieces() -> None:
    assert read([START + text("One. ") + done(message("One. ")) + done(message("Two.")) + END]).text == "One. Two."


def test_calls_are_found_by_their_place_where_ids_change_from_event_to_event() -> None:
    """R37. The provider's id of a call is its `call_id`."""
    assert calls_of(
        added(call("c1", "a", item_id="i1"), output_index=0),
        added(call("c2", "b", item_id="i2"), output_index=1),
        piece('{"b":', output_index=1, item_id="i3"),
        piece('{"a":1}', output_index=0, item_id="i4"),
        piece("2}", output_index=1, item_id="i5"),
        done(call("c2", "b", '{"b":2}', item_id="i6"), output_index=1),
        done(call("c1", "a", '{"a":1}', item_id="i7"), output_index=0),
    ) == [("c1", "a", '{"a":1}', True), ("c2", "b", '{"b":2}', True)]


def test_calls_are_found_by_their_ids_where_all_have_the_same_place() -> None:
    """R37."""
    assert calls_of(
        added(call("c1", "a", item_id="i1"), output_index=0),
        added(call("c2", "b", item_id="i2"), output_index=0),
        piece('{"a":1}', output_index=0, item_id="i1"),
        piece('{"b":2}', output_index=0, item_id="i2"),
    ) == [("c1", "a", '{"a":1}', True), ("c2", "b", '{"b":2}', True)]


def test_pieces_without_place_and_id_belong_to_the_call_opened_last() -> None:
    """R36."""
    assert calls_of(added(call("c1", "a")), piece("{"), piece("}")) == [("c1", "a", "{}", True)]


def test_a_call_that_came_whole_at_an_end_alone_is_a_call() -> None:
    whole = call("c1", "a", '{"a":1}')
    expected = [("c1", "a", '{"a":1}', True)]
    assert calls_of(done(whole)) == expected
    assert calls_of(end=response("completed", output=[whole])) == expected
    assert calls_of(done(whole, output_index=0), end=response("completed", output=[whole])) == expected
    two = [done(whole, output_index=0), done(call("c2", "b", "{}"), output_index=0)]
    assert calls_of(*two) == [*expected, ("c2", "b", "{}", True)]


def test_the_argument_text_at_a_calls_end_wins_over_the_pieces() -> None:
    ends = event("response.function_call_arguments.done", output_index=0, arguments='{"a":1}')
    assert calls_of(added(call("c1"), output_index=0), piece('{"a"', output_index=0), ends) == [
        ("c1", "x", '{"a":1}', True)
    ]


def test_arguments_that_are_an_object_are_taken_as_written() -> None:
    """R40."""
    assert calls_of(done(call("c1", "x", {"command": "ls"}))) == [("c1", "x", '{"command": "ls"}', True)]


def test_a_call_that_has_not_ended_in_a_response_that_was_cut_is_incomplete_though_it_parses() -> None:
    """R41, R42."""
    cut = response("incomplete", incomplete_details={"reason": "max_output_tokens"})
    for last in (
        added(call("c2", "b", "{}"), output_index=1),
        done(call("c2", "b", "{}", status="incomplete"), output_index=1),
    ):
        assert calls_of(done(call("c1", "a", "{}"), output_index=0), last, end=cut) == [
            ("c1", "a", "{}", True),
            ("c2", "b", "{}", False),
        ]


def test_the_same_call_sent_twice_under_one_id_is_one_call_and_another_one_loses_the_id() -> None:
    """R43."""
    items = [call("c1", "x", arguments) for arguments in ("{}", "{}", '{"a":1}')]
    assert calls_of(end=response("completed", output=items)) == [("c1", "x", "{}", True), (None, "x", '{"a":1}', True)]


def test_reasoning_is_kept_encrypted_with_its_place_and_not_at_all_without() -> None:
    """D7: nothing is stored at the provider's, so what is not encrypted can be read by nobody again."""
    body = (
        START
        + event("response.reasoning_summary_text.delta", delta="Look first.")
        + done(reasoning("e1", "Look first."), output_index=0)
        + text("So: ")
        + done(message("So: "), output_index=1)
        + done(reasoning(None, "Unsealed."), output_index=2)
        + done(call("c1", "a", "{}"), output_index=3)
        + done(reasoning("e2"), output_index=4)
        + done(call("c2", "b", "{}"), output_index=5)
        + done(reasoning("e3", status="incomplete"), output_index=6)
    )
    reading = read([body + END])
    assert reading.reasoning == "Look first.Unsealed."
    assert reading.summary.reasoning == (
        Reasoning(text="Look first.", field="encrypted_content", opaque="e1", item_id="rs_1"),
        Reasoning(text="", field="encrypted_content", opaque="e2", item_id="rs_1", after_text=4, after_calls=1),
    )
    assert read([body]).summary.reasoning == ()
    only_at_the_end = response("completed", output=[reasoning("e1"), message("a")])
    assert read([START + only_at_the_end]).summary.reasoning == (
        Reasoning(text="", field="encrypted_content", opaque="e1", item_id="rs_1"),
    )


def test_usage_takes_the_cached_tokens_out_of_the_input() -> None:
    """D6, R64."""
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 90}, "output_tokens": 7}
    assert read([START + response("completed", usage=usage)]).summary.usage == Usage(input=10, cache_read=90, output=7)
    failed = response("failed", usage=usage, error={"code": "server_error"})
    assert read([START + failed]).summary.usage == Usage(input=10, cache_read=90, output=7)


@pytest.mark.parametrize("usage", ["many", [1], {"input_tokens": "seven"}, 7])
def test_unreadable_usage_does_not_spoil_the_answer(usage: object) -> None:
    reading = read([START + text("a") + response("completed", usage=usage)])
    assert (reading.text, ending(reading), reading.summary.usage) == ("a", "stop", None)


def test_a_whole_response_in_place_of_a_stream_is_an_answer_or_an_error() -> None:
    """D2, R25."""
    whole = {
        "object": "response",
        "status": "completed",
        "error": None,
        "output": [reasoning("e1", "Hm."), message("The server said: rate_limit_exceeded."), call("c1", "a", "{}")],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    reading = read([json.dumps(whole).encode()], "application/json")
    assert (reading.text, reading.reasoning, ending(reading)) == (
        "The server said: rate_limit_exceeded.",
        "Hm.",
        "tool_calls",
    )
    assert [(one.name, one.complete) for one in reading.summary.calls] == [("a", True)]
    assert reading.summary.usage == Usage(input=3, output=4)
    failed = whole | {"status": "failed", "error": {"code": "server_error", "message": "x"}}
    problem = read([json.dumps(failed).encode()], "application/json").problem
    assert problem == ErrorReport('{"error":{"code": "server_error", "message": "x"}}', in_stream=False)
    queued = json.dumps(whole | {"status": "queued"}).encode()
    assert isinstance(read([queued], "application/json").problem, Malformed)


def test_an_accepted_request_and_an_announced_reasoning_are_no_events_of_the_model() -> None:
    """D4, R31: it may be silent for long after them."""
    announced = added({"type": "reasoning", "summary": []}, output_index=0)
    assert read([START, announced, event("response.web_search_call.searching"), text("")]).steps == 0
    pieces = [text("a"), event("response.reasoning_text.delta", delta="b"), piece("{"), piece("}")]
    assert read([START, announced, *pieces]).steps == 4


def test_no_lone_surrogate_comes_through_in_text_or_arguments() -> None:
    """R87."""
    body = START + text("@ b") + done(call("c1", "x", '{"t":"%"}')) + END
    reading = read([body.replace(b"@", b"a\\ud83c").replace(b"%", b"\\\\ud83c")])
    assert reading.text == "a\ufffd b"
    assert [one.arguments_raw for one in reading.summary.calls] == ['{"t":"\\ufffd"}']


def test_a_known_event_of_another_shape_is_malformed() -> None:
    assert isinstance(read([START, event("response.output_item.done", item="call")]).problem, Malformed)
