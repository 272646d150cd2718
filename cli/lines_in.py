"""Lines of standard input, as they come. Pure: bytes in, lines out."""

from typing import Final

LONGEST_BYTES: Final = 10_000_000
"""A line that does not end is cut here."""


class LineReader:
    def __init__(self) -> None:
        self._data = bytearray()
        self._ended = False

    def feed(self, piece: bytes) -> None:
        """An empty piece is the end of the input."""
        if piece:
            self._data += piece
        else:
            self._ended = True

    def take(self) -> bytes:
        """Everything that has come and was not handed out."""
        data = bytes(self._data)
        self._data.clear()
        return data

    def reopen(self) -> None:
        """Forget the end: after Ctrl+D a terminal gives more."""
        self._ended = False

    @property
    def ended(self) -> bool:
        """True: no line is left and none will come."""
        return self._ended and not self._data

    def next(self) -> str | None:
        """The next whole line without its end, bytes that are not UTF-8 replaced; None until there is one."""
        end = self._data.find(b"\n")
        if end < 0:
            if not (self._ended or len(self._data) > LONGEST_BYTES) or not self._data:
                return None
            end = len(self._data)
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        return line.decode("utf-8", "replace").removesuffix("\r")
