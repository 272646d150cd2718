"""The conversation in the three formats: what each gets of the same history (D1, D7, K1, K5)."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from support.llm_worker import SESSION, attempt

from haltline.protocol.conversation import (
    AssistantMessage,
    Item,
    Reasoning,
    Tag,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import Api
from haltline.worker.llm.adapters import ADAPTERS
from haltline.worker.llm.messages_request import MAX_TOKENS

APIS: tuple[Api, ...] = ("chat", "responses", "messages")
SPEC = ToolSpec(name="ls", description="List.", schema='{"type":"object"}')


def body(
    api: Api,
    *items: Item,
    system: str = "",
    tools: tuple[ToolSpec, ...] = (),
    max_output_tokens: int | None = None,
    model: str = "m-1",
) -> dict[str, Any]:
    request = attempt(
        "http://x",
        api=api,
        model=model,
        system=system,
        items=items or (UserMessage(text="Hi"),),
        tools=tools,
        max_output_tokens=max_output_tokens,
    )
    decoded: dict[str, Any] = json.loads(ADAPTERS[api].encode(request))
    return decoded


def conversation(api: Api, *items: Item) -> list[Any]:
    sent: list[Any] = body(api, *items)["input" if api == "responses" else "messages"]
    return sent


def call(number: int, arguments: str = "{}", name: str = "ls", *, parsed: bool = True) -> ToolCall:
    return ToolCall(call_id=CallId(f"c{number}"), name=name, arguments_raw=arguments, parsed=parsed)


def result(number: int, text: str = "out", *, ok: bool = True) -> ToolResult:
    return ToolResult(call_id=CallId(f"c{number}"), name="ls", text=text, ok=ok)


def test_everything_beside_the_conversation_is_where_the_format_has_it() -> None:
    """A known order of fields, streaming, and nothing that was not asked for."""
    assert body("responses", system="Be brief.", tools=(SPEC,), max_output_tokens=9) == {
        "model": "m-1",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "tools": [
            {
                "type": "function",
                "name": "ls",
                "description": "List.",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
        "max_output_tokens": 9,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }
    assert body("messages", system="Be brief.", tools=(SPEC,), max_output_tokens=9) == {
        "model": "m-1",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "tools": [{"name": "ls", "description": "List.", "input_schema": {"type": "object"}}],
        "stream": True,
    }


def test_what_is_not_there_is_not_sent_but_for_the_limit_that_messages_need() -> None:
    assert set(body("responses")) == {"model", "input", "store", "include", "stream"}
    assert set(body("messages")) == {"model", "max_tokens", "messages", "stream"}
    assert body("messages")["max_tokens"] == MAX_TOKENS


@pytest.mark.parametrize(
    "model", ["gpt-4.1-mini", "gpt-4o", "openai/gpt-4o", "ft:gpt-4o:x", "gpt-3.5-turbo", "chatgpt-4o"]
)
def test_a_model_that_does_not_reason_is_not_asked_for_its_reasoning(model: str) -> None:
    """They refuse the request: "Encrypted content is not supported with this model"."""
    assert "include" not in body("responses", model=model)


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5.2-codex", "o4-mini", "gpt-oss-20b", "grok-4", "any"])
def test_any_other_model_is(model: str) -> None:
    assert body("responses", model=model)["include"] == ["reasoning.encrypted_content"]


HISTORY = (
    UserMessage(text="List."),
    AssistantMessage(text="Two.", calls=(call(1, '{"d": "."}'), call(2, "{oops", parsed=False))),
    result(1),
    result(2, "not JSON: {oops", ok=False),
    AssistantMessage(text="Done."),
    UserMessage(text="Thanks."),
)


def test_a_turn_in_responses_is_a_list_of_items() -> None:
    """K5: a call that did not parse goes with `{}`, and its result carries the raw text."""
    assert conversation("responses", *HISTORY) == [
        {"type": "message", "role": "user", "content": "List."},
        {"type": "message", "role": "assistant", "content": "Two."},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"d": "."}'},
        {"type": "function_call", "call_id": "c2", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "out"},
        {"type": "function_call_output", "call_id": "c2", "output": "not JSON: {oops"},
        {"type": "message", "role": "assistant", "content": "Done."},
        {"type": "message", "role": "user", "content": "Thanks."},
    ]


def test_a_turn_in_messages_is_two_messages_of_blocks() -> None:
    assert conversation("messages", *HISTORY) == [
        {"role": "user", "content": [{"type": "text", "text": "List."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Two."},
                {"type": "tool_use", "id": "c1", "name": "ls", "input": {"d": "."}},
                {"type": "tool_use", "id": "c2", "name": "ls", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "out"},
                {"type": "tool_result", "tool_use_id": "c2", "content": "not JSON: {oops", "is_error": True},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ]


def test_messages_take_turns_and_results_come_first() -> None:
    """K1: what the harness or the user says after results goes into the same message, behind them."""
    sent = conversation(
        "messages",
        UserMessage(text="a"),
        UserMessage(text="b"),
        AssistantMessage(text="", calls=(call(1),)),
        result(1),
        UserMessage(text="c", tag="loop"),
    )
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert [[block["type"] for block in message["content"]] for message in sent] == [
        ["text", "text"],
        ["tool_use"],
        ["tool_result", "text"],
    ]


def test_messages_hold_no_blank_text() -> None:
    """It is refused, and an answer cut after its first line break is one."""
    sent = conversation(
        "messages",
        UserMessage(text="a"),
        AssistantMessage(text="\n\n", partial=True),
        UserMessage(text="b"),
        AssistantMessage(text=" ", calls=(call(1),)),
        result(1, "\n"),
    )
    assert sent == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]},
    ]
    assert "system" not in body("messages", system="\n")


BLOCKS = (
    Reasoning(text="One.", field="thinking", signature="s1"),
    Reasoning(text="", field="redacted_thinking", opaque="b3Bh", after_text=4),
    Reasoning(text="Sum.", field="encrypted_content", opaque="e1", item_id="rs_1"),
    Reasoning(text="", field="encrypted_content", opaque="e2", after_text=4, after_calls=1),
    Reasoning(text="Hm.", field="reasoning_content"),
)
REASONED = AssistantMessage(text="So: yes.", calls=(call(1), call(2)), reasoning=BLOCKS)


def test_messages_get_their_thinking_back_signed_or_redacted_where_it_stood() -> None:
    """D7."""
    (_, sent, _) = conversation("messages", UserMessage(text="a"), REASONED, result(1), result(2))
    assert sent["content"] == [
        {"type": "thinking", "thinking": "One.", "signature": "s1"},
        {"type": "text", "text": "So: "},
        {"type": "redacted_thinking", "data": "b3Bh"},
        {"type": "text", "text": "yes."},
        {"type": "tool_use", "id": "c1", "name": "ls", "input": {}},
        {"type": "tool_use", "id": "c2", "name": "ls", "input": {}},
    ]


def test_responses_get_their_reasoning_back_encrypted_where_it_stood() -> None:
    """D7: under the id that it came under, and with a summary, which must be there."""
    assert conversation("responses", REASONED) == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "encrypted_content": "e1",
            "summary": [{"type": "summary_text", "text": "Sum."}],
        },
        {"type": "message", "role": "assistant", "content": "So: yes."},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
        {"type": "reasoning", "encrypted_content": "e2", "summary": []},
        {"type": "function_call", "call_id": "c2", "name": "ls", "arguments": "{}"},
    ]


def test_a_chat_server_gets_none_of_the_others_reasoning() -> None:
    (sent,) = conversation("chat", REASONED)
    assert sent["reasoning_content"] == "Hm."
    assert not {"e1", "s1", "b3Bh"} & set(json.dumps(sent).split('"'))


@pytest.mark.parametrize("api", APIS)
def test_a_message_of_reasoning_alone_is_not_sent(api: Api) -> None:
    """D7, R48."""
    sent = conversation(api, UserMessage(text="a"), AssistantMessage(text="", reasoning=BLOCKS))
    assert json.dumps(sent).count("role") == 1


@pytest.mark.parametrize("api", APIS)
def test_a_name_that_the_model_made_up_does_not_spoil_every_later_request(api: Api) -> None:
    """P6: providers refuse a name with other characters, also in the history."""
    names = ("functions.shell", "x" * 300, "\u00e9 !")
    items = [AssistantMessage(text="", calls=(call(number, name=name),)) for number, name in enumerate(names)]
    sent = json.dumps(conversation(api, *items))
    for name in ("functions_shell", "x" * 64, "___"):
        assert f'"name": "{name}"' in sent


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("arguments", ["", "[1]", "{oops", '{"a":1} x'])
def test_what_is_no_object_goes_as_an_empty_one(api: Api, arguments: str) -> None:
    """K5: also where somebody said that it parses, or the whole request would be no JSON."""
    sent = json.dumps(conversation(api, AssistantMessage(text="", calls=(call(1, arguments),))))
    assert ('"input": {}' if api == "messages" else '"arguments": "{}"') in sent


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("tag", get_args(Tag))
def test_what_the_harness_says_is_sent_as_the_users_words_and_nothing_around_them(api: Api, tag: Tag) -> None:
    """The words themselves say who speaks and what is meant (docs/words.md); the tag is for the journal and us."""
    assert conversation(api, UserMessage(text="w", tag=tag)) == conversation(api, UserMessage(text="w"))


def test_each_server_gets_the_key_where_it_looks_for_it() -> None:
    assert ADAPTERS["responses"].headers(SESSION, "k") == {"x-session-id": SESSION, "authorization": "Bearer k"}
    assert ADAPTERS["messages"].headers(SESSION, "k") == {
        "x-session-id": SESSION,
        "anthropic-version": "2023-06-01",
        "x-api-key": "k",
    }
    assert set(ADAPTERS["messages"].headers(SESSION, None)) == {"x-session-id", "anthropic-version"}
    assert [ADAPTERS[api].path for api in APIS] == ["/chat/completions", "/responses", "/v1/messages"]
