"""The wire format of OpenAI's responses.

A response is a list of items, one open at a time: a step of another kind closes the item before it. Each event has the
next number; the last one holds the whole response. An item that the output limit cut is closed as incomplete, without
the event that would call its arguments done.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, assert_never

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
from haltline.gateway.formats.openai_errors import described, error_body
from haltline.gateway.formats.responses_request import read_request
from haltline.gateway.formats.seals import sealed
from haltline.gateway.steps import Fault, Finish, Reasoning, ToolCall

_encode = msgspec.json.encode

_Fields = dict[str, object]
_Status = Literal["completed", "incomplete"]

_INCOMPLETE: dict[Finish, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Responses:
    paths = ("/v1/responses", "/responses")

    def read(self, body: bytes, _headers: Mapping[str, str], /) -> Request:
        return read_request(body)

    def reply(self, request: Request, reply_id: str, created: int) -> "ResponsesReply":
        return ResponsesReply(request, reply_id, created)

    def headers(self, reply_id: str, /) -> Headers:
        return (("x-request-id", f"req_{reply_id}"),)

    def error(self, fault: Fault, _reply_id: str, /) -> bytes:
        return error_body(fault)


class _TextPart(msgspec.Struct, frozen=True):
    """How one kind of content part is called on the wire."""

    type: str
    field: str
    event: str
    more: _Fields
    event_more: _Fields

    def part(self, text: str) -> _Fields:
        return {"type": self.type, **self.more, self.field: text}


_OUTPUT_TEXT = _TextPart("output_text", "text", "output_text", {"annotations": [], "logprobs": []}, {"logprobs": []})
_REFUSAL = _TextPart("refusal", "refusal", "refusal", {}, {})


class _OpenMessage:
    def __init__(self, item_id: str) -> None:
        self.item_id = item_id
        self.closed_parts: list[_Fields] = []
        self.kind: _TextPart | None = None
        self.text = ""

    def item(self, status: str) -> _Fields:
        return {
            "id": self.item_id,
            "type": "message",
            "status": status,
            "content": list(self.closed_parts),
            "role": "assistant",
        }


class _OpenCall(msgspec.Struct, frozen=True):
    item_id: str
    call_id: str
    call: ToolCall

    def item(self, status: str, arguments: str) -> _Fields:
        return {
            "id": self.item_id,
            "type": "function_call",
            "status": status,
            "arguments": arguments,
            "call_id": self.call_id,
            "name": self.call.name,
        }


class ResponsesReply:
    """One response: events of a stream, or one whole response."""

    def __init__(self, request: Request, reply_id: str, created: int) -> None:
        self._request = request
        self._reply_id = reply_id
        self._created = created
        self._sequence = 0
        self._output: list[_Fields] = []
        self._open: _OpenMessage | _OpenCall | None = None

    def begin(self) -> bytes:
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def piece(self, text: str) -> bytes:
        return self._text(_OUTPUT_TEXT, text)

    def refusal(self, text: str) -> bytes:
        return self._text(_REFUSAL, text)

    def reasoning(self, block: Reasoning) -> Iterator[bytes]:
        """The summary is the text, or none where it is hidden; the sealed text is what must come back."""
        yield self._close("completed")
        item: _Fields = {"id": self._item_id("rs"), "type": "reasoning", "summary": []}
        place: _Fields = {"item_id": item["id"], "output_index": len(self._output), "summary_index": 0}
        yield self._event("response.output_item.added", output_index=len(self._output), item=item)
        if not block.hidden:
            empty: _Fields = {"type": "summary_text", "text": ""}
            part: _Fields = {"type": "summary_text", "text": block.text}
            yield self._event("response.reasoning_summary_part.added", **place, part=empty)
            for text in pieces(block.text, REASONING_PIECE_CHARS):
                yield self._event("response.reasoning_summary_text.delta", **place, delta=text)
            yield self._event("response.reasoning_summary_text.done", **place, text=block.text)
            yield self._event("response.reasoning_summary_part.done", **place, part=part)
            item = {**item, "summary": [part]}
        if self._request.wants_reasoning_back:
            item = {**item, "encrypted_content": sealed(block.text)}
        yield self._done(item)

    def tool_call(self, call: ToolCall) -> Iterator[bytes]:
        yield self._close("completed")
        opened = _OpenCall(self._item_id("fc"), self._item_id("call"), call)
        self._open = opened
        index = len(self._output)
        yield self._event("response.output_item.added", output_index=index, item=opened.item("in_progress", ""))
        for arguments in pieces(call.arguments, ARGUMENT_PIECE_CHARS):
            yield self._event(
                "response.function_call_arguments.delta", item_id=opened.item_id, output_index=index, delta=arguments
            )

    def comment(self, text: str) -> bytes:
        return b": " + text.encode() + b"\n\n"

    def error_event(self, fault: Fault) -> bytes:
        said = described(fault)
        return self._event("error", code=said.code or said.type, message=said.message, param=said.param)

    def end(self, finish: Finish, usage: Usage) -> bytes:
        closing = self._close("incomplete" if finish in _INCOMPLETE else "completed")
        response = self._ended(finish, usage)
        return closing + self._event(f"response.{response['status']}", response=response)

    def whole(self, content: Content, finish: Finish, usage: Usage) -> bytes:
        """The same items as in a stream."""
        for block in content.reasoning:
            b"".join(self.reasoning(block))
        if content.text:
            self.piece(content.text)
        if content.refusal:
            self.refusal(content.refusal)
        for call in content.calls:
            b"".join(self.tool_call(call))
        self._close("incomplete" if finish in _INCOMPLETE else "completed")
        return _encode(self._ended(finish, usage))

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._reply_id}_{len(self._output)}"

    def _text(self, kind: _TextPart, text: str) -> bytes:
        before, message = self._message()
        if message.kind is not kind:
            before += self._close_part(message)
            message.kind = kind
            before += self._event("response.content_part.added", **self._part_place(message), part=kind.part(""))
        message.text += text
        return before + self._event(
            f"response.{kind.event}.delta", **self._part_place(message), delta=text, **kind.event_more
        )

    def _message(self) -> tuple[bytes, _OpenMessage]:
        """The open message, and the events that opened it, if any."""
        if isinstance(self._open, _OpenMessage):
            return b"", self._open
        before = self._close("completed")
        self._open = _OpenMessage(self._item_id("msg"))
        item = self._open.item("in_progress")
        return before + self._event("response.output_item.added", output_index=len(self._output), item=item), self._open

    def _part_place(self, message: _OpenMessage) -> _Fields:
        return {
            "item_id": message.item_id,
            "output_index": len(self._output),
            "content_index": len(message.closed_parts),
        }

    def _close_part(self, message: _OpenMessage) -> bytes:
        kind = message.kind
        if kind is None:
            return b""
        place = self._part_place(message)
        part = kind.part(message.text)
        done: _Fields = {kind.field: message.text, **kind.event_more}
        closing = self._event(f"response.{kind.event}.done", **place, **done)
        closing += self._event("response.content_part.done", **place, part=part)
        message.closed_parts.append(part)
        message.kind = None
        message.text = ""
        return closing

    def _close(self, status: _Status) -> bytes:
        """Close the open item, if there is one."""
        opened, self._open = self._open, None
        match opened:
            case None:
                return b""
            case _OpenMessage():
                return self._close_part(opened) + self._done(opened.item(status))
            case _OpenCall():
                closing = b"" if status == "incomplete" else self._arguments_done(opened)
                return closing + self._done(opened.item(status, opened.call.arguments))
            case _:
                assert_never(opened)

    def _arguments_done(self, opened: _OpenCall) -> bytes:
        return self._event(
            "response.function_call_arguments.done",
            item_id=opened.item_id,
            output_index=len(self._output),
            name=opened.call.name,
            arguments=opened.call.arguments,
        )

    def _done(self, item: _Fields) -> bytes:
        self._output.append(item)
        return self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def _ended(self, finish: Finish, usage: Usage) -> _Fields:
        reason = _INCOMPLETE.get(finish)
        response = self._response("completed" if reason is None else "incomplete")
        if reason is not None:
            response["incomplete_details"] = {"reason": reason}
        response["usage"] = _usage(usage)
        return response

    def _response(self, status: str) -> _Fields:
        return {
            "id": f"resp_{self._reply_id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self._request.model,
            "output": list(self._output),
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "text": {"format": {"type": "text"}},
            "truncation": "disabled",
            "usage": None,
            "user": None,
            "metadata": {},
            **{repeated.name: repeated.value for repeated in self._request.repeated},
        }

    def _event(self, name: str, /, **fields: object) -> bytes:
        data = _encode({"type": name, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _usage(usage: Usage) -> _Fields:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
