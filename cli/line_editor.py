"""One line that a person types into a terminal in key mode: what is kept, and what the screen gets. Pure.

It does what a terminal in line mode does, no more: characters are added at the end, Backspace takes the last one away,
Ctrl+W the last word, Ctrl+U all; Enter ends the line, Ctrl+D on an empty line the input. Every other key is nothing.
"""

import unicodedata
from typing import Final

import msgspec

from haltline.cli.keys import Key
from haltline.cli.printable import cells, for_screen

_ENTER: Final = (b"\r", b"\n")
_BACKSPACE: Final = (b"\x7f", b"\b")
_WORD: Final = b"\x17"
_ALL: Final = b"\x15"
_END: Final = b"\x04"


class Typed(msgspec.Struct, frozen=True):
    """What one key did."""

    echo: str = ""
    """For the screen, if the person is to see what is typed."""
    line: str | None = None
    """A line that is whole, without its end."""
    ended: bool = False


class LineEditor:
    def __init__(self) -> None:
        self._characters: list[str] = []

    @property
    def text(self) -> str:
        """The line so far."""
        return "".join(self._characters)

    def press(self, key: Key) -> list[Typed]:
        if key.pasted:
            return [self._press(character.encode()) for character in _decoded(key.data)]
        return [self._press(key.data)]

    def clear(self) -> str:
        """Drop the line. Returns what takes it off the screen."""
        return self._drop(len(self._characters))

    def _press(self, key: bytes) -> Typed:
        if key in _ENTER:
            line = self.text
            self._characters.clear()
            return Typed("\n", line=line)
        if key in _BACKSPACE:
            return Typed(self._drop(1))
        if key == _WORD:
            words = self.text.rstrip()
            return Typed(self._drop(len(self._characters) - words.rfind(" ") - 1))
        if key == _ALL:
            return Typed(self.clear())
        if key == _END:
            return Typed(ended=not self._characters)
        character = _decoded(key)
        if len(character) != 1 or (unicodedata.category(character) == "Cc" and character != "\t"):
            return Typed()
        self._characters.append(character)
        return Typed(shown(character))

    def _drop(self, count: int) -> str:
        head = max(0, len(self._characters) - count)
        gone = "".join(self._characters[head:])
        del self._characters[head:]
        return "\b \b" * cells(shown(gone))


def shown(text: str) -> str:
    """As it stands on the screen: a tab takes one cell."""
    return for_screen(text).replace("\t", " ")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")
