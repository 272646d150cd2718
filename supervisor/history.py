"""What the next request holds, and the check that it is valid (D7, K1, K5). Pure.

Rules
1. A turn enters the history whole: the assistant's message and, right behind it and in order, the one result of
   each of its calls. Until they are all known the turn is kept beside the history, so the history is valid at
   every instant, whatever is interrupted (P6).
2. An assistant message without text and without calls does not enter (D7).
3. The check runs on every request. What it finds is a bug of ours, never a provider's to report.
"""

from haltline.protocol.conversation import AssistantMessage, Item, Reasoning, ToolCall, ToolResult, UserMessage
from haltline.protocol.errors import BrokenInvariant


def with_turn(
    items: tuple[Item, ...], message: AssistantMessage | None, results: tuple[ToolResult, ...]
) -> tuple[Item, ...]:
    """The history with one finished turn (rules 1 and 2)."""
    if message is None or not (message.text or message.calls):
        return items
    return (*items, message, *results)


def message_of(
    text: str, *, calls: tuple[ToolCall, ...] = (), reasoning: tuple[Reasoning, ...] = (), partial: bool = False
) -> AssistantMessage | None:
    """The assistant's message, or None where nothing of it may be sent (rule 2)."""
    if not text and not calls:
        return None
    return AssistantMessage(text=text, calls=calls, reasoning=reasoning, partial=partial)


def request_items(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """What a request carries. Raises BrokenInvariant where it would not be valid (rule 3)."""
    problem = check(items)
    if problem is not None:
        raise BrokenInvariant(f"the next request would not be valid: {problem}")
    return items


def check(items: tuple[Item, ...]) -> str | None:
    """What is wrong with the history as a request, or None."""
    if not items:
        return "it is empty"
    waiting: list[ToolCall] = []
    known: set[str] = set()
    for position, item in enumerate(items):
        where = f"item {position}"
        match item:
            case ToolResult():
                if not waiting:
                    return f"{where}: result of {item.call_id} without its call"
                call = waiting.pop(0)
                if call.call_id != item.call_id:
                    return f"{where}: result of {item.call_id} where that of {call.call_id} is due"
                if call.name != item.name:
                    return f"{where}: result of {item.call_id} names {item.name}, its call {call.name}"
            case UserMessage() | AssistantMessage() if waiting:
                return f"{where}: {waiting[0].call_id} has no result"
            case UserMessage():
                pass
            case AssistantMessage():
                if not item.text and not item.calls:
                    return f"{where}: assistant message without text and calls"
                for call in item.calls:
                    if call.call_id in known:
                        return f"{where}: {call.call_id} is used twice"
                    if not call.name:
                        return f"{where}: {call.call_id} has no name"
                    known.add(call.call_id)
                waiting = list(item.calls)
    if waiting:
        return f"{waiting[0].call_id} has no result"
    if isinstance(items[-1], AssistantMessage):
        return "it ends with the assistant's own message"
    return None
