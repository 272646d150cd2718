"""An Anthropic messages response, read event by event.

Rules:
1. The type in the data counts, the event's name only where there is none: gateways leave out either.
2. `message_stop` is the positive end signal (D2); the reason comes before it, in `message_delta`. An `error` event, or
   an `error` beside no type that we know, is the provider's error and ends the reading.
3. Blocks are told apart by their index, which may interleave; where it is missing, the last one opened is meant. A
   block of a kind that we do not know is nothing, and so are its deltas. `server_tool_use` is no call of ours.
4. A thinking block is whole when it was closed and signed (D7, R47); a redacted one when it was closed.
5. The block that was last when the output limit came is cut, although it was closed and may parse (R41, R42).
6. An answer that grows beyond extent.py is refused with the event that takes it there.
"""

import io

import msgspec

from haltline.protocol.conversation import Reasoning
from haltline.protocol.kinds import Finish
from haltline.worker.llm.drafts import Assembled, drafts
from haltline.worker.llm.extent import Extent
from haltline.worker.llm.finish_words import finish_of
from haltline.worker.llm.happenings import (
    AnyHappening,
    ErrorReport,
    Finished,
    Malformed,
    ReasoningText,
    Step,
    Summary,
    Text,
)
from haltline.worker.llm.json_text import (
    ABSENT,
    Unreadable,
    arguments_of,
    decode,
    fields_of,
    is_there,
    text_of,
    whole_number,
)
from haltline.worker.llm.messages_usage import MessagesUsage
from haltline.worker.llm.sse import DONE, PING_EVENTS, Event

STOP = "message_stop"

EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        STOP,
    }
)


class _Body(msgspec.Struct, frozen=True):
    """The data of an event, or a whole answer, or an error in place of either."""

    type: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT
    index: msgspec.Raw = ABSENT
    message: msgspec.Raw = ABSENT
    content_block: msgspec.Raw = ABSENT
    delta: msgspec.Raw = ABSENT
    usage: msgspec.Raw = ABSENT
    content: msgspec.Raw = ABSENT
    stop_reason: msgspec.Raw = ABSENT
    stop_details: msgspec.Raw = ABSENT


class _Start(msgspec.Struct, frozen=True):
    usage: msgspec.Raw = ABSENT


class _BlockStart(msgspec.Struct, frozen=True):
    type: msgspec.Raw = ABSENT
    text: msgspec.Raw = ABSENT
    thinking: msgspec.Raw = ABSENT
    signature: msgspec.Raw = ABSENT
    data: msgspec.Raw = ABSENT
    id: msgspec.Raw = ABSENT
    name: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT


class _BlockDelta(msgspec.Struct, frozen=True):
    type: msgspec.Raw = ABSENT
    text: msgspec.Raw = ABSENT
    thinking: msgspec.Raw = ABSENT
    signature: msgspec.Raw = ABSENT
    partial_json: msgspec.Raw = ABSENT


class _End(msgspec.Struct, frozen=True):
    stop_reason: msgspec.Raw = ABSENT
    stop_details: msgspec.Raw = ABSENT


class _StopDetails(msgspec.Struct, frozen=True):
    explanation: msgspec.Raw = ABSENT


_body = msgspec.json.Decoder(_Body)
_start = msgspec.json.Decoder(_Start)
_block_start = msgspec.json.Decoder(_BlockStart)
_block_delta = msgspec.json.Decoder(_BlockDelta)
_end = msgspec.json.Decoder(_End)
_stop_details = msgspec.json.Decoder(_StopDetails)
_blocks = msgspec.json.Decoder(list[msgspec.Raw])


class _Call:
    def __init__(self, id_: str, name: str, whole: str) -> None:
        self.id = id_
        self.name = name
        self.pieces = io.StringIO()
        self.whole = whole
        """Arguments that came with the block itself; pieces win over them."""

    def arguments(self) -> str:
        return self.pieces.getvalue() or self.whole


