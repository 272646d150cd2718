"""The providers' own Python clients, pointed at the scripted gateway: one conversation each, in each wire format.

They check every response against the provider's own types (`_strict_response_validation`), and their helpers for
streams check the order of the events. Retries are off, so that one call is one request.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol, assert_never, cast

import anthropic
import msgspec
import openai
from anthropic.types import Message, MessageParam, ToolParam, ToolResultBlockParam
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionAssistantMessageParam,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessage,
    ChatCompletionMessageParam,
    ChatCompletionToolMessageParam,
)
from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseErrorEvent,
    ResponseInputItemParam,
    ResponseInputParam,
)
from support.scripted_gateway import Api

KEY = "any-key"
MAX_TOKENS = 1_024
SCHEMA: dict[str, object] = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TIMEOUT_S = 20.0


class HeardCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    arguments: str
    """JSON text. Of a whole message of Anthropic's: written anew."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """One response, as its client tells it."""

    text: str
    stop: str
    """In the provider's words."""
    input_tokens: int
    output_tokens: int
    calls: tuple[HeardCall, ...] = ()
    refusal: str = ""
    reasoning: str = ""
    pieces: int = 0
    """Pieces of text in a stream."""


class Client(Protocol):
    """A conversation with one scenario; what was said is sent again with each request."""

    def say(self, text: str) -> Heard: ...

    def give(self, *results: str) -> Heard:
        """The results of the calls of the last response, in order."""
        ...


class Clients:
    """Both clients of one gateway, for many conversations: to make one takes 0.1 s."""

    def __init__(self, openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic) -> None:
        self._openai = openai_client
        self._anthropic = anthropic_client

    def talk(self, api: Api, model: str, session: str, *, stream: bool) -> Client:
        headers = {"x-session-id": session}
        match api:
            case "chat":
                return _Chat(self._openai, headers, model, stream)
            case "responses":
                return _Responses(self._openai, headers, model, stream)
            case "messages":
                return _Messages(self._anthropic, headers, model, stream)
            case _:
                assert_never(api)


@contextmanager
def clients_of(url: str) -> Generator[Clients]:
    """`url`: of the gateway, without /v1."""
    with (
        openai.OpenAI(
            api_key=KEY,
            base_url=f"{url}/v1",
            max_retries=0,
            timeout=TIMEOUT_S,
            _strict_response_validation=True,
        ) as openai_client,
        anthropic.Anthropic(
            api_key=KEY, base_url=url, max_retries=0, timeout=TIMEOUT_S, _strict_response_validation=True
        ) as anthropic_client,
    ):
        yield Clients(openai_client, anthropic_client)


class _Chat:
    def __init__(self, client: openai.OpenAI, headers: dict[str, str], model: str, stream: bool) -> None:
        self._client = client
        self._headers = headers
        self._model = model
        self._stream = stream
        self._messages: list[ChatCompletionMessageParam] = []
        self._open: list[str] = []
        self._tools: list[ChatCompletionFunctionToolParam] = [
            {"type": "function", "function": {"name": "shell", "description": "Runs it.", "parameters": SCHEMA}}
        ]

    def say(self, text: str) -> Heard:
        self._messages.append({"role": "user", "content": text})
        return self._ask()

    def give(self, *results: str) -> Heard:
        for call_id, result in zip(self._open, results, strict=True):
            message: ChatCompletionToolMessageParam = {"role": "tool", "tool_call_id": call_id, "content": result}
            self._messages.append(message)
        return self._ask()

    def _ask(self) -> Heard:
        pieces = 0
        if self._stream:
            with self._client.chat.completions.stream(
                model=self._model,
                messages=self._messages,
                tools=self._tools,
                stream_options={"include_usage": True},
                extra_headers=self._headers,
            ) as events:
                for event in events:
                    pieces += event.type == "content.delta" and event.delta != ""
            completion: ChatCompletion = events.current_completion_snapshot
        else:
            completion = self._client.chat.completions.create(
                model=self._model, messages=self._messages, tools=self._tools, extra_headers=self._headers
            )
        (choice,) = completion.choices
        message = ChatCompletionMessage.model_validate(choice.message.model_dump())
        usage = completion.usage
        assert usage is not None
        calls = [call for call in message.tool_calls or () if call.type == "function"]
        self._open = [call.id for call in calls]
        if message.content or calls:
            sent: ChatCompletionAssistantMessageParam = {"role": "assistant", "content": message.content}
            if calls:
                sent["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.function.name, "arguments": call.function.arguments},
                    }
                    for call in calls
                ]
            self._messages.append(sent)
        return Heard(
            text=message.content or "",
            refusal=message.refusal or "",
            reasoning=str((message.model_extra or {}).get("reasoning_content") or ""),
            calls=tuple(HeardCall(call.id, call.function.name, call.function.arguments) for call in calls),
            stop=choice.finish_reason,
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            pieces=pieces,
        )


class ErrorInStream(Exception):
    """The responses' client hands an error inside a stream on as an event; the others raise it."""

    def __init__(self, event: ResponseErrorEvent) -> None:
        super().__init__(event.message)
        self.code = event.code


