"""The conversation as the body of an OpenAI responses request.

Rules:
1. Nothing is stored at the provider's: the whole conversation is sent each time, and reasoning goes back encrypted, at
   its place (D7).
2. Models that do not reason refuse a request that asks for encrypted reasoning.
3. Schemas are no strict ones: our tools have optional arguments, and what is wrong is told to the model by us (B3).
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from haltline.protocol.conversation import AssistantMessage, Item, Reasoning, ToolCall, ToolResult, UserMessage
from haltline.protocol.messages import StartAttempt
from haltline.worker.llm.request_parts import arguments_of, in_order, name_of

FIELDS = frozenset({"encrypted_content"})

NOT_REASONING = re.compile(r"(?:.*[/:])?(?:chatgpt-|gpt-[34]|gpt-5-chat)")
"""Names of OpenAI's models that do not reason, also behind `openai/` or `ft:`. The list is closed: those that come
reason."""


class _Message(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    role: Literal["user", "assistant"]
    content: str


class _Call(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    call_id: str
    name: str
    arguments: str


class _Output(msgspec.Struct, frozen=True, tag_field="type", tag="function_call_output"):
    call_id: str
    output: str


class _Summary(msgspec.Struct, frozen=True, tag_field="type", tag="summary_text"):
    text: str


class _Reasoning(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    id: str | UnsetType
    encrypted_content: str
    summary: tuple[_Summary, ...]
    """Must be there, and may be empty."""


class _Tool(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    name: str
    description: str
    parameters: msgspec.Raw
    strict: bool = False


_Input = _Message | _Call | _Output | _Reasoning


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    instructions: str | UnsetType = UNSET
    input: tuple[_Input, ...]
    tools: tuple[_Tool, ...] | UnsetType = UNSET
    max_output_tokens: int | UnsetType = UNSET
    store: bool = False
    include: tuple[Literal["reasoning.encrypted_content"]] | UnsetType = UNSET
    stream: bool = True


_encoder = msgspec.json.Encoder()


def encode(request: StartAttempt) -> bytes:
    """JSON. Our call ids are sent, so that what a provider made of its own can break nothing (R43)."""
    tools = tuple(_Tool(spec.name, spec.description, msgspec.Raw(spec.schema.encode())) for spec in request.tools)
    return _encoder.encode(
        _Request(
            model=request.model,
            instructions=request.system or UNSET,
            input=tuple(part for item in request.items for part in _input(item)),
            tools=tools or UNSET,
            max_output_tokens=UNSET if request.max_output_tokens is None else request.max_output_tokens,
            include=UNSET if NOT_REASONING.match(request.model) else ("reasoning.encrypted_content",),
        )
    )


def _input(item: Item) -> Iterator[_Input]:
    match item:
        case UserMessage():
            yield _Message("user", item.text)
        case ToolResult():
            yield _Output(item.call_id, item.text)
        case AssistantMessage():
            if item.text or item.calls:  # D7
                for part in in_order(item, FIELDS):
                    yield from _part(part)


def _part(part: Reasoning | str | ToolCall) -> Iterator[_Input]:
    match part:
        case str():
            if part:
                yield _Message("assistant", part)
        case ToolCall():
            yield _Call(part.call_id, name_of(part), arguments_of(part))
        case Reasoning():
            if part.opaque is not None:
                yield _Reasoning(part.item_id or UNSET, part.opaque, (_Summary(part.text),) if part.text else ())