class _Thinking:
    def __init__(self, *, redacted: str, after_text: int, after_calls: int) -> None:
        self.text = io.StringIO()
        self.signature = ""
        self.redacted = redacted
        self.after_text = after_text
        self.after_calls = after_calls

    def finished(self) -> Reasoning | None:
        """Of a block that was closed (rule 4)."""
        if self.redacted:
            return Reasoning(
                text="",
                field="redacted_thinking",
                opaque=self.redacted,
                after_text=self.after_text,
                after_calls=self.after_calls,
            )
        if not self.signature:
            return None
        return Reasoning(
            text=self.text.getvalue(),
            field="thinking",
            signature=self.signature,
            after_text=self.after_text,
            after_calls=self.after_calls,
        )


class MessagesReader:
    """One response. See adapter.EventReader."""

    def __init__(self) -> None:
        self._ended = False
        self._stop_reason = ""
        self._refusal = ""
        self._open: dict[int, _Call | _Thinking] = {}
        self._last_index = 0
        self._calls: list[_Call] = []
        self._last_is_call = False
        """The block opened last is a call (rule 5)."""
        self._reasoning: list[Reasoning] = []
        self._text_length = 0
        self._usage = MessagesUsage()
        self._extent = Extent()
        self._began = False

    def take(self, event: Event) -> list[AnyHappening]:
        if event.name in PING_EVENTS or event.data.strip() in ("", DONE):
            return []
        if event.name == "error":
            return [] if event.unterminated else [ErrorReport(event.data, in_stream=True)]
        try:
            body = decode(_body, event.data)
            kind = text_of(body.type) or event.name  # rule 1
            if kind == "error" or (kind not in EVENTS and is_there(body.error)):
                return [ErrorReport(event.data, in_stream=True)]
            happenings = self._take(kind, body)
        except Unreadable as problem:
            # Cut off by the end of the input: a truncation, which the missing end signal tells.
            if event.unterminated or (event.name and event.name not in EVENTS):
                return []
            return [Malformed(str(problem), event.data, in_stream=True)]
        return self._within_extent(happenings, in_stream=True)

    def whole(self, body: bytes) -> list[AnyHappening]:
        text = body.decode("utf-8", "replace")
        try:
            message = decode(_body, text)
            if text_of(message.type) == "error" or is_there(message.error):
                return [ErrorReport(text, in_stream=False)]
            if not bytes(message.content).startswith(b"["):
                return [Malformed("a JSON body that is neither an answer nor an error", text, in_stream=False)]
            happenings: list[AnyHappening] = []
            blocks = decode(_blocks, message.content)
            for number, block in enumerate(blocks):
                happenings += self._open_block(number, block)
                self._close_block(number)
            self._usage.report(message.usage)
            self._note_end(message.stop_reason, message.stop_details)
        except Unreadable as problem:
            return [Malformed(str(problem), text, in_stream=False)]
        self._ended = True
        return self._within_extent([*happenings, Finished(last=True)], in_stream=False)

    def summary(self) -> Summary:
        finish = self._finish()
        cut = finish in ("length", "content_filter") and self._last_is_call  # rule 5
        last = len(self._calls)
        return Summary(
            finish=finish,
            finish_raw=self._stop_reason,
            calls=drafts(
                Assembled(
                    id=call.id,
                    name=call.name,
                    arguments=call.arguments(),
                    complete=finish is not None and not (cut and number == last),
                )
                for number, call in enumerate(self._calls, 1)
            ),
            reasoning=tuple(self._reasoning) if finish else (),
            usage=self._usage.total(),
            refusal=self._refusal,
        )

    def _finish(self) -> Finish | None:
        if not self._ended:
            return None
        if self._stop_reason:
            return finish_of(self._stop_reason)
        return "tool_calls" if self._calls else "stop"

    def _take(self, kind: str, body: _Body) -> list[AnyHappening]:
        """Raises Unreadable for one of EVENTS that has not its shape."""
        match kind:
            case "message_start":
                self._usage.report(fields_of(_start, body.message).usage)
                began, self._began = self._began, True
                return [] if began else [Step()]
            case "content_block_start":
                return self._open_block(self._index(body.index), body.content_block)
            case "content_block_delta":
                return self._take_delta(self._index(body.index), fields_of(_block_delta, body.delta))
            case "content_block_stop":
                self._close_block(self._index(body.index))
                return []
            case "message_delta":
                self._usage.report(body.usage)
                end = fields_of(_end, body.delta)
                self._note_end(end.stop_reason, end.stop_details)
                return [Step()]
            case "message_stop":
                self._ended = True
                return [Finished(last=True)]
            case _:
                return []

    def _index(self, raw: msgspec.Raw) -> int:
        """Rule 3."""
        number = whole_number(raw)
        return self._last_index if number is None else number

    def _open_block(self, index: int, raw: msgspec.Raw) -> list[AnyHappening]:
        block = fields_of(_block_start, raw)
        self._last_index = index
        self._last_is_call = False
        self._open.pop(index, None)
        match text_of(block.type):
            case "text":
                return self._text(text_of(block.text))
            case "thinking":
                thinking = self._open[index] = self._thinking("")
                thinking.signature = self._counted(text_of(block.signature))
                return [Step(), *self._think(index, text_of(block.thinking))]
            case "redacted_thinking":
                self._open[index] = self._thinking(self._counted(text_of(block.data)))
                return [Step()]
            case "tool_use":
                self._last_is_call = True
                given = arguments_of(block.input) if is_there(block.input) else ""
                call = self._open[index] = _Call(
                    self._counted(text_of(block.id)), self._counted(text_of(block.name)), self._counted(given)
                )
                self._calls.append(call)
                self._extent.calls(len(self._calls))
                return [Step()]
            case _:
                return []

    def _take_delta(self, index: int, delta: _BlockDelta) -> list[AnyHappening]:
        match text_of(delta.type):
            case "text_delta":
                return self._text(text_of(delta.text))
            case "thinking_delta":
                return self._think(index, text_of(delta.thinking))
            case "signature_delta":
                if isinstance(block := self._open.get(index), _Thinking):
                    block.signature = self._counted(text_of(delta.signature))
                return [Step()]
            case "input_json_delta":
                piece = text_of(delta.partial_json)
                if isinstance(block := self._open.get(index), _Call):
                    block.pieces.write(self._counted(piece))
                return [Step()] if piece else []
            case _:
                return []

    def _close_block(self, index: int) -> None:
        block = self._open.pop(index, None)
        if isinstance(block, _Thinking) and (reasoning := block.finished()) is not None:
            self._reasoning.append(reasoning)

    def _text(self, text: str) -> list[AnyHappening]:
        self._text_length += len(self._counted(text))
        return [Text(text)] if text else []

    def _think(self, index: int, text: str) -> list[AnyHappening]:
        self._counted(text)
        if isinstance(block := self._open.get(index), _Thinking):
            block.text.write(text)
        return [ReasoningText(text)] if text else []

    def _thinking(self, redacted: str) -> _Thinking:
        self._extent.block()
        return _Thinking(redacted=redacted, after_text=self._text_length, after_calls=len(self._calls))

    def _counted(self, text: str) -> str:
        self._extent.add(text)
        return text

    def _note_end(self, stop_reason: msgspec.Raw, stop_details: msgspec.Raw) -> None:
        self._stop_reason = text_of(stop_reason) or self._stop_reason
        self._refusal = text_of(fields_of(_stop_details, stop_details).explanation) or self._refusal

    def _within_extent(self, happenings: list[AnyHappening], *, in_stream: bool) -> list[AnyHappening]:
        excess = self._extent.excess
        return happenings if excess is None else [Malformed(excess, "", in_stream=in_stream)]
