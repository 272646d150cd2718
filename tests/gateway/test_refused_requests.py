"""What the providers refuse, the gateway refuses, in their error shapes: a harness that passes here passes there."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from support import scripted_gateway
from support.scripted_gateway import Api, Gateway, headers

HELLO = {"role": "user", "content": "Hello."}
SCHEMA = {"type": "object"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with scripted_gateway.running(tmp_path_factory.mktemp("gateway")) as started:
        yield started


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20.0, trust_env=False) as opened:
        yield opened


def chat(*messages: object, **more: object) -> dict[str, object]:
    return {"model": "ok", "messages": messages, **more}


def responses(*items: object, **more: object) -> dict[str, object]:
    return {"model": "ok", "input": items, **more}


def messages(*turns: object, **more: object) -> dict[str, object]:
    return {"model": "ok", "max_tokens": 64, "messages": turns, **more}


def user(*blocks: object) -> dict[str, object]:
    return {"role": "user", "content": blocks}


def model(*blocks: object) -> dict[str, object]:
    return {"role": "assistant", "content": blocks}


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


CHAT_CALL: dict[str, object] = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
CHAT_CALLING: dict[str, object] = {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}
CHAT_RESULT: dict[str, object] = {"role": "tool", "tool_call_id": "c1", "content": "done"}

CALL: dict[str, object] = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}
OUTPUT: dict[str, object] = {"type": "function_call_output", "call_id": "c1", "output": "done"}
REASONING: dict[str, object] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "forged"}

TOOL_USE: dict[str, object] = {"type": "tool_use", "id": "c1", "name": "shell", "input": {}}
TOOL_RESULT: dict[str, object] = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
THINKING: dict[str, object] = {"type": "thinking", "thinking": "Hm.", "signature": "forged"}

TAKEN: list[tuple[Api, dict[str, object]]] = [
    ("chat", chat(HELLO, CHAT_CALLING, CHAT_RESULT)),
    ("chat", chat(HELLO, HELLO)),
    ("responses", responses(HELLO, CALL, OUTPUT)),
    ("responses", {"model": "ok", "input": "Hello."}),
    ("messages", messages(HELLO, model(TOOL_USE), user(TOOL_RESULT, text("And?")))),
    ("messages", messages(HELLO, HELLO)),
]

REFUSED: list[tuple[Api, dict[str, object], str]] = [
    ("chat", {"model": "ok"}, "Missing required parameter: 'messages'"),
    ("chat", chat(), "empty array"),
    ("chat", chat(HELLO, CHAT_CALLING), "did not have response messages: c1"),
    ("chat", chat(HELLO, CHAT_CALLING, HELLO, CHAT_RESULT), "did not have response messages: c1"),
    ("chat", chat(HELLO, CHAT_RESULT), "must be a response to a preceeding message"),
    ("chat", chat(HELLO, CHAT_CALLING, CHAT_RESULT, CHAT_RESULT), "must be a response to a preceeding message"),
    ("chat", chat({"role": "robot", "content": "x"}), "Invalid value: 'robot'"),
    ("chat", chat(HELLO, {"role": "assistant", "content": None}), "expected a string, got null"),
    ("chat", chat(HELLO, {"role": "assistant", "content": "x", "tool_calls": []}), "tool_calls': empty array"),
    ("chat", chat(HELLO, stream_options={"include_usage": True}), "only allowed when 'stream'"),
    ("chat", chat(HELLO, tools=[{"type": "function", "function": {"name": "a b"}}]), "does not match pattern"),
    ("responses", {"model": "ok"}, "Missing required parameter: 'input'"),
    ("responses", {"model": "ok", "messages": [HELLO]}, "has moved to 'input'"),
    ("responses", responses(HELLO, n=2), "Unknown parameter: 'n'"),
    ("responses", responses(HELLO, CALL), "No tool output found for function call c1"),
    ("responses", responses(HELLO, CALL, HELLO, OUTPUT), "No tool output found for function call c1"),
    ("responses", responses(HELLO, OUTPUT), "No tool call found for function call output with call_id c1"),
    ("responses", responses(HELLO, {**CALL, "call_id": "c" * 65}), "string too long"),
    ("responses", responses(HELLO, {**CALL, "id": "c1"}, OUTPUT), "begins with 'fc'"),
    ("responses", responses(HELLO, {"type": "function_call", "call_id": "c1"}), "parameter: 'input[1].name'"),
    ("responses", responses(HELLO, REASONING, CALL, OUTPUT), "could not be verified"),
    ("responses", responses(HELLO, {"type": "reasoning", "id": "rs_1", "summary": []}), "`store` is set to false"),
    ("responses", responses(model({"type": "input_text", "text": "x"})), "Supported values are: 'output_text'"),
    ("responses", responses(HELLO, previous_response_id="resp_1"), "'resp_1' not found"),
    ("responses", responses(HELLO, max_output_tokens=1), "below minimum value"),
    ("responses", responses(HELLO, tools=[{"type": "function", "function": {"name": "x"}}]), "'tools[0].name'"),
    ("messages", {"model": "ok", "messages": [HELLO]}, "max_tokens: Field required"),
    ("messages", messages(HELLO, max_tokens=0), "max_tokens: Input should be"),
    ("messages", messages(), "at least one message is required"),
    ("messages", messages(HELLO, n=2), "n: Extra inputs are not permitted"),
    ("messages", messages({"role": "system", "content": "x"}, HELLO), 'Unexpected role "system"'),
    ("messages", messages(model(text("x")), HELLO), 'must use the "user" role'),
    ("messages", messages(user()), "messages.0: all messages must have non-empty content"),
    ("messages", messages(user(text(""))), "must be non-empty"),
    ("messages", messages(user(text(" \n"))), "must contain non-whitespace text"),
    ("messages", messages(HELLO, model(text("x "))), "cannot end with trailing whitespace"),
    ("messages", messages(HELLO, model(TOOL_USE)), "messages.1: `tool_use` ids were found without"),
    ("messages", messages(HELLO, model(TOOL_USE), HELLO), "ids were found without `tool_result` blocks"),
    ("messages", messages(HELLO, model(TOOL_USE), user(text("x"), TOOL_RESULT)), "must come before any other"),
    ("messages", messages(user(TOOL_RESULT)), "messages.0: unexpected `tool_use_id`"),
    ("messages", messages(HELLO, model(TOOL_USE, TOOL_USE), user(TOOL_RESULT)), "ids must be unique"),
    ("messages", messages(HELLO, model({**TOOL_USE, "input": "{}"}), user(TOOL_RESULT)), "valid dictionary"),
    ("messages", messages(HELLO, model({**TOOL_USE, "id": "c.1"})), "should match pattern"),
    ("messages", messages(HELLO, model(THINKING, text("x"))), "Invalid `signature` in `thinking` block"),
    ("messages", messages(HELLO, tools=[{"name": "x"}]), "tools.0.custom.input_schema: Field required"),
    ("messages", messages(HELLO, tools=[{"name": "x", "input_schema": SCHEMA}] * 2), "names must be unique"),
]


@pytest.mark.parametrize(("api", "body"), TAKEN)
def test_a_valid_conversation_is_taken(
    client: httpx.Client, gateway: Gateway, api: Api, body: dict[str, object]
) -> None:
    answer = client.post(gateway.url_of(api), json=body, headers=headers("taken", api))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), answer.text


@pytest.mark.parametrize(("api", "body", "words"), REFUSED, ids=[f"{api}: {words}" for api, _, words in REFUSED])
def test_what_the_provider_refuses_is_refused(
    client: httpx.Client, gateway: Gateway, api: Api, body: dict[str, object], words: str
) -> None:
    answer = client.post(gateway.url_of(api), json=body, headers=headers("refused", api))
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert words in error["message"]


def test_messages_without_a_version_are_refused(client: httpx.Client, gateway: Gateway) -> None:
    answer = client.post(gateway.url_of("messages"), json=messages(HELLO))
    assert answer.json()["error"]["message"] == "anthropic-version: header is required"


def test_changed_or_missing_reasoning_is_refused(client: httpx.Client, gateway: Gateway) -> None:
    """D7: blocks are sent back exactly as they came, and before the call that they led to."""
    first = {**messages(HELLO), "model": "thinking"}
    content = client.post(gateway.url_of("messages"), json=first, headers=headers("d7", "messages")).json()["content"]
    thinking, hidden, said, call = content
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "thought\n\n[exit code 0]"}

    def second(*blocks: object) -> tuple[int, str]:
        body = {**messages(HELLO, model(*blocks), user(result)), "model": "thinking"}
        answer = client.post(gateway.url_of("messages"), json=body, headers=headers("d7", "messages"))
        return answer.status_code, answer.json().get("error", {}).get("message", "")

    assert second(thinking, hidden, said, call) == (200, "")
    assert second(said, call)[1].startswith("messages: Expected `thinking` or `redacted_thinking`")
    assert second(thinking, said, call)[0] == 400
    assert "Invalid `signature`" in second({**thinking, "thinking": "Other."}, hidden, said, call)[1]
    assert "Invalid `data`" in second(thinking, {**hidden, "data": hidden["data"][4:]}, said, call)[1]
