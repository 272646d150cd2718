"""Conversations that are too long: made of prompts, calls and results of a given size."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from haltline.protocol.conversation import AssistantMessage, Item, Reasoning, Tag, ToolCall, ToolResult, UserMessage
from haltline.protocol.ids import CallId


def turn(number: int, *results: str, text: str = "", ok: bool = True, name: str = "read_file") -> tuple[Item, ...]:
    """One message of the model with a call for each result, and the results. Calls are numbered `NUMBER.INDEX`."""
    calls = tuple(
        ToolCall(
            call_id=CallId(f"{number}.{index}"),
            name=name,
            arguments_raw=msgspec.json.encode({"path": f"file_{number}_{index}.py"}).decode(),
        )
        for index in range(len(results))
    )
    return (
        AssistantMessage(text=text, calls=calls),
        *(
            ToolResult(call_id=call.call_id, name=name, text=result, ok=ok, status="done" if ok else "failed")
            for call, result in zip(calls, results, strict=True)
        ),
    )


def talk(turns: int, *, characters: int = 4_000, said: int = 0, task: str = "mend the parser") -> tuple[Item, ...]:
    """A prompt, and turns of one call each whose result has so many characters, and whose text `said`."""
    items: tuple[Item, ...] = (UserMessage(text=task),)
    for number in range(turns):
        items += turn(number, "r" * characters, text=f"step {number} " + "t" * said)
    return items


_texts = st.text(max_size=40) | st.integers(0, 6_000).map(lambda size: "line of output\n" * (size // 15))
_tags: st.SearchStrategy[Tag | None] = st.sampled_from((None, None, "interrupted", "continue", "nudge", "summary"))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Item, ...]:
    """Valid ones of every shape, that end with something to answer to."""
    items: list[Item] = [UserMessage(text=draw(_texts) or "go")]
    for number in range(draw(st.integers(0, 12))):
        match draw(st.integers(0, 3)):
            case 0:
                items.append(UserMessage(text=draw(_texts) or "go on", tag=draw(_tags)))
            case 1:
                reasoning = (Reasoning(text="hm", signature="s"),) if draw(st.booleans()) else ()
                items.append(
                    AssistantMessage(text=draw(_texts) or "yes", reasoning=reasoning, partial=draw(st.booleans()))
                )
            case _:
                results = draw(st.lists(_texts, min_size=1, max_size=4))
                items.extend(turn(number, *results, text=draw(_texts), ok=draw(st.booleans())))
    if isinstance(items[-1], AssistantMessage):
        items.append(UserMessage(text=draw(_texts) or "and now?"))
    return tuple(items)
