"""Text of strangers (a model, a tool, a server) made harmless for a terminal and for a one-line message."""

import unicodedata
from typing import Final

_PICTURES: Final = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
"""Control characters become their pictures: an escape sequence is seen, not obeyed."""
_C1: Final = dict.fromkeys(range(128, 160), 65533)
"""The 8-bit controls; terminals obey 0x9B as they do ESC [."""
_DIRECTION: Final = dict.fromkeys((*range(8234, 8239), *range(8294, 8298), 8206, 8207, 1564), 65533)
"""Marks that reorder what is read: a question could show another command than the one that runs."""

_SCREEN: Final[dict[int, int | None]] = {
    **_PICTURES,
    **_C1,
    **_DIRECTION,
    ord("\n"): ord("\n"),
    ord("\t"): ord("\t"),
    ord("\r"): None,
}
_LINE: Final[dict[int, int | None]] = {**_PICTURES, **_C1, **_DIRECTION, ord("\t"): ord(" ")}


def for_screen(text: str) -> str:
    """`text` as it may be written to a terminal; lines and tabs stay. Works on any piece of a stream alone."""
    return text.translate(_SCREEN)


def one_line(text: str) -> str:
    """`text` on one line: runs of white space become one space, controls are made visible."""
    return " ".join(text.split()).translate(_LINE)


def fit(text: str, columns: int) -> str:
    """The head of a one-line `text` that takes at most `columns` cells, an ellipsis where something was cut."""
    used = 0
    for index, character in enumerate(text):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > columns:
            return _head(text[:index], columns)
    return text


def _head(text: str, columns: int) -> str:
    while text and cells(text) > columns - 1:
        text = text[:-1]
    return text + "…"


def cells(text: str) -> int:
    """How many columns a one-line `text` takes."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
