"""What a tool printed: head and tail kept, the rest counted, bounded where it is read (G6)."""

from collections.abc import Callable
from typing import Protocol

_CONTINUATION = range(0x80, 0xC0)
_LONGEST_CHARACTER = 4


class Sink(Protocol):
    """Where what a child prints goes."""

    @property
    def full(self) -> bool:
        """Whether to read on at a limited rate only."""
        ...

    def add(self, data: bytes) -> None: ...


class Output:
    """Collects bytes; memory stays below twice `limit_bytes`, however much is added."""

    def __init__(self, limit_bytes: int, came: Callable[[int], None] | None = None) -> None:
        """`came` is told the size of each piece."""
        self.total = 0
        """Bytes that were added, kept or not."""
        self._came = came
        self._head_limit = limit_bytes // 2
        self._tail_limit = max(1, limit_bytes - self._head_limit)
        self._head = bytearray()
        self._tail = bytearray()

    @property
    def full(self) -> bool:
        """Whether a further byte pushes one out."""
        return self.total >= self._head_limit + self._tail_limit

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._came is not None:
            self._came(len(data))
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:][-self._tail_limit :]
        if len(self._tail) >= 2 * self._tail_limit:  # cut seldom: each cut moves the whole tail
            del self._tail[: -self._tail_limit]

    def text(self) -> str:
        """All of it, or head, a line that says how much is missing, and tail; cut between characters."""
        tail = bytes(self._tail[-self._tail_limit :])
        head = bytes(self._head)
        if len(head) + len(tail) == self.total:
            return readable(head + tail)
        head = _without_cut_end(head)
        tail = _without_cut_start(tail)
        missing = self.total - len(head) - len(tail)
        return f"{readable(head)}\n[... {missing} bytes not kept ...]\n{readable(tail)}"


def readable(data: bytes) -> str:
    """UTF-8 with U+FFFD for what is none, and for NUL, which some model servers refuse. Never a lone surrogate (G7)."""
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def _without_cut_end(data: bytes) -> bytes:
    """Without the begun character at the end, if one was cut there."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte not in _CONTINUATION:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if length > back else data
    return data


def _without_cut_start(data: bytes) -> bytes:
    """Without the rest of a character at the start, if one was cut there."""
    start = 0
    while start < min(_LONGEST_CHARACTER - 1, len(data)) and data[start] in _CONTINUATION:
        start += 1
    return data[start:]
