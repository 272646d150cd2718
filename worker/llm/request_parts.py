"""What all wire formats need of the conversation to encode it."""

import re
from collections.abc import Iterator

from haltline.protocol.conversation import AssistantMessage, Reasoning, ToolCall
from haltline.worker.llm.argument_text import is_object

NO_ARGUMENTS = "{}"

LONGEST_NAME = 64
"""Characters of a tool's name: the least that a provider allows."""

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")


def arguments_of(call: ToolCall) -> str:
    """JSON text of an object, also where the model wrote none (K5)."""
    return call.arguments_raw if call.parsed and is_object(call.arguments_raw) else NO_ARGUMENTS


def name_of(call: ToolCall) -> str:
    """The name that the model called, in characters that every provider takes back: one that it made up, such as
    `functions.shell`, would have each later request refused."""
    return _UNFIT.sub("_", call.name)[:LONGEST_NAME] or "unnamed"


def in_order(message: AssistantMessage, fields: frozenset[str]) -> Iterator[Reasoning | str | ToolCall]:
    """The message's parts as they came: the reasoning that goes back under one of `fields` at its places among the
    text, which comes in pieces of any length, and the calls, which come after the text."""
    text = call = 0
    for block in message.reasoning:
        if block.field not in fields:
            continue
        until = len(message.text) if block.after_calls > call else block.after_text
        if until > text:
            yield message.text[text:until]
            text = until
        yield from message.calls[call : block.after_calls]
        call = max(call, block.after_calls)
        yield block
    yield message.text[text:]
    yield from message.calls[call:]
