"""The wire format of OpenAI-compatible chat completions."""

from collections.abc import Iterator, Mapping

import msgspec

from haltline.gateway.conversation import Call, Message, Request, Role
from haltline.gateway.formats.history import Unanswered, broken_rules
from haltline.gateway.formats.interface import (
    ARGUMENT_PIECE_CHARS,
    REASONING_PIECE_CHARS,
    TOOL_NAME,
    BadRequest,
    Content,
    Headers,
    Usage,
    pieces,
)
from haltline.gateway.formats.openai_errors import described, error_body, unreadable
from haltline.gateway.steps import Fault, Finish, Reasoning, ToolCall

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
    refusal: str | None = None
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

    def read(self, body: bytes, _headers: Mapping[str, str], /) -> Request:
        try:
            read = _body_decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise unreadable(error) from error
        messages = tuple(_message(number, message) for number, message in enumerate(read.messages))
        _check(read, messages)
        return Request(
            model=read.model,
            stream=read.stream,
            include_usage=read.stream_options is not None and read.stream_options.include_usage,
            messages=messages,
            tools=tuple(tool.function.name for tool in read.tools or ()),
            body_bytes=len(body),
        )

    def reply(self, request: Request, reply_id: str, created: int) -> "ChatReply":
        return ChatReply(request, reply_id, created)

    def headers(self, reply_id: str, /) -> Headers:
        return (("x-request-id", f"req_{reply_id}"),)

    def error(self, fault: Fault, _reply_id: str, /) -> bytes:
        return error_body(fault)


class ChatReply:
    """One response: chunks of a stream, or one whole completion."""

    def __init__(self, request: Request, reply_id: str, created: int) -> None:
        self._model = request.model
        self._include_usage = request.include_usage
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

    def reasoning(self, block: Reasoning) -> Iterator[bytes]:
        """As the servers do that have it: OpenAI's own keeps it to itself."""
        if not block.hidden:
            for text in pieces(block.text, REASONING_PIECE_CHARS):
                yield self._delta({"reasoning_content": text})

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
        for arguments in pieces(call.arguments, ARGUMENT_PIECE_CHARS):
            yield self._delta({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})

    def comment(self, text: str) -> bytes:
        return b": " + text.encode() + b"\n\n"

    def error_event(self, fault: Fault) -> bytes:
        return _data(_encode({"error": described(fault)}))

    def end(self, finish: Finish, usage: Usage) -> bytes:
        last = self._chunk([{"index": 0, "delta": {}, "finish_reason": finish}])
        if self._include_usage:
            last += self._chunk([], usage)
        return last + _data(b"[DONE]")

    def whole(self, content: Content, finish: Finish, usage: Usage) -> bytes:
        message: dict[str, object] = {"role": "assistant", "content": content.text or None}
        message["refusal"] = content.refusal or None
        if content.reasoning:
            message["reasoning_content"] = "".join(block.text for block in content.reasoning if not block.hidden)
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


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _check(read: _Body, messages: tuple[Message, ...]) -> None:
    """Raises BadRequest for what has the right shape and is refused all the same."""
    if not messages:
        raise BadRequest("Invalid 'messages': empty array. Expected an array with minimum length 1.", param="messages")
    if read.stream_options is not None and not read.stream:
        raise BadRequest(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    for number, tool in enumerate(read.tools or ()):
        if not TOOL_NAME.fullmatch(tool.function.name):
            param = f"tools[{number}].function.name"
            raise BadRequest(
                f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern "
                "'^[a-zA-Z0-9_-]+$'.",
                param=param,
                code="invalid_value",
            )
    for broken in broken_rules(messages):
        param = f"messages.[{broken.message}].role"
        match broken:
            case Unanswered():
                raise BadRequest(
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                    "'tool_call_id'. The following tool_call_ids did not have response messages: "
                    f"{', '.join(broken.call_ids)}",
                    param=param,
                )
            case _:
                raise BadRequest(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    param=param,
                )


def _message(number: int, read: _Message) -> Message:
    role = _ROLES.get(read.role)
    if role is None:
        raise BadRequest(
            f"Invalid value: '{read.role}'. Supported values are: {', '.join(_ROLES)}.",
            param=f"messages[{number}].role",
            code="invalid_value",
        )
    if read.tool_calls == []:
        param = f"messages[{number}].tool_calls"
        raise BadRequest(f"Invalid '{param}': empty array. Expected an array with minimum length 1.", param=param)
    if read.content is None and not read.tool_calls and not read.refusal:
        raise BadRequest(
            "Invalid value for 'content': expected a string, got null.", param=f"messages.[{number}].content"
        )
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
