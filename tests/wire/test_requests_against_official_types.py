"""Our requests fit the types that the providers publish for theirs, with nothing that those do not know (D1)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import pytest
from support.llm_worker import attempt

from haltline.protocol.conversation import (
    AssistantMessage,
    Item,
    Reasoning,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import Api
from haltline.worker.llm.adapters import ADAPTERS

pytestmark = pytest.mark.ci  # the types alone take seconds to import


def turn(*reasoning: Reasoning) -> tuple[Item, ...]:
    parsed = ToolCall(call_id=CallId("c1"), name="ls", arguments_raw='{"d":"."}')
    broken = ToolCall(call_id=CallId("c2"), name="no such!", arguments_raw="{oops", parsed=False)
    return (
        UserMessage(text="List."),
        AssistantMessage(text="So: yes.", calls=(parsed, broken), reasoning=reasoning),
        ToolResult(call_id=CallId("c1"), name="ls", text="", ok=True),
        ToolResult(call_id=CallId("c2"), name="no such!", text="no", ok=False),
        UserMessage(text="Go on.", tag="continue"),
    )


HISTORY: dict[Api, tuple[Item, ...]] = {
    "chat": turn(),  # reasoning is no part of the published type
    "responses": turn(
        Reasoning(text="Sum.", field="encrypted_content", opaque="e1", item_id="rs_1"),
        Reasoning(text="", field="encrypted_content", opaque="e2", item_id="rs_2", after_text=3),
    ),
    "messages": turn(
        Reasoning(text="One.", field="thinking", signature="s1"),
        Reasoning(text="", field="redacted_thinking", opaque="b3Bh", after_text=3),
    ),
}


def published(api: Api) -> Any:
    match api:
        case "chat":
            from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

            return CompletionCreateParamsStreaming
        case "responses":
            from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

            return ResponseCreateParamsStreaming
        case "messages":
            from anthropic.types.message_create_params import MessageCreateParamsStreaming

            return MessageCreateParamsStreaming


def consumed(value: object) -> object:
    """JSON, with what the types leave to be checked when it is read."""
    if isinstance(value, dict):
        return {name: consumed(one) for name, one in cast("dict[str, object]", value).items()}
    if isinstance(value, str | int | bool | None):
        return value
    return [consumed(one) for one in cast("Iterable[object]", value)]


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_request_fits_the_published_type(api: Api) -> None:
    from pydantic import TypeAdapter

    spec = ToolSpec(name="ls", description="List.", schema='{"type":"object","properties":{}}')
    request = attempt("http://x", api=api, items=HISTORY[api], tools=(spec,), max_output_tokens=9)
    body = json.loads(ADAPTERS[api].encode(request))
    adapter = TypeAdapter(published(api))
    assert consumed(adapter.validate_python(body, extra="forbid")) == body
