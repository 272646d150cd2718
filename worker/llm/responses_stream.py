"""An OpenAI responses answer, read event by event.

Rules:
1. The type in the data counts, the event's name only where there is none.
2. `response.completed` and `response.incomplete` are the positive end signals (D2), read with the status and the
   reason inside them. `response.failed`, an `error` event, or an `error` beside no type that we know is the provider's
   error and ends the reading. `[DONE]` says nothing.
3. A call is found by the item's id that it was announced with, else by its place in the output, else it is the last
   one announced: servers change the ids from event to event, or leave out either. The calls are put in the order of
   their places, not of their ends. The call's own id is `call_id`.
4. Each text comes three times: in pieces, in its item's end, in the response's. The first that brings anything counts;
   the later ones only complete what never came.
5. The argument text at a call's end is the whole one and wins over the pieces.
6. Reasoning is whole when its item ended and is encrypted (D7): without that no server can read it again, for nothing
   is stored there.
7. That the request was accepted, or that the model will now reason, is no event of the model: it may be silent for
   100 s after it (R31).
8. An answer that grows beyond extent.py is refused with the event that takes it there.
"""

import io
from bisect import bisect_left
from itertools import chain

import msgspec

from haltline.protocol.conversation import Reasoning
from haltline.protocol.kinds import Finish
from haltline.worker.llm.drafts import Assembled, drafts
from haltline.worker.llm.extent import Extent
from haltline.worker.llm.finish_words import weighed
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
from haltline.worker.llm.responses_usage import ResponsesUsage
from haltline.worker.llm.sse import DONE, PING_EVENTS, Event

EVENTS = frozenset(
    {
        "response.output_item.added",
        "response.output_item.done",
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
    }
)
"""Those that say something. The others are announcements, repetitions, and tools that run at the provider's."""

FAILED = frozenset({"failed", "cancelled"})
"""Statuses of a response that will not be whole."""


class _Body(msgspec.Struct, frozen=True):
    """The data of an event, or a whole response, or an error in place of either."""

    type: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT
    output_index: msgspec.Raw = ABSENT
    item_id: msgspec.Raw = ABSENT
    item: msgspec.Raw = ABSENT
    delta: msgspec.Raw = ABSENT
    arguments: msgspec.Raw = ABSENT
    response: msgspec.Raw = ABSENT


class _Response(msgspec.Struct, frozen=True):
    status: msgspec.Raw = ABSENT
    error: msgspec.Raw = ABSENT
    incomplete_details: msgspec.Raw = ABSENT
    output: msgspec.Raw = ABSENT
    usage: msgspec.Raw = ABSENT


class _IncompleteDetails(msgspec.Struct, frozen=True):
    reason: msgspec.Raw = ABSENT


class _Item(msgspec.Struct, frozen=True):
    type: msgspec.Raw = ABSENT
    id: msgspec.Raw = ABSENT
    status: msgspec.Raw = ABSENT
    call_id: msgspec.Raw = ABSENT
    name: msgspec.Raw = ABSENT
    arguments: msgspec.Raw = ABSENT
    content: msgspec.Raw = ABSENT
    summary: msgspec.Raw = ABSENT
    encrypted_content: msgspec.Raw = ABSENT


class _Part(msgspec.Struct, frozen=True):
    type: msgspec.Raw = ABSENT
    text: msgspec.Raw = ABSENT
    refusal: msgspec.Raw = ABSENT


class _Failed(msgspec.Struct, frozen=True):
    """What is passed on of a response that failed: beside it stands our own request, whose words are no evidence."""

    error: msgspec.Raw


_body = msgspec.json.Decoder(_Body)
_response = msgspec.json.Decoder(_Response)
_incomplete_details = msgspec.json.Decoder(_IncompleteDetails)
_item = msgspec.json.Decoder(_Item)
_items = msgspec.json.Decoder(list[_Item])
_parts = msgspec.json.Decoder(list[_Part])
_encoder = msgspec.json.Encoder()


class _Call:
    def __init__(self, place: int, item_id: str) -> None:
        self.place = place
        self.item_id = item_id
        self.id = ""
        self.name = ""
        self._pieces = io.StringIO()
        self._length = 0
        self._whole = ""
        """The argument text as its end gave it (rule 5); pieces that follow are of nothing."""
        self.is_done = False

    def add(self, piece: str) -> None:
        if not self._whole:
            self._pieces.write(piece)
            self._length += len(piece)

    def replace(self, whole: str) -> str:
        """What of it is more than came before."""
        more = whole[self._length :]
        self._pieces, self._length, self._whole = io.StringIO(), len(whole), whole
        return more

    def arguments(self) -> str:
        return self._whole or self._pieces.getvalue()


class _Encrypted(msgspec.Struct, frozen=True):
    """An ended item of reasoning, and its place."""

    place: int
    after_text: int
    text: str
    content: str
    id: str


