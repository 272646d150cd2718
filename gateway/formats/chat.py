"""The wire format of OpenAI-compatible chat completions."""

from collections.abc import Iterator

import msgspec

from haltline.gateway.conversation import Call, Message, Request, Role
from haltline.gateway.formats.interface import BadRequest, Content, Usage
from haltline.gateway.steps import Fault, Finish, ToolCall

ARGUMENT_PIECE_CHARS = 24
"""Arguments are cut this fine; providers send single tokens to some dozens of characters."""

_encode = msgspec.json.encode


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _ToolCall(msgspec.Struct):
    id: str
    function: _Function


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _ToolName(msgspec.Struct):
    name: str


class _Tool(msgspec.Struct):
    function: _ToolName


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Body(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool = False
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] | None = None


_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}

_body_decoder = msgspec.json.Decoder(_Body)


class ChatCompletions:
    paths = ("/v1/chat/completions", "/chat/completions")

    def read(self, body: bytes) -> Request:
        try:
            read = _body_decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRequest(f"The body is not a chat completions request: {error}") from error
        return Request(
            model=read.model,
            stream=read.stream,
            include_usage=read.stream_options is not None and read.stream_options.include_usage,
            messages=tuple(_message(message) for message in read.messages),
            tools=tuple(tool.function.name for tool in read.tools or ()),
            body_bytes=len(body),
        )

    def reply(self, request: Request, reply_id: str, created: int) -> "ChatReply":
        return ChatReply(request.model, reply_id, created)

    def error(self, fault: Fault) -> bytes:
        return _encode({"error": _fault(fault)})


class ChatReply:
    """One response: chunks of a stream, or one whole completion."""

    def __init__(self, model: str, reply_id: str, created: int) -> None:
        self._model = model
        self._id = f"chatcmpl-{reply_id}"
        self._reply_id = reply_id
        self._created = created
        self._calls = 0

    def begin(self) -> bytes:
        return self._delta({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        return self._delta({"content": text})

    def refusal(self, text: str) -> bytes:
        return self._delta({"refusal": text})

    def tool_call(self, call: ToolCall) -> Iterator[bytes]:
        index = self._calls
        self._calls += 1
        opening = {"name": call.name, "arguments": ""}
        yield self._delta(
            {
                "tool_calls": [
                    {"index": index, "id": self._call_id(index), "type": "function", "function": opening},
                ]
            }
        )
        for start in range(0, len(call.arguments), ARGUMENT_PIECE_CHARS):
            arguments = call.arguments[start : start + ARGUMENT_PIECE_CHARS]
            yield self._delta({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})

    def comment(self, text: str) -> bytes:
        return b": " + text.encode() + b"\n\n"

    def error_event(self, fault: Fault) -> bytes:
        return _data(_encode({"error": _fault(fault)}))

    def end(self, finish: Finish, usage: Usage | None) -> bytes:
        last = self._chunk([{"index": 0, "delta": {}, "finish_reason": finish}])
        if usage is not None:
            last += self._chunk([], usage)
        return last + _data(b"[DONE]")

    def whole(self, content: Content, finish: Finish, usage: Usage) -> bytes:
        message: dict[str, object] = {"role": "assistant", "content": content.text or None}
        if content.refusal:
            message["refusal"] = content.refusal
        if content.calls:
            message["tool_calls"] = [
                {
                    "id": self._call_id(index),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for index, call in enumerate(content.calls)
            ]
        return _encode(
            {
                "id": self._id,
                "object": "chat.completion",
                "created": self._created,
                "model": self._model,
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": _usage(usage),
            }
        )

    def _call_id(self, index: int) -> str:
        return f"call_{self._reply_id}_{index}"

    def _delta(self, delta: dict[str, object]) -> bytes:
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])

    def _chunk(self, choices: list[dict[str, object]], usage: Usage | None = None) -> bytes:
        chunk: dict[str, object] = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }
        if usage is not None:
            chunk["usage"] = _usage(usage)
        return _data(_encode(chunk))


def _data(text: bytes) -> bytes:
    return b"data: " + text + b"\n\n"


def _fault(fault: Fault) -> dict[str, object]:
    return {"message": fault.message, "type": fault.type, "param": None, "code": fault.code}


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _message(read: _Message) -> Message:
    role = _ROLES.get(read.role)
    if role is None:
        raise BadRequest(f"A message has the role {read.role!r}; known are {', '.join(_ROLES)}.")
    match read.content:
        case None:
            text = ""
        case str(text):
            pass
        case parts:
            text = "".join(part.text for part in parts)
    return Message(
        role=role,
        text=text,
        calls=tuple(
            Call(call_id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in read.tool_calls or ()
        ),
        call_id=read.tool_call_id,
    )
