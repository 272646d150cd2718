"""Server-sent events, read as bytes.

Theory of operation. Truncation, broken characters and oversized events are decided here, so this is a reader of our
own and no library's (D5, R50). Rules:

1. Lines end at LF, CR or CRLF and nowhere else; U+2028 is a character like any other. A CR at the end of a chunk
   ends its line at once, and a LF that begins the next chunk belongs to it.
2. Bytes are decoded only when the event is whole, with replacement: no chunk border can break a character.
3. The work is linear in the bytes: both line ends are looked for from where the last search ended, and remembered
   (20 MiB on one line: 45 ms, nearly all of it copying; splitting a growing buffer took 1,700).
4. An event above MAX_EVENT_BYTES is refused while it arrives, before it is held whole.
5. Comments and the fields `id` and `retry` yield nothing. Whoever counts bytes on the wire has counted them.
6. At the end of the input an event without its blank line is handed out all the same, marked `unterminated`:
   servers forget that line, but a connection that broke in mid-event looks the same. The adapter can tell.
"""

import msgspec

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Decoding more would hold the loop longer than the 100 ms of L5 (JSON of 8 MiB: 4 to 40 ms)."""

PING_EVENTS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})
"""Event names that only keep the line open; their data is of no format."""

DONE = "[DONE]"
"""Data of the last event of OpenAI's streams; gateways append it to others'."""

BOM = b"\xef\xbb\xbf"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    """The `event` field; "" where there was none."""
    data: str
    """The data lines, joined by LF."""
    unterminated: bool = False
    """The input ended inside this event (rule 6)."""


class SseReader:
    """Chunks in, events out."""

    def __init__(self) -> None:
        self.oversized = False
        """An event was larger than MAX_EVENT_BYTES (rule 4): what follows it is not read."""
        self._buffer = bytearray()
        self._skip_lf = False
        self._first_line = True
        self._searched = 0
        """No line end lies before this position of the buffer (rule 3)."""
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        if self.oversized:
            return []
        buffer = self._buffer
        buffer += chunk
        start = 0
        if self._skip_lf and buffer:
            start = 1 if buffer[0] == 0x0A else 0
            self._skip_lf = False
        position = max(start, self._searched)
        lf, cr = buffer.find(b"\n", position), buffer.find(b"\r", position)
        events: list[Event] = []
        while lf >= 0 or cr >= 0:
            end = min(lf, cr) if lf >= 0 and cr >= 0 else max(lf, cr)
            line = bytes(memoryview(buffer)[start:end])
            start = end + 1
            if end == cr:
                if start == len(buffer):
                    self._skip_lf = True
                elif buffer[start] == 0x0A:
                    start += 1
            if 0 <= lf < start:
                lf = buffer.find(b"\n", start)
            if 0 <= cr < start:
                cr = buffer.find(b"\r", start)
            if (event := self._line(line)) is not None:
                events.append(event)
            elif self._data_bytes > MAX_EVENT_BYTES:
                break
        del buffer[:start]
        self._searched = len(buffer)
        if self._data_bytes + len(buffer) > MAX_EVENT_BYTES:
            self.oversized = True
            self._data.clear()
            buffer.clear()
        return events

    def close(self) -> Event | None:
        """The input is over: the event that had begun, if any (rule 6)."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        if rest and self._line(rest) is not None:
            raise AssertionError("a line with bytes in it ends no event")
        return self._take(unterminated=True)

    def _line(self, line: bytes) -> Event | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(BOM)
        if not line:
            return self._take(unterminated=False)
        if line.startswith(b"data:"):
            self._add(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line.startswith(b"event:"):
            self._name = line[6:].removeprefix(b" ")
        elif line == b"data":  # a field without a colon has an empty value
            self._add(b"")
        return None

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_bytes += len(value) + 1

    def _take(self, *, unterminated: bool) -> Event | None:
        data, name = self._data, self._name
        self._data, self._name, self._data_bytes = [], b"", 0
        if not data:
            return None
        return Event(
            name=name.decode("utf-8", "replace"),
            data=b"\n".join(data).decode("utf-8", "replace"),
            unterminated=unterminated,
        )
