"""The conversation as the body of an Anthropic messages request.

Rules:
1. Roles take turns: what the user says and what tools answer since the model's last message is one message, the
   results first, for they must come right behind the calls.
2. No text block is blank: one such is refused. A message of nothing else is not sent (D7).
3. Thinking goes back signed and redacted as it came, at its place among the text (D7).
"""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from haltline.protocol.conversation import AssistantMessage, Item, Reasoning, ToolCall, ToolResult, UserMessage
from haltline.protocol.messages import StartAttempt
from haltline.worker.llm.request_parts import arguments_of, in_order, name_of

MAX_TOKENS = 32_000
"""Of one response, where no `max_output_tokens` is configured: this format has no default of its own. The largest
number that all models since Claude 4 take (Opus 4 and 4.1 take no more)."""

FIELDS = frozenset({"thinking", "redacted_thinking"})


class _Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class _Thinking(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class _Redacted(msgspec.Struct, frozen=True, tag_field="type", tag="redacted_thinking"):
    data: str


class _ToolUse(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw


class _ToolResult(msgspec.Struct, frozen=True, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET


_Block = _Text | _Thinking | _Redacted | _ToolUse | _ToolResult


class _Message(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant"]
    content: tuple[_Block, ...]


class _Tool(msgspec.Struct, frozen=True):
    name: str
    description: str
    input_schema: msgspec.Raw


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    max_tokens: int
    system: str | UnsetType = UNSET
    messages: tuple[_Message, ...]
    tools: tuple[_Tool, ...] | UnsetType = UNSET
    stream: bool = True


_encoder = msgspec.json.Encoder()


def encode(request: StartAttempt) -> bytes:
    """JSON. Our call ids are sent, so that what a provider made of its own can break nothing (R43)."""
    tools = tuple(_Tool(spec.name, spec.description, msgspec.Raw(spec.schema.encode())) for spec in request.tools)
    return _encoder.encode(
        _Request(
            model=request.model,
            max_tokens=MAX_TOKENS if request.max_output_tokens is None else request.max_output_tokens,
            system=request.system if request.system.strip() else UNSET,
            messages=_messages(request.items),
            tools=tools or UNSET,
        )
    )


def _messages(items: tuple[Item, ...]) -> tuple[_Message, ...]:
    """Rule 1."""
    messages: list[_Message] = []
    for item in items:
        role: Literal["user", "assistant"] = "assistant" if isinstance(item, AssistantMessage) else "user"
        blocks = _blocks(item)
        if not blocks:
            continue
        if messages and messages[-1].role == role == "user":
            messages[-1] = _Message(role, (*messages[-1].content, *blocks))
        else:
            messages.append(_Message(role, blocks))
    return tuple(messages)


def _blocks(item: Item) -> tuple[_Block, ...]:
    match item:
        case UserMessage():
            return (_Text(item.text),) if item.text.strip() else ()
        case ToolResult():
            content = item.text if item.text.strip() else UNSET
            return (_ToolResult(item.call_id, content, UNSET if item.ok else True),)
        case AssistantMessage():
            if not item.text.strip() and not item.calls:
                return ()  # rule 2
            return tuple(block for part in in_order(item, FIELDS) if (block := _block(part)) is not None)


def _block(part: Reasoning | str | ToolCall) -> _Block | None:
    match part:
        case str():
            return _Text(part) if part.strip() else None
        case ToolCall():
            return _ToolUse(part.call_id, name_of(part), msgspec.Raw(arguments_of(part).encode()))
        case Reasoning():
            if part.opaque is not None:
                return _Redacted(part.opaque)
            return _Thinking(part.text, part.signature) if part.signature else None
