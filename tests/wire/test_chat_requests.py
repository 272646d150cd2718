"""The conversation as a chat-completions request (D1, D7, K1, K5)."""

from __future__ import annotations

import json

from support.llm_worker import attempt

from haltline.protocol.conversation import AssistantMessage, Item, Reasoning, ToolCall, ToolSpec, UserMessage
from haltline.protocol.ids import CallId
from haltline.worker.llm.chat_request import encode


def messages(*items: Item) -> object:
    return json.loads(encode(attempt("http://x", system="", items=items)))["messages"]


def test_tools_are_sent_with_their_schemas_and_not_at_all_where_there_are_none() -> None:
    request = attempt("http://x", tools=(ToolSpec(name="ls", description="List.", schema='{"type":"object"}'),))
    function = {"name": "ls", "description": "List.", "parameters": {"type": "object"}}
    assert json.loads(encode(request))["tools"] == [{"type": "function", "function": function}]
    assert "tools" not in json.loads(encode(attempt("http://x")))


def test_content_is_null_only_beside_calls() -> None:
    """R51."""
    call = ToolCall(call_id=CallId("c1"), name="ls", arguments_raw="")
    sent = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    assert messages(AssistantMessage(text="", calls=(call,)), AssistantMessage(text="x", calls=(call,))) == [
        {"role": "assistant", "content": None, "tool_calls": [sent]},
        {"role": "assistant", "content": "x", "tool_calls": [sent]},
    ]


def test_an_assistant_message_without_text_and_calls_is_not_sent() -> None:
    """D7, R48."""
    empty = AssistantMessage(text="", reasoning=(Reasoning(text="Hm.", field="reasoning_content"),))
    assert messages(empty, UserMessage(text="Hi")) == [{"role": "user", "content": "Hi"}]


def test_reasoning_goes_back_under_its_own_name_and_that_of_other_formats_does_not() -> None:
    """D7, R49."""
    blocks = (
        Reasoning(text="a", field="reasoning_content"),
        Reasoning(text="b", field="reasoning_content"),
        Reasoning(text="c", signature="s"),
    )
    assert messages(AssistantMessage(text="x", reasoning=blocks)) == [
        {"role": "assistant", "content": "x", "reasoning_content": "ab"}
    ]
