"""The wire format of Anthropic's messages.

A response is a list of blocks, one open at a time: a step of another kind closes the block before it. Usage comes
twice, at the start and, counted anew, at the end.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from haltline.gateway.conversation import Request
from haltline.gateway.formats.interface import (
    ARGUMENT_PIECE_CHARS,
    REASONING_PIECE_CHARS,
    Content,
    Headers,
    Usage,
    pieces,
)
from haltline.gateway.formats.messages_request import read_request
from haltline.gateway.formats.seals import sealed, signature
from haltline.gateway.steps import Fault, FaultKind, Finish, Reasoning, ToolCall

_encode = msgspec.json.encode

_STOP_REASONS: dict[Finish, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class _Words(msgspec.Struct, frozen=True):
    type: str
    message: str


_WORDS: dict[FaultKind, _Words] = {
    "bad_request": _Words("invalid_request_error", "The request is invalid."),
    "not_found": _Words("not_found_error", "The model does not exist."),
    "unauthorized": _Words("authentication_error", "invalid x-api-key"),
    "rate_limited": _Words(
        "rate_limit_error",
        "Number of request tokens has exceeded your per-minute rate limit. Please try again later.",
    ),
    "quota": _Words(
        "billing_error",
        "Your credit balance is too low to access the API. Please go to Plans & Billing to upgrade or purchase "
        "credits.",
    ),
    "server": _Words("api_error", "Internal server error"),
    "overloaded": _Words("overloaded_error", "Overloaded"),
    "overflow": _Words("invalid_request_error", "prompt is too long: {asked} tokens > {allowed} maximum"),
    "reasoning_missing": _Words(
        "invalid_request_error",
        "messages: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a "
        "final `assistant` message must start with a thinking block.",
    ),
}


class Messages:
    paths = ("/v1/messages", "/messages")

    def read(self, body: bytes, headers: Mapping[str, str], /) -> Request:
        return read_request(body, headers)

    def reply(self, request: Request, reply_id: str, _created: int, /) -> "MessagesReply":
        return MessagesReply(request, reply_id)

    def headers(self, reply_id: str, /) -> Headers:
        return (("request-id", f"req_{reply_id}"),)

    def error(self, fault: Fault, reply_id: str, /) -> bytes:
        return _encode({"type": "error", "error": _described(fault), "request_id": f"req_{reply_id}"})


class MessagesReply:
    """One response: events of a stream, or one whole message."""

    def __init__(self, request: Request, reply_id: str) -> None:
        self._model = request.model
        self._prompt_tokens = request.prompt_tokens
        self._id = f"msg_{reply_id}"
        self._reply_id = reply_id
        self._open: Literal["text", "other"] | None = None
        self._blocks = 0
        self._calls = 0
        self._refusal = ""

    def begin(self) -> bytes:
        usage = Usage(prompt=self._prompt_tokens, completion=1)
        return _event("message_start", {"message": self._message([], None, usage)})

    def piece(self, text: str) -> bytes:
        opening = b"" if self._open == "text" else self._start({"type": "text", "text": ""}, "text")
        return opening + self._delta({"type": "text_delta", "text": text})

    def refusal(self, text: str) -> bytes:
        """It is told with the stop reason."""
        self._refusal += text
        return b""

    def reasoning(self, block: Reasoning) -> Iterator[bytes]:
        if block.hidden:
            yield self._start({"type": "redacted_thinking", "data": sealed(block.text)}, "other")
            return
        yield self._start({"type": "thinking", "thinking": "", "signature": ""}, "other")
        for text in pieces(block.text, REASONING_PIECE_CHARS):
            yield self._delta({"type": "thinking_delta", "thinking": text})
        yield self._delta({"type": "signature_delta", "signature": signature(block.text)})

    def tool_call(self, call: ToolCall) -> Iterator[bytes]:
        yield self._start({"type": "tool_use", "id": self._call_id(), "name": call.name, "input": {}}, "other")
        yield self._delta({"type": "input_json_delta", "partial_json": ""})
        for arguments in pieces(call.arguments, ARGUMENT_PIECE_CHARS):
            yield self._delta({"type": "input_json_delta", "partial_json": arguments})

    def comment(self, _text: str, /) -> bytes:
        """This format keeps its connections alive by an event."""
        return _event("ping", {})

    def error_event(self, fault: Fault) -> bytes:
        return _event("error", {"error": _described(fault)})

    def end(self, finish: Finish, usage: Usage) -> bytes:
        stop: dict[str, object] = {"stop_reason": self._stop_reason(finish), "stop_sequence": None}
        if self._refusal:
            stop["stop_details"] = self._stop_details()
        last = _event("message_delta", {"delta": stop, "usage": _usage(usage)})
        return self._stop() + last + _event("message_stop", {})

    def whole(self, content: Content, finish: Finish, usage: Usage) -> bytes:
        self._refusal = content.refusal
        blocks: list[dict[str, object]] = [_whole_reasoning(block) for block in content.reasoning]
        if content.text:
            blocks.append({"type": "text", "text": content.text})
        blocks += [self._whole_call(call) for call in content.calls]
        message = self._message(blocks, self._stop_reason(finish), usage)
        if self._refusal:
            message["stop_details"] = self._stop_details()
        return _encode(message)

    def _whole_call(self, call: ToolCall) -> dict[str, object]:
        return {"type": "tool_use", "id": self._call_id(), "name": call.name, "input": _object(call.arguments)}

    def _call_id(self) -> str:
        self._calls += 1
        return f"toolu_{self._reply_id}_{self._calls - 1}"

    def _stop_reason(self, finish: Finish) -> str:
        return "refusal" if self._refusal else _STOP_REASONS[finish]

    def _stop_details(self) -> dict[str, object]:
        return {"type": "refusal", "category": None, "explanation": self._refusal}

    def _message(self, blocks: list[dict[str, object]], stop_reason: str | None, usage: Usage) -> dict[str, object]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": blocks,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {**_usage(usage), "service_tier": "standard"},
        }

    def _start(self, block: dict[str, object], kind: Literal["text", "other"]) -> bytes:
        closing = self._stop()
        self._open = kind
        start = _event("content_block_start", {"index": self._blocks, "content_block": block})
        return closing + start + (_event("ping", {}) if self._blocks == 0 else b"")

    def _delta(self, delta: dict[str, object]) -> bytes:
        return _event("content_block_delta", {"index": self._blocks, "delta": delta})

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        self._blocks += 1
        return _event("content_block_stop", {"index": self._blocks - 1})


def _event(name: str, fields: dict[str, object]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _encode({"type": name, **fields}) + b"\n\n"


def _described(fault: Fault) -> dict[str, object]:
    words = _WORDS[fault.kind]
    message = fault.message or words.message.format(asked=fault.asked_tokens, allowed=fault.allowed_tokens)
    return {"type": words.type, "message": message}


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.prompt,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": usage.completion,
    }


def _whole_reasoning(block: Reasoning) -> dict[str, object]:
    if block.hidden:
        return {"type": "redacted_thinking", "data": sealed(block.text)}
    return {"type": "thinking", "thinking": block.text, "signature": signature(block.text)}


def _object(arguments: str) -> msgspec.Raw:
    """The arguments as the object that the format demands; what is none becomes an empty one."""
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return msgspec.Raw(b"{}")
    return msgspec.Raw(arguments.encode())
