"""One answer is bounded as a whole, whatever it is made of (G6, F1). Its text took the supervisor to 1.5 GiB."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from haltline.protocol.kinds import Api
from haltline.worker.llm.adapters import adapter_for
from haltline.worker.llm.body import BodyReader
from haltline.worker.llm.extent import BLOCK_BYTES, MAX_ANSWER_BYTES, MAX_CALLS
from haltline.worker.llm.happenings import AnyHappening, Malformed, ReasoningText, Text

PIECE_BYTES = 64 * 1024
FIT = MAX_ANSWER_BYTES // PIECE_BYTES
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def data(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def event(delta: dict[str, Any]) -> bytes:
    return data({"choices": [{"delta": delta}]})


def call(*, index: int = 0, id_: str = "", name: str = "", arguments: str = "") -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "id": id_, "function": {"name": name, "arguments": arguments}}]}


def read(chunks: Iterable[bytes], api: Api = "chat") -> list[AnyHappening]:
    body = BodyReader(adapter_for(api).reader(), "text/event-stream")
    return [happening for chunk in chunks for happening in body.feed(chunk)]


def problems(happenings: list[AnyHappening]) -> list[AnyHappening]:
    return [happening for happening in happenings if isinstance(happening, Malformed)]


ENOUGH_S = 3.0
"""The linear way takes below 0.5 s on any machine; the quadratic one 10 s and more."""

LONG = "x" * PIECE_BYTES
TOO_LONG = Malformed("the answer is longer than 8 MiB", "", in_stream=True)
TOO_MANY = Malformed("the answer has more than 512 calls", "", in_stream=True)

KINDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "text": lambda _: {"content": LONG},
    "text in two-byte characters": lambda _: {"content": "\u00e9" * (PIECE_BYTES // 2)},
    "reasoning": lambda _: {"reasoning_content": LONG},
    "refusal": lambda _: {"refusal": LONG},
    "arguments": lambda _: call(arguments=LONG),
    "names": lambda number: call(index=number, name=LONG),
    "ids": lambda number: call(index=number, id_=f"{number:0{PIECE_BYTES}}"),
    "a bit of everything": lambda number: ({"content": LONG}, {"reasoning": LONG}, call(arguments=LONG))[number % 3],
}


@pytest.mark.parametrize("delta", KINDS.values(), ids=KINDS)
def test_an_answer_of_8_mib_is_read_and_a_longer_one_refused(delta: Callable[[int], dict[str, Any]]) -> None:
    pieces = [event(delta(number)) for number in range(2 * FIT)]
    assert problems(read([*pieces[:FIT], END])) == []
    assert problems(read([*pieces, END])) == [TOO_LONG]


def test_nothing_of_what_is_too_much_is_passed_on() -> None:
    shown = [one for one in read([event({"content": LONG})] * (3 * FIT)) if isinstance(one, Text | ReasoningText)]
    assert sum(len(one.text) for one in shown) == MAX_ANSWER_BYTES


def test_512_calls_are_read_and_one_more_refused() -> None:
    calls = [event(call(index=number, id_=f"c{number}", name="shell")) for number in range(MAX_CALLS + 1)]
    assert problems(read([*calls[:-1], END])) == []
    assert problems(read([*calls, END])) == [TOO_MANY]
    at_once = {"tool_calls": [{"index": number, "id": f"c{number}"} for number in range(MAX_CALLS + 1)]}
    assert problems(read([event(at_once), END])) == [TOO_MANY]


def test_an_id_and_a_name_in_every_piece_make_an_answer_no_longer() -> None:
    """Servers repeat them; they are held once."""
    piece = event(call(id_="call_" + "0" * 1000, name="shell", arguments="x"))
    assert problems(read([*[piece] * (2 * MAX_ANSWER_BYTES // 1000), END])) == []


def block(number: int, kind: str, **fields: str) -> bytes:
    return data({"type": "content_block_start", "index": number, "content_block": {"type": kind, **fields}})


def block_delta(number: int, kind: str, **fields: str) -> bytes:
    return data({"type": "content_block_delta", "index": number, "delta": {"type": kind, **fields}})


def item(number: int, kind: str, **fields: str) -> bytes:
    return data({"type": "response.output_item.done", "output_index": number, "item": {"type": kind, **fields}})


def delta(kind: str, text: str) -> bytes:
    return data({"type": f"response.{kind}.delta", "output_index": 0, "delta": text})


OTHERS: dict[str, tuple[Api, Callable[[int], bytes]]] = {
    "messages: text": ("messages", lambda _: block_delta(0, "text_delta", text=LONG)),
    "messages: text in the block itself": ("messages", lambda number: block(number, "text", text=LONG)),
    "messages: thinking": ("messages", lambda _: block_delta(0, "thinking_delta", thinking=LONG)),
    "messages: signatures": ("messages", lambda number: block(number, "thinking", signature=LONG)),
    "messages: redacted": ("messages", lambda number: block(number, "redacted_thinking", data=LONG)),
    "messages: arguments": (
        "messages",
        lambda number: (
            block_delta(0, "input_json_delta", partial_json=LONG)
            if number
            else block(0, "tool_use", id="t") + block_delta(0, "input_json_delta", partial_json=LONG)
        ),
    ),
    "messages: names": ("messages", lambda number: block(number, "tool_use", name=LONG)),
    "responses: text": ("responses", lambda _: delta("output_text", LONG)),
    "responses: reasoning": ("responses", lambda _: delta("reasoning_text", LONG)),
    "responses: refusal": ("responses", lambda _: delta("refusal", LONG)),
    "responses: encrypted": ("responses", lambda number: item(number, "reasoning", encrypted_content=LONG)),
    "responses: arguments at an end": (
        "responses",
        lambda number: item(number, "function_call", call_id="c", name="x", arguments=LONG),
    ),
    "responses: arguments in pieces": (
        "responses",
        lambda number: (
            delta("function_call_arguments", LONG)
            if number
            else item(0, "function_call", call_id="c") + delta("function_call_arguments", LONG)
        ),
    ),
}


@pytest.mark.parametrize(("api", "piece"), OTHERS.values(), ids=OTHERS)
def test_the_other_formats_have_the_same_bound(api: Api, piece: Callable[[int], bytes]) -> None:
    pieces = [piece(number) for number in range(FIT + 2)]
    assert problems(read(pieces[: FIT - 1], api)) == []
    assert problems(read(pieces, api)) == [TOO_LONG]


CALLS: dict[Api, Callable[[int], bytes]] = {
    "messages": lambda number: block(number, "tool_use", id=f"t{number}", name="shell"),
    "responses": lambda number: item(number, "function_call", call_id=f"c{number}", name="shell"),
}


@pytest.mark.parametrize("api", CALLS)
def test_512_calls_are_read_in_the_other_formats_and_one_more_refused(api: Api) -> None:
    calls = [CALLS[api](number) for number in range(MAX_CALLS + 1)]
    assert problems(read(calls[:-1], api)) == []
    assert problems(read(calls, api)) == [TOO_MANY]


ENDLESS: dict[Api, Callable[[int], bytes]] = {
    "messages": lambda number: block(number, "redacted_thinking", data="x"),
    "responses": lambda number: item(number, "reasoning", encrypted_content="x"),
}


@pytest.mark.ci
@pytest.mark.parametrize("api", ENDLESS)
def test_reasoning_in_crumbs_is_too_much_before_it_is_8_mib_of_text(api: Api) -> None:
    """G6: each of them is kept as an object of its own."""
    assert problems(read((ENDLESS[api](number) for number in range(MAX_ANSWER_BYTES // BLOCK_BYTES + 1)), api)) == [
        TOO_LONG
    ]


def test_an_end_repeated_for_ever_costs_no_more_each_the_longer_the_arguments_are() -> None:
    """L5: all that had come was joined once per event."""
    pieces = [delta("function_call_arguments", LONG)] * (FIT - 1)
    ends = [data({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": ""})] * 10_000
    began = time.process_time()
    assert problems(read([CALLS["responses"](0), *pieces, *ends], "responses")) == []
    assert time.process_time() - began < ENOUGH_S


MANY: dict[Api, str] = {
    "chat": '{"choices":[%s]}',
    "messages": '{"type":"content_block_start","content_block":{"type":"tool_use","input":[%s]}}',
    "responses": '{"type":"response.completed","response":{"output":[%s]}}',
}


@pytest.mark.parametrize("api", MANY)
def test_an_event_of_millions_of_objects_is_refused_before_it_is_decoded(api: Api) -> None:
    """L5, G6: 8 MiB of empty ones held the loop for 1.3 s and took hundreds of MiB."""
    (problem,) = read([b"data: " + (MANY[api] % ",".join(["{}"] * 2_000_000)).encode() + b"\n\n"], api)
    assert isinstance(problem, Malformed)
    assert problem.words == "JSON of more than 50,000 objects"


HALVES: dict[str, tuple[Api, bytes]] = {
    "chat: text": ("chat", event({"content": "%"})),
    "chat: arguments": ("chat", event(call(arguments="%"))),
    "messages": ("messages", block_delta(0, "text_delta", text="%")),
    "responses": ("responses", delta("output_text", "%")),
}


@pytest.mark.parametrize(("api", "data"), HALVES.values(), ids=HALVES)
def test_an_event_of_millions_of_half_characters_is_refused(api: Api, data: bytes) -> None:
    """L5: replacing them one by one took 0.5 s."""
    (problem,) = read([data.replace(b"%", b"\\ud83c" * 1_000_000)], api)
    assert isinstance(problem, Malformed)
    assert problem.words == "not JSON: more than 50,000 half characters"
