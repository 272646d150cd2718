"""What a request may hold (D7, K1)."""

import pytest

from haltline.protocol.conversation import AssistantMessage, Item, ToolCall, ToolResult, UserMessage
from haltline.protocol.errors import BrokenInvariant
from haltline.protocol.ids import CallId
from haltline.supervisor.history import check, message_of, request_items, with_turn


def user(text: str = "hi") -> UserMessage:
    return UserMessage(text=text)


def asks(*ids: str, text: str = "", name: str = "shell") -> AssistantMessage:
    calls = tuple(ToolCall(call_id=CallId(one), name=name, arguments_raw="{}") for one in ids)
    return AssistantMessage(text=text, calls=calls)


def result(call_id: str, name: str = "shell") -> ToolResult:
    return ToolResult(call_id=CallId(call_id), name=name, text="x", ok=True)


@pytest.mark.parametrize(
    "items",
    [
        (user(),),
        (user(), user()),
        (user(), asks("c1"), result("c1")),
        (user(), asks("c1", "c2"), result("c1"), result("c2"), asks("c3"), result("c3")),
        (user(), AssistantMessage(text="a"), user()),
    ],
)
def test_a_valid_history_is_sent_as_it_is(items: tuple[Item, ...]) -> None:
    assert request_items(items) == items


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ((), "it is empty"),
        ((user(), asks("c1")), "c1 has no result"),
        ((user(), asks("c1"), user()), "item 2: c1 has no result"),
        ((user(), asks("c1", "c2"), result("c1"), asks("c3")), "item 3: c2 has no result"),
        ((user(), asks("c1", "c2"), result("c2"), result("c1")), "item 2: result of c2 where that of c1 is due"),
        ((user(), result("c1")), "item 1: result of c1 without its call"),
        ((user(), asks("c1"), result("c1"), result("c1")), "item 3: result of c1 without its call"),
        ((user(), asks("c1"), result("c1", "glob")), "item 2: result of c1 names glob, its call shell"),
        ((user(), asks("c1"), result("c1"), asks("c1"), result("c1")), "item 3: c1 is used twice"),
        ((user(), asks("c1", name=""), result("c1")), "item 1: c1 has no name"),
        ((user(), AssistantMessage(text=""), user()), "item 1: assistant message without text and calls"),
        ((user(), AssistantMessage(text="a")), "it ends with the assistant's own message"),
    ],
)
def test_each_way_to_be_invalid_is_named_and_never_sent(items: tuple[Item, ...], problem: str) -> None:
    """K1, R48, R74, R75."""
    assert check(items) == problem
    with pytest.raises(BrokenInvariant, match="the next request would not be valid"):
        request_items(items)


def test_a_message_of_nothing_is_none_and_changes_nothing() -> None:
    """D7."""
    assert message_of("") is None
    assert with_turn((user(),), None, ()) == (user(),)
