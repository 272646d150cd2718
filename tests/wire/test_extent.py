"""One answer is bounded as a whole, whatever it is made of (G6, F1). Its text took the supervisor to 1.5 GiB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from haltline.worker.llm.adapters import adapter_for
from haltline.worker.llm.body import BodyReader
from haltline.worker.llm.extent import MAX_ANSWER_BYTES, MAX_CALLS
from haltline.worker.llm.happenings import AnyHappening, Malformed, ReasoningText, Text

PIECE_BYTES = 64 * 1024
FIT = MAX_ANSWER_BYTES // PIECE_BYTES
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def event(delta: dict[str, Any]) -> bytes:
    return f"data: {json.dumps({'choices': [{'delta': delta}]}, ensure_ascii=False)}\n\n".encode()


def call(*, index: int = 0, id_: str = "", name: str = "", arguments: str = "") -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "id": id_, "function": {"name": name, "arguments": arguments}}]}


def read(chunks: Iterable[bytes]) -> list[AnyHappening]:
    body = BodyReader(adapter_for("chat").reader(), "text/event-stream")
    return [happening for chunk in chunks for happening in body.feed(chunk)]


def problems(happenings: list[AnyHappening]) -> list[AnyHappening]:
    return [happening for happening in happenings if isinstance(happening, Malformed)]


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