class ResponsesReader:
    """One response. See adapter.EventReader."""

    def __init__(self) -> None:
        self._finish: Finish | None = None
        self._finish_raw = ""
        self._calls: list[_Call] = []
        self._with_id: dict[str, _Call] = {}
        self._at: dict[int, _Call] = {}
        self._reasoning: list[_Encrypted] = []
        self._refusal = io.StringIO()
        self._text_length = 0
        self._said = self._reasoned = self._refused = 0
        """Characters that came since the last item of that kind ended (rule 4)."""
        self._said_any = self._reasoned_any = False
        self._usage = ResponsesUsage()
        self._extent = Extent()

    def take(self, event: Event) -> list[AnyHappening]:
        if event.name in PING_EVENTS or event.data.strip() in ("", DONE):
            return []
        if event.name == "error":
            return [] if event.unterminated else [ErrorReport(event.data, in_stream=True)]
        try:
            body = decode(_body, event.data)
            kind = text_of(body.type) or event.name  # rule 1
            if kind == "error" or (not kind.startswith("response.") and is_there(body.error)):
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
            response = decode(_response, text)
            status = text_of(response.status)
            happenings: list[AnyHappening]
            is_answer = status in ("completed", "incomplete") and bytes(response.output).startswith(b"[")
            if is_answer or (status in FAILED and is_there(response.error)):
                happenings = self._end(status, response, in_stream=False)
            elif is_there(response.error) or text_of(decode(_body, text).type) == "error":
                happenings = [ErrorReport(text, in_stream=False)]
            else:
                happenings = [Malformed("a JSON body that is neither an answer nor an error", text, in_stream=False)]
        except Unreadable as problem:
            return [Malformed(str(problem), text, in_stream=False)]
        return self._within_extent(happenings, in_stream=False)

    def summary(self) -> Summary:
        cut = self._finish in ("length", "content_filter")
        calls = sorted(self._calls, key=lambda call: call.place)
        places = [call.place for call in calls]
        refusal = self._refusal.getvalue()
        finish = weighed(self._finish, refusal)
        return Summary(
            finish=finish,
            finish_raw=self._finish_raw,
            calls=drafts(
                Assembled(
                    id=call.id,
                    name=call.name,
                    arguments=call.arguments(),
                    complete=self._finish is not None and (call.is_done or not cut),
                )
                for call in calls
            ),
            reasoning=tuple(
                Reasoning(
                    text=one.text,
                    field="encrypted_content",
                    opaque=one.content,
                    item_id=one.id or None,
                    after_text=one.after_text,
                    after_calls=bisect_left(places, one.place),
                )
                for one in sorted(self._reasoning, key=lambda one: one.place)
            )
            if self._finish
            else (),
            usage=self._usage.total(),
            refusal=refusal,
        )

    def _take(self, kind: str, body: _Body) -> list[AnyHappening]:
        """Raises Unreadable for one of EVENTS that has not its shape."""
        match kind:
            case "response.output_text.delta":
                return self._text(text_of(body.delta))
            case "response.refusal.delta":
                return self._refuse(text_of(body.delta))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._reason(text_of(body.delta))
            case "response.output_item.added":
                item = fields_of(_item, body.item)
                if text_of(item.type) == "function_call":
                    self._announce(item, whole_number(body.output_index))
                    return [Step()]
                return [] if text_of(item.type) == "reasoning" else [Step()]  # rule 7
            case "response.function_call_arguments.delta":
                piece = text_of(body.delta)
                if (call := self._found(body)) is not None:
                    call.add(self._counted(piece))
                return [Step()] if piece else []
            case "response.function_call_arguments.done":
                if (call := self._found(body)) is not None:
                    self._complete(call, body.arguments)
                return [Step()]
            case "response.output_item.done":
                return self._end_item(fields_of(_item, body.item), body)
            case "response.completed" | "response.incomplete" | "response.failed":
                return self._end(kind.removeprefix("response."), fields_of(_response, body.response), in_stream=True)
            case _:
                return []

    def _end_item(self, item: _Item, body: _Body) -> list[AnyHappening]:
        match text_of(item.type):
            case "message":
                happenings = self._missing_texts(item, said=self._said > 0, refused=self._refused > 0)
                self._said = self._refused = 0
                return [*happenings, Step()]
            case "reasoning":
                place = whole_number(body.output_index)
                happenings = self._end_reasoning(item, place, known=self._reasoned > 0)
                self._reasoned = 0
                return [*happenings, Step()]
            case "function_call":
                call = self._found(body, text_of(item.id))
                if call is None or (call.is_done and call.id != text_of(item.call_id)):
                    call = self._announce(item, whole_number(body.output_index))
                self._end_call(call, item)
                return [Step()]
            case _:
                return []

    def _end(self, word: str, response: _Response, *, in_stream: bool) -> list[AnyHappening]:
        """`word`: how the response ended, by its last event; its status may know better (rule 2)."""
        self._usage.report(response.usage)
        status = text_of(response.status)
        if status in FAILED or word in FAILED:
            error = response.error if is_there(response.error) else msgspec.Raw(_encoder.encode(f"response {word}"))
            return [ErrorReport(_encoder.encode(_Failed(error)).decode("utf-8", "replace"), in_stream=in_stream)]
        happenings: list[AnyHappening] = []
        if bytes(response.output).startswith(b"["):
            happenings += self._missing_items(decode(_items, response.output))
        if "incomplete" in (word, status):
            reason = text_of(fields_of(_incomplete_details, response.incomplete_details).reason)
            self._finish = "content_filter" if reason == "content_filter" else "length"
            self._finish_raw = reason or "incomplete"
        else:
            self._finish = "tool_calls" if self._calls else "stop"
            self._finish_raw = "completed"
        return [*happenings, Finished(last=True)]

    def _missing_items(self, items: list[_Item]) -> list[AnyHappening]:
        """What stands in the response's end alone (rule 4)."""
        said, refused, reasoned = self._said_any, bool(self._refusal.tell()), self._reasoned_any
        encrypted, called = bool(self._reasoning), bool(self._calls)
        happenings: list[AnyHappening] = []
        for place, item in enumerate(items):
            match text_of(item.type):
                case "message":
                    happenings += self._missing_texts(item, said=said, refused=refused)
                case "reasoning" if not encrypted:
                    happenings += self._end_reasoning(item, place, known=reasoned)
                case "function_call" if not called:
                    self._end_call(self._announce(item, place), item)
                case _:
                    pass
        return happenings

    def _missing_texts(self, item: _Item, *, said: bool, refused: bool) -> list[AnyHappening]:
        happenings: list[AnyHappening] = []
        for part in _parts_of(item.content):
            match text_of(part.type):
                case "output_text" | "text" if not said:
                    happenings += self._text(text_of(part.text))
                case "refusal" if not refused:
                    happenings += self._refuse(text_of(part.refusal))
                case _:
                    pass
        return happenings

    def _end_reasoning(self, item: _Item, place: int | None, *, known: bool) -> list[AnyHappening]:
        """`known`: its text has come already."""
        summary = _parts_of(item.summary)
        happenings: list[AnyHappening] = []
        if not known:
            for part in chain(summary, _parts_of(item.content)):
                happenings += self._reason(text_of(part.text))
        encrypted = text_of(item.encrypted_content)
        if encrypted and text_of(item.status) != "incomplete":  # rule 6
            text = "".join(text_of(part.text) for part in summary)
            self._counted(text[self._reasoned :])
            self._counted(encrypted)
            self._extent.block()
            self._reasoning.append(
                _Encrypted(
                    place=self._next_place() if place is None else place,
                    after_text=self._text_length,
                    text=text,
                    content=encrypted,
                    id=self._counted(text_of(item.id)),
                )
            )
        return happenings

    def _announce(self, item: _Item, place: int | None) -> _Call:
        call = _Call(self._next_place() if place is None else place, text_of(item.id))
        call.id = self._counted(text_of(item.call_id) or call.item_id)
        call.name = self._counted(text_of(item.name))
        call.add(self._counted(arguments_of(item.arguments)))
        self._calls.append(call)
        self._extent.calls(len(self._calls))
        self._at[call.place] = call
        if call.item_id:
            self._with_id[call.item_id] = call
        return call

    def _next_place(self) -> int:
        return len(self._calls) + len(self._reasoning)

    def _found(self, body: _Body, item_id: str = "") -> _Call | None:
        """Rule 3."""
        known = self._with_id.get(text_of(body.item_id) or item_id)
        if known is not None:
            return known
        place = whole_number(body.output_index)
        if place is not None:
            return self._at.get(place)
        return self._calls[-1] if self._calls and not item_id else None

    def _end_call(self, call: _Call, item: _Item) -> None:
        self._complete(call, item.arguments)
        call.name = call.name or self._counted(text_of(item.name))
        call.id = text_of(item.call_id) or call.id
        call.is_done = text_of(item.status) != "incomplete"

    def _complete(self, call: _Call, arguments: msgspec.Raw) -> None:
        """Rule 5."""
        whole = arguments_of(arguments)
        if whole:
            self._counted(call.replace(whole))

    def _text(self, text: str) -> list[AnyHappening]:
        if not text:
            return []
        self._text_length += len(self._counted(text))
        self._said += len(text)
        self._said_any = True
        return [Text(text)]

    def _reason(self, text: str) -> list[AnyHappening]:
        if not text:
            return []
        self._reasoned += len(self._counted(text))
        self._reasoned_any = True
        return [ReasoningText(text)]

    def _refuse(self, text: str) -> list[AnyHappening]:
        if not text:
            return []
        self._refused += len(self._counted(text))
        self._refusal.write(text)
        return [Step()]

    def _counted(self, text: str) -> str:
        self._extent.add(text)
        return text

    def _within_extent(self, happenings: list[AnyHappening], *, in_stream: bool) -> list[AnyHappening]:
        excess = self._extent.excess
        return happenings if excess is None else [Malformed(excess, "", in_stream=in_stream)]


def _parts_of(raw: msgspec.Raw) -> list[_Part]:
    return decode(_parts, raw) if is_there(raw) else []
