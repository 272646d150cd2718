"""What a view wants written: pieces of text for one of the two streams. Plain values; outlet.py writes them."""

from typing import Literal, Protocol

import msgspec

from haltline.protocol.lines import Line

To = Literal["out", "err"]


class Piece(msgspec.Struct, frozen=True):
    to: To
    text: str


class View(Protocol):
    """One way of showing a session. Everything but `show` is the same for a person, whatever stdout carries."""

    def show(self, line: Line, now: float) -> tuple[Piece, ...]:
        """What this event adds. `now`: monotonic seconds."""
        ...

    def status(self, now: float) -> str | None:
        """The line that stands below everything else on a terminal until the next event; None: no such line."""
        ...


def note(words: str) -> Piece:
    """Words of the client's own, on stderr."""
    return Piece("err", f"{words}\n")
