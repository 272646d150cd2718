"""The scripted gateway with one more scenario, `puppet`: a model that does what the prompt orders.

As a program (`python -I puppet_gateway.py [--log FILE | --fd NUMBER]`) it is the gateway itself, log and all; as a
module it makes the prompts and reads what the model was sent.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from haltline.gateway.conversation import Turn
from haltline.gateway.main import main, run_on
from haltline.gateway.scenarios import NO_WINDOW_NAMED, RATE_LIMITED, SCENARIOS, Scenario
from haltline.gateway.steps import End, Fault, Hang, HttpError, Piece, Step, ToolCall

PROGRAM = (os.path.abspath(__file__),)
"""For scripted_gateway.running."""
TURNS = 2
DONE = "done"
"""What the model says to anything that is no order, and after the results of its calls."""


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt that orders a response: these parts, in this order; then the response ends well, unless it hangs."""

    refused_for_s: int = 0
    """429 with this `retry-after`, on every request."""
    text: str = ""
    calls: tuple[tuple[str, dict[str, object]], ...] = ()
    begun_call: str = ""
    """The name of a call of which half the arguments come."""
    hangs: bool = False
    too_long: bool = False
    """The same response TURNS times; what comes after the results does not fit, and a summary of it hangs."""

    @property
    def prompt(self) -> str:
        return msgspec.json.encode(self).decode()


def shell(*commands: str) -> tuple[tuple[str, dict[str, object]], ...]:
    return tuple(("shell", {"command": command}) for command in commands)


def background(command: str) -> tuple[tuple[str, dict[str, object]], ...]:
    return (("shell", {"command": command, "background": True}),)


@dataclass(frozen=True)
class Said:
    """One message of a request, as the model reads it."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    """Names, of an assistant's message."""


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _Call(msgspec.Struct, frozen=True):
    id: str
    function: _Function


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | None = None
    tool_calls: tuple[_Call, ...] = ()
    tool_call_id: str | None = None


class _Body(msgspec.Struct, frozen=True):
    messages: tuple[_Message, ...]


def broken_rule(body: object) -> str | None:
    """What a strict provider would refuse this request for, None if nothing (K1, R74, R48): each call has exactly one
    result, right behind its message and in order; no result without a call; no empty message."""
    open_calls: list[str] = []
    for message in msgspec.convert(body, _Body).messages:
        if message.role == "tool":
            if not open_calls or message.tool_call_id != open_calls.pop(0):
                return f"a result in no place of its own: {message}"
            continue
        if open_calls:
            return f"{open_calls} have no result before {message}"
        if not message.content and not message.tool_calls:
            return f"an empty message: {message}"
        for call in message.tool_calls:
            json.loads(call.function.arguments)
        open_calls = [call.id for call in message.tool_calls]
    return f"{open_calls} have no result" if open_calls else None


def told_between(body: object, first: str, last: str) -> list[Said]:
    """What stands between two prompts."""
    said = [
        Said(message.role, message.content or "", tuple(call.function.name for call in message.tool_calls))
        for message in msgspec.convert(body, _Body).messages
    ]
    return said[said.index(Said("user", first)) + 1 : said.index(Said("user", last))]


def puppet(turn: Turn) -> Iterator[Step]:
    order = _order(turn)
    if not turn.request.tools:
        yield Piece("so far ")
        yield Hang()
        return
    if order is not None and order.too_long:
        yield from _too_long(turn, order)
        return
    if order is None or turn.request.messages[-1].role == "tool":
        yield Piece(DONE)
        yield End()
        return
    if order.refused_for_s:
        headers = (("retry-after", str(order.refused_for_s)),)
        yield HttpError(status=429, fault=RATE_LIMITED, headers=headers)
        return
    if order.text:
        yield Piece(order.text)
    for name, arguments in order.calls:
        yield ToolCall(name, json.dumps(arguments))
    if order.begun_call:
        yield ToolCall(order.begun_call, '{"path": "notes.txt", "content": "line 1\\nline 2\\nli')
    yield Hang() if order.hangs else End("tool_calls" if order.calls else "stop")


def _too_long(turn: Turn, order: Order) -> Iterator[Step]:
    if len(turn.results) == TURNS * len(order.calls):
        yield HttpError(status=400, fault=Fault(kind="overflow", message=NO_WINDOW_NAMED))
        return
    yield Piece(order.text)
    for name, arguments in order.calls:
        yield ToolCall(name, json.dumps(arguments))
    yield End("tool_calls")


def _order(turn: Turn) -> Order | None:
    """The last word of the user's, if it is an order."""
    prompt = next((message.text for message in reversed(turn.request.messages) if message.role == "user"), "")
    try:
        return msgspec.json.decode(prompt, type=Order)
    except msgspec.DecodeError:
        return None


if __name__ == "__main__":
    SCENARIOS["puppet"] = Scenario(script=puppet, about="does what the prompt orders")
    if sys.argv[1:2] == ["--fd"]:
        run_on(socket.socket(fileno=int(sys.argv[2])), scenario="puppet", log=sys.argv[3])
    else:
        sys.exit(main())
