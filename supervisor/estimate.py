"""Tokens where no provider counted them: about four characters each, and marked as an estimate (D6). Pure."""

from haltline.protocol.conversation import AssistantMessage, Item, ToolResult, ToolSpec, Usage, UserMessage

CHARACTERS_PER_TOKEN = 4
"""English text and code lie between 3 and 5; a tokenizer would need the network."""

CHARACTERS_PER_ITEM = 16
"""Role, separators, ids: what each item costs beside its text."""


def characters(item: Item) -> int:
    match item:
        case UserMessage() | ToolResult():
            return len(item.text) + CHARACTERS_PER_ITEM
        case AssistantMessage():
            calls = sum(len(call.name) + len(call.arguments_raw) + CHARACTERS_PER_ITEM for call in item.calls)
            reasoning = sum(len(block.text) for block in item.reasoning)
            return len(item.text) + calls + reasoning + CHARACTERS_PER_ITEM


def tokens(number_of_characters: int) -> int:
    return -(-number_of_characters // CHARACTERS_PER_TOKEN)


def request_tokens(system: str, items: tuple[Item, ...], tools: tuple[ToolSpec, ...]) -> int:
    fixed = len(system) + sum(len(tool.name) + len(tool.description) + len(tool.schema) for tool in tools)
    return tokens(fixed + sum(characters(item) for item in items))


def usage(request: int, output_characters: int) -> Usage:
    """Of an attempt whose provider reported none. `request`: tokens, as request_tokens counts them."""
    return Usage(input=request, output=tokens(output_characters), estimated=True)
