"""A conversation made shorter: what is folded, where it is cut, what is kept in words (E1, E3). Pure.

Rules
1. Each function returns another history; the one that it was given stays what it was.
2. No result is parted from its call (R75): a fold leaves every message in its place, and a cut falls before a message
   of the user's or the assistant's, never before a result.
3. What the model has not answered to yet, all that follows its last message, is folded by nobody and is never cut off;
   where nothing else helps, its long results keep their heads and tails.
4. What the user asked for is kept word for word: the present run's prompt whole, the prompts before it bounded.
"""

from haltline.protocol.conversation import AssistantMessage, Item, ToolCall, ToolResult, UserMessage
from haltline.protocol.ids import CallId
from haltline.supervisor import estimate, feedback

KEPT_TURNS = (4, 1)
"""Of the model's last messages, whose results stay whole: first so many, where that is not enough only the last."""
SHORT_BYTES = 2_048
"""What is left of a long result that the model has not answered to yet."""
EARLIER_PROMPTS = 3
"""Of the runs before, the latest."""
PROMPT_BYTES = 2_048
"""Of each of those."""
ENTRY_CHARACTERS = (8_000, 2_000, 500, 120)
"""Of each message in a transcript: the first that lets it fit."""


def fold(items: tuple[Item, ...], kept_turns: int) -> tuple[Item, ...]:
    """Each result before the last `kept_turns` messages of the model as one line, where that is shorter."""
    calls = _calls(items)
    boundary = _last_messages(items, kept_turns)
    return tuple(
        _folded(item, calls[item.call_id]) if isinstance(item, ToolResult) and index < boundary else item
        for index, item in enumerate(items)
    )


def shorten(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """The results that `fold` never touches, each cut to its head and tail (rule 3)."""
    boundary = _last_messages(items, 1)
    return tuple(
        _with_text(item, feedback.shortened(item.text, SHORT_BYTES))
        if isinstance(item, ToolResult) and index >= boundary and len(item.text.encode()) > 2 * SHORT_BYTES
        else item
        for index, item in enumerate(items)
    )


def cut(items: tuple[Item, ...], recent_characters: int) -> int:
    """Where what is kept begins (rules 2 and 3): as early as `recent_characters` let it. 0: there is nothing before."""
    place = _last_messages(items, 1)
    if place == 0:
        return 0
    size = sum(estimate.characters(item) for item in items[place:])
    for index in range(place - 1, -1, -1):
        size += estimate.characters(items[index])
        if size > recent_characters:
            break
        if not isinstance(items[index], ToolResult):
            place = index
    return place


def rebuilt(items: tuple[Item, ...], place: int, summary: str) -> tuple[Item, ...]:
    """The history with a summary in the place of all before `place` but the user's prompts (rule 4)."""
    return (*_kept_prompts(items, place), feedback.summary(summary), *items[place:])


def transcript(items: tuple[Item, ...], most_characters: int) -> str:
    """The messages in words, at most about `most_characters`: whole if they fit, else each bounded, else head and
    tail."""
    text = ""
    for bound in ENTRY_CHARACTERS:
        text = "\n\n".join(entry for item in items for entry in _entries(item, bound))
        if len(text) <= most_characters:
            return text
    return feedback.head_and_tail(text, most_characters)


def _last_messages(items: tuple[Item, ...], count: int) -> int:
    """Index of the first of the model's last `count` messages; 0 where there are fewer."""
    places = [index for index, item in enumerate(items) if isinstance(item, AssistantMessage)]
    return places[-count] if len(places) >= count else 0


def _calls(items: tuple[Item, ...]) -> dict[CallId, ToolCall]:
    return {call.call_id: call for item in items if isinstance(item, AssistantMessage) for call in item.calls}


def _folded(result: ToolResult, call: ToolCall) -> ToolResult:
    if feedback.is_folded(result.text):
        return result
    line = feedback.folded(
        result.name, call.arguments_raw, result.status, None if result.ok else result.text, len(result.text)
    )
    return _with_text(result, line) if len(line) < len(result.text) else result


def _with_text(result: ToolResult, text: str) -> ToolResult:
    return ToolResult(call_id=result.call_id, name=result.name, text=text, ok=result.ok, status=result.status)


def _kept_prompts(items: tuple[Item, ...], place: int) -> tuple[UserMessage, ...]:
    prompts = [index for index, item in enumerate(items) if isinstance(item, UserMessage) and item.tag is None]
    if not prompts:
        return ()
    *earlier, present = prompts
    kept = [
        UserMessage(text=feedback.head_and_tail(item.text, PROMPT_BYTES))
        for index in earlier[-EARLIER_PROMPTS:]
        if index < place and isinstance(item := items[index], UserMessage)
    ]
    if present < place and isinstance(item := items[present], UserMessage):
        kept.append(item)
    return tuple(kept)


def _entries(item: Item, bound: int) -> list[str]:
    match item:
        case UserMessage(tag=None):
            return [f"The user: {_bounded(item.text, bound)}"]
        case UserMessage():
            return [f"The harness ({item.tag}): {_bounded(item.text, bound)}"]
        case AssistantMessage():
            said = [f"The assistant: {_bounded(item.text, bound)}"] if item.text else []
            return said + [f"It called {call.name} {_bounded(call.arguments_raw, bound)}" for call in item.calls]
        case ToolResult():
            return [f"Result of {item.name} ({item.status}): {_bounded(item.text, bound)}"]


def _bounded(text: str, bound: int) -> str:
    return feedback.head_and_tail(text, bound)
