"""What kind of body a 2xx response really has, and the reading of it. Pure: chunks in, happenings out.

The first bytes decide, then the content type: proxies lie about the second (D2).
"""

from typing import Literal

from haltline.worker.llm.adapter import EventReader
from haltline.worker.llm.happenings import AnyHappening, ErrorReport, Finished, Malformed
from haltline.worker.llm.sse import BOM, MAX_EVENT_BYTES, SseReader

FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""How a body begins that is a stream though its content type says otherwise."""

LONGEST_FIELD = 6
BLANK = b" \t\r\n"


class BodyReader:
    """Feed it every chunk, then `close`; it says nothing more after `over` is true."""

    def __init__(self, reader: EventReader, content_type: str) -> None:
        self._reader = reader
        self._says_stream = content_type.partition(";")[0].strip().lower() == "text/event-stream"
        self._kind: Literal["unknown", "stream", "json", "page", "other"] = "unknown"
        self._held = bytearray()
        """The undecided beginning; for anything but a stream, the body."""
        self._sse = SseReader()
        self.over = False
        """The last end signal, an error or something unreadable came."""
        self.finished = False
        """A positive end signal came; usage may follow."""

    def feed(self, chunk: bytes) -> list[AnyHappening]:
        if self.over:
            return []
        if self._kind == "stream":
            return self._stream(chunk)
        self._held += chunk
        if self._kind == "unknown":
            self._kind = self._look(final=False)
        if self._kind == "stream":
            return self._stream(self._release())
        if len(self._held) > MAX_EVENT_BYTES:
            return self._note([Malformed(f"a body larger than {MAX_EVENT_BYTES} bytes", self._text(), in_stream=False)])
        return []

    def close(self, *, broken: bool = False) -> list[AnyHappening]:
        """The input is over. `broken`: not where the server meant it to end."""
        if self.over:
            return []
        if self._kind == "unknown":
            self._kind = self._look(final=True)
            if self._kind == "stream" and (happenings := self._stream(self._release())):
                return [*happenings, *self.close(broken=broken)]
        match self._kind:
            case "unknown":
                return []
            case "stream":
                event = self._sse.close()
                return [] if event is None else self._note(self._reader.take(event))
            case "json":
                return [] if broken else self._note(self._reader.whole(bytes(self._held)))
            case "page":
                return self._note([Malformed("a web page in place of a stream", self._text(), in_stream=False)])
            case "other":
                return self._note(
                    [Malformed("a body that is neither a stream nor JSON", self._text(), in_stream=False)]
                )

    def _look(self, *, final: bool) -> Literal["unknown", "stream", "json", "page", "other"]:
        head = bytes(self._held[:256]).removeprefix(BOM).lstrip(BLANK)
        if head.startswith((b"{", b"[")):
            return "json"
        if head.startswith(b"<"):
            return "page"
        if head.startswith(FIELDS) or (head and self._says_stream):
            return "stream"
        return "other" if len(head) >= LONGEST_FIELD or (final and head) else "unknown"

    def _stream(self, chunk: bytes) -> list[AnyHappening]:
        happenings: list[AnyHappening] = []
        for event in self._sse.feed(chunk):
            if not self.over:
                happenings += self._note(self._reader.take(event))
        if self._sse.oversized and not self.over:
            happenings += self._note([Malformed(f"an event larger than {MAX_EVENT_BYTES} bytes", "", in_stream=True)])
        return happenings

    def _note(self, happenings: list[AnyHappening]) -> list[AnyHappening]:
        for happening in happenings:
            match happening:
                case Finished():
                    self.finished = True
                    self.over = self.over or happening.last
                case ErrorReport() | Malformed():
                    self.over = True
                case _:
                    pass
        return happenings

    def _release(self) -> bytes:
        held, self._held = bytes(self._held), bytearray()
        return held

    def _text(self) -> str:
        return bytes(self._held).decode("utf-8", "replace")
