"""The argument text of one call while it grows, and whether it is whole. Linear in the text, whatever its pieces.

Rules:
1. Brackets are counted outside strings, piece by piece. In anything that can still become a JSON object the count is
   nought only before it begins and when it is whole; so it is parsed at most once, the first time that somebody asks
   at nought.
2. What has been whole stays so while only blanks follow. What is not whole at nought never will be.
"""

import io

import msgspec

from haltline.worker.llm.surrogates import mend

BLANK = " \t\r\n"

SLICE = 1 << 20
"""Characters counted at a time: the count makes a list of the strings in them."""

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ArgumentText:
    def __init__(self) -> None:
        self._text = io.StringIO()
        self._began = False
        self._depth = 0
        self._in_string = False
        self._backslash = ""
        """The last character, if it escapes the next one."""
        self._whole: bool | None = None
        """None: nobody asked yet when the brackets were even (rule 1)."""

    def add(self, piece: str) -> None:
        self._text.write(piece)
        if piece.strip(BLANK):
            self._began = True
            if self._whole:
                self._whole = False
        for start in range(0, len(piece), SLICE):
            self._count(piece[start : start + SLICE])

    def __str__(self) -> str:
        return self._text.getvalue()

    def is_whole(self) -> bool:
        """True: a JSON object, from its first brace to its last."""
        if self._whole is None and self._began and self._depth == 0 and not self._in_string:
            self._whole = is_object(str(self))
        return bool(self._whole)

    def _count(self, text: str) -> None:
        text = self._backslash + text
        self._backslash = "\\" * ((len(text) - len(text.rstrip("\\"))) % 2)
        text = text.removesuffix(self._backslash)
        parts = text.replace("\\\\", "").replace('\\"', "").split('"')
        outside = "".join(parts[1 if self._in_string else 0 :: 2])
        self._depth += outside.count("{") + outside.count("[") - outside.count("}") - outside.count("]")
        if len(parts) % 2 == 0:
            self._in_string = not self._in_string


def is_object(text: str) -> bool:
    try:
        _object.decode(mend(text))
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