class _Responses:
    def __init__(self, client: openai.OpenAI, headers: dict[str, str], model: str, stream: bool) -> None:
        self._client = client
        self._headers = headers
        self._model = model
        self._stream = stream
        self._items: ResponseInputParam = []
        self._open: list[str] = []
        self._tools: list[FunctionToolParam] = [
            {"type": "function", "name": "shell", "description": "Runs it.", "parameters": SCHEMA, "strict": False}
        ]

    def say(self, text: str) -> Heard:
        self._items.append({"role": "user", "content": text})
        return self._ask()

    def give(self, *results: str) -> Heard:
        for call_id, result in zip(self._open, results, strict=True):
            self._items.append({"type": "function_call_output", "call_id": call_id, "output": result})
        return self._ask()

    def _ask(self) -> Heard:
        pieces = 0
        response: Response | None = None
        if self._stream:
            with self._client.responses.stream(
                model=self._model,
                input=self._items,
                tools=self._tools,
                include=["reasoning.encrypted_content"],
                store=False,
                extra_headers=self._headers,
            ) as events:
                numbers: list[int] = []
                for event in events:
                    numbers.append(event.sequence_number)
                    match event.type:
                        case "response.output_text.delta":
                            pieces += 1
                        case "response.completed" | "response.incomplete":
                            response = event.response
                        case "error":
                            raise ErrorInStream(event)
                        case _:
                            pass
            assert numbers == list(range(len(numbers)))
            assert response is not None, "the stream has ended without its last event"
        else:
            response = self._client.responses.create(
                model=self._model,
                input=self._items,
                tools=self._tools,
                include=["reasoning.encrypted_content"],
                store=False,
                extra_headers=self._headers,
            )
        return self._heard(response, pieces)

    def _heard(self, response: Response, pieces: int) -> Heard:
        usage = response.usage
        assert usage is not None
        calls = [item for item in response.output if item.type == "function_call"]
        messages = [item for item in response.output if item.type == "message"]
        reasoning = [item for item in response.output if item.type == "reasoning"]
        self._open = [call.call_id for call in calls]
        for item in response.output:
            self._items.append(cast("ResponseInputItemParam", item.to_dict(mode="json")))  # as it came
        incomplete = response.incomplete_details
        return Heard(
            text=response.output_text,
            refusal="".join(part.refusal for item in messages for part in item.content if part.type == "refusal"),
            reasoning="".join(part.text for item in reasoning for part in item.summary),
            calls=tuple(HeardCall(call.call_id, call.name, call.arguments) for call in calls),
            stop=(incomplete.reason if incomplete is not None else response.status) or "",
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            pieces=pieces,
        )


class _Messages:
    def __init__(self, client: anthropic.Anthropic, headers: dict[str, str], model: str, stream: bool) -> None:
        self._client = client
        self._headers = headers
        self._model = model
        self._stream = stream
        self._messages: list[MessageParam] = []
        self._open: list[str] = []
        self._tools: list[ToolParam] = [
            {"name": "shell", "description": "Runs it.", "input_schema": {"type": "object", **SCHEMA}}
        ]

    def say(self, text: str) -> Heard:
        self._messages.append({"role": "user", "content": text})
        return self._ask()

    def give(self, *results: str) -> Heard:
        content: list[ToolResultBlockParam] = [
            {"type": "tool_result", "tool_use_id": call_id, "content": result}
            for call_id, result in zip(self._open, results, strict=True)
        ]
        self._messages.append({"role": "user", "content": content})
        return self._ask()

    def _ask(self) -> Heard:
        pieces = 0
        arguments: dict[int, str] = {}
        if self._stream:
            with self._client.messages.stream(
                model=self._model,
                max_tokens=MAX_TOKENS,
                messages=self._messages,
                tools=self._tools,
                extra_headers=self._headers,
            ) as events:
                for event in events:
                    pieces += event.type == "text"
                    if event.type == "input_json":
                        block = len(events.current_message_snapshot.content) - 1
                        arguments[block] = arguments.get(block, "") + event.partial_json
            message: Message = events.get_final_message()
        else:
            message = self._client.messages.create(
                model=self._model,
                max_tokens=MAX_TOKENS,
                messages=self._messages,
                tools=self._tools,
                extra_headers=self._headers,
            )
        calls = [(number, block) for number, block in enumerate(message.content) if block.type == "tool_use"]
        self._open = [block.id for _number, block in calls]
        if message.content:
            content = [block.to_dict(mode="json", exclude_none=True) for block in message.content]
            self._messages.append(cast("MessageParam", {"role": "assistant", "content": content}))  # as it came
        details = message.stop_details
        return Heard(
            text="".join(block.text for block in message.content if block.type == "text"),
            refusal=(details.explanation or "") if details is not None else "",
            reasoning="".join(block.thinking for block in message.content if block.type == "thinking"),
            calls=tuple(
                HeardCall(block.id, block.name, arguments.get(number, "") if self._stream else json.dumps(block.input))
                for number, block in calls
            ),
            stop=message.stop_reason or "",
            input_tokens=message.usage.input_tokens,
            output_tokens=message.usage.output_tokens,
            pieces=pieces,
        )
