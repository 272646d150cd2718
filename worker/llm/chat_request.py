"""The conversation as the body of a chat-completions request."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from haltline.protocol.conversation import AssistantMessage, Item, ToolCall, ToolResult, UserMessage
from haltline.protocol.messages import StartAttempt
from haltline.worker.llm.request_parts import arguments_of, name_of


class _Plain(msgspec.Struct, frozen=True):
    role: Literal["system", "user"]
    content: str


class _Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class _Call(msgspec.Struct, frozen=True):
    id: str
    function: _Function
    type: Literal["function"] = "function"


class _Assistant(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    """null only beside calls: some servers refuse it elsewhere, others refuse "" there (R51)."""
    tool_calls: tuple[_Call, ...] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["tool"] = "tool"
    tool_call_id: str
    content: str


class _ToolFunction(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: msgspec.Raw


class _Tool(msgspec.Struct, frozen=True):
    function: _ToolFunction
    type: Literal["function"] = "function"


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = True


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    messages: tuple[_Plain | _Assistant | _Result, ...]
    stream: bool = True
    stream_options: _StreamOptions = _StreamOptions()
    max_tokens: int | UnsetType = UNSET
    tools: tuple[_Tool, ...] | UnsetType = UNSET
    """Absent where there are none: an empty list is refused by some."""


_encoder = msgspec.json.Encoder()


def encode(request: StartAttempt) -> bytes:
    """JSON. Our call ids are sent, so that what a provider made of its own can break nothing (R43)."""
    system = (_Plain("system", request.system),) if request.system else ()
    items = tuple(message for item in request.items if (message := _message(item)) is not None)
    tools = tuple(
        _Tool(_ToolFunction(spec.name, spec.description, msgspec.Raw(spec.schema.encode()))) for spec in request.tools
    )
    return _encoder.encode(
        _Request(
            model=request.model,
            messages=(*system, *items),
            max_tokens=UNSET if request.max_output_tokens is None else request.max_output_tokens,
            tools=tools or UNSET,
        )
    )


def _message(item: Item) -> _Plain | _Assistant | _Result | None:
    match item:
        case UserMessage():
            return _Plain("user", item.text)
        case ToolResult():
            return _Result(tool_call_id=item.call_id, content=item.text)
        case AssistantMessage():
            if not item.text and not item.calls:
                return None  # D7: never sent
            return _Assistant(
                content=item.text or None,
                tool_calls=tuple(_call(call) for call in item.calls) or UNSET,
                reasoning_content=_reasoning(item, "reasoning_content"),
                reasoning=_reasoning(item, "reasoning"),
            )


def _call(call: ToolCall) -> _Call:
    return _Call(call.call_id, _Function(name_of(call), arguments_of(call)))


def _reasoning(message: AssistantMessage, field: str) -> str | UnsetType:
    """Reasoning goes back under the name it came with, and only to servers that use that name (R49)."""
    return "".join(block.text for block in message.reasoning if block.field == field) or UNSET
