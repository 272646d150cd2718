"""A chat-completions response, read event by event.

What counts: a `finish_reason` or `[DONE]` is the positive end signal (D2). An `error` beside anything, a finish
reason `error`, or an event named `error` is the provider's error and ends the reading. Usage may follow the finish.
An answer that grows beyond extent.py is refused with the event that takes it there.
"""

import io

import msgspec

from haltline.protocol.conversation import Reasoning
from haltline.protocol.kinds import Finish
from haltline.worker.llm.assembly import Assembly, Piece
from haltline.worker.llm.chat_usage import ChatUsage
from haltline.worker.llm.extent import Extent
from haltline.worker.llm.finish_words import finish_of, weighed
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
from haltline.worker.llm.json_text import ABSENT, Unreadable, arguments_of, decode, is_there
from haltline.worker.llm.sse import DONE, PING_EVENTS, Event


class _Part(msgspec.Struct, frozen=True):
    text: str | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: msgspec.Raw = ABSENT
    """Text, null, or (R40) an object."""


class _ToolCall(msgspec.Struct, frozen=True):
    index: int | float | str | None = None
    id: str | int | None = None
    function: _Function | None = None


class _Detail(msgspec.Struct, frozen=True):
    text: str | None = None
    summary: str | None = None


class _Delta(msgspec.Struct, frozen=True):
    """A piece of the message, or the whole one."""

    role: str | None = None
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[_Detail] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    error: msgspec.Raw = ABSENT
    usage: msgspec.Raw = ABSENT


class _Chunk(msgspec.Struct, frozen=True):
    object: str | None = None
    type: str | None = None
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT

    def reports_error(self) -> bool:
        if is_there(self.error) or self.object == "error" or self.type == "error":
            return True
        return any(
            is_there(choice.error) or (choice.finish_reason or "").lower() == "error" for choice in self.choices or ()
        )


_decoder = msgspec.json.Decoder(_Chunk)


class ChatReader:
    """One response. See adapter.EventReader."""

    def __init__(self) -> None:
        self._finish: Finish | None = None
        self._finish_raw = ""
        self._began = False
        self._calls = Assembly()
        self._usage = ChatUsage()
        self._extent = Extent()
        self._reasoning = io.StringIO()
        self._reasoning_field: str | None = None
        self._refusal = io.StringIO()

    def take(self, event: Event) -> list[AnyHappening]:
        if event.name in PING_EVENTS:
            return []
        if event.data.strip() == DONE:
            return [self._done()]
        if event.name == "error":
            return [] if event.unterminated else [ErrorReport(event.data, in_stream=True)]
        try:
            chunk = decode(_decoder, event.data)
            if chunk.reports_error():
                return [ErrorReport(event.data, in_stream=True)]
            return self._take_chunk(chunk, in_stream=True)
        except Unreadable as problem:
            # Cut off by the end of the input: a truncation, which the missing end signal tells.
            return [] if event.unterminated else [Malformed(str(problem), event.data, in_stream=True)]

    def whole(self, body: bytes) -> list[AnyHappening]:
        text = body.decode("utf-8", "replace")
        try:
            chunk = decode(_decoder, text)
            if chunk.reports_error():
                return [ErrorReport(text, in_stream=False)]
            if not any(choice.message for choice in chunk.choices or ()):
                return [Malformed("a JSON body that is neither an answer nor an error", text, in_stream=False)]
            return [*self._take_chunk(chunk, in_stream=False), self._done()]
        except Unreadable as problem:
            return [Malformed(str(problem), text, in_stream=False)]

    def summary(self) -> Summary:
        text, refusal = self._reasoning.getvalue(), self._refusal.getvalue()
        finish = weighed(self._finish, refusal)
        return Summary(
            finish=finish,
            finish_raw=self._finish_raw,
            calls=self._calls.calls(ended=finish is not None, cut=finish in ("length", "content_filter")),
            reasoning=(Reasoning(text=text, field=self._reasoning_field),) if text and finish else (),
            usage=self._usage.total(),
            refusal=refusal,
        )

    def _take_chunk(self, chunk: _Chunk, *, in_stream: bool) -> list[AnyHappening]:
        """Raises Unreadable for an argument text that cannot be read."""
        happenings: list[AnyHappening] = []
        if is_there(chunk.usage):
            self._usage.report(chunk.usage)
        for choice in chunk.choices or ():
            if is_there(choice.usage):
                self._usage.report(choice.usage)
            if (delta := choice.delta or choice.message) is not None:
                happenings += self._take_delta(delta)
            if choice.finish_reason and self._finish is None:
                self._finish_raw = choice.finish_reason
                self._finish = finish_of(choice.finish_reason)
                happenings.append(Finished(last=False))
        if (excess := self._extent.excess) is not None:
            return [Malformed(excess, "", in_stream=in_stream)]
        return happenings

    def _take_delta(self, delta: _Delta) -> list[AnyHappening]:
        happenings: list[AnyHappening] = []
        if reasoning := self._reasoning_of(delta):
            self._extent.add(reasoning)
            self._reasoning.write(reasoning)
            happenings.append(ReasoningText(reasoning))
        if text := _text_of(delta):
            self._extent.add(text)
            happenings.append(Text(text))
        if delta.refusal:
            self._extent.add(delta.refusal)
            self._refusal.write(delta.refusal)
            happenings.append(Step())
        for call in delta.tool_calls or ():
            if self._extent.excess is not None:
                break
            self._add_call(call)
            happenings.append(Step())
        if delta.function_call is not None and not delta.tool_calls:
            self._add_call(_ToolCall(function=delta.function_call))
            happenings.append(Step())
        if not happenings and not self._began:
            happenings.append(Step())  # the first chunk has only a role; empty ones after it are no progress
        self._began = True
        return happenings

    def _reasoning_of(self, delta: _Delta) -> str:
        """Counted once where a server sends it under several names."""
        if delta.reasoning_content:
            self._reasoning_field = self._reasoning_field or "reasoning_content"
            return delta.reasoning_content
        details = "".join(detail.text or detail.summary or "" for detail in delta.reasoning_details or ())
        if text := delta.reasoning or details:
            self._reasoning_field = self._reasoning_field or "reasoning"
        return text

    def _add_call(self, call: _ToolCall) -> None:
        function = call.function or _Function()
        piece = Piece(
            index=int(call.index) if isinstance(call.index, int | float) else None,
            id="" if call.id is None else str(call.id),
            name=function.name or "",
            arguments=arguments_of(function.arguments),
        )
        for kept in self._calls.add(piece):
            self._extent.add(kept)
        self._extent.calls(len(self._calls))

    def _done(self) -> Finished:
        if self._finish is None:
            self._finish = "tool_calls" if self._calls else "stop"
            self._finish_raw = DONE
        return Finished(last=True)


def _text_of(delta: _Delta) -> str:
    if isinstance(delta.content, list):
        return "".join(part.text or "" for part in delta.content)
    return delta.content or ""
