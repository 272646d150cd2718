"""What a user is told of a worker's last words, which may be a traceback. The whole is in the log. Pure."""

import re

MAX_CHARACTERS = 200
"""One line of a terminal, or two."""

_FRAME = " \t|+-"
"""Around the lines of a traceback of an exception group."""

_FOLDERS = re.compile(
    r"(?<=['\"])~?/[^'\"]*/(?=[^'\"])"  # quoted: with blanks in it
    r"|(?<![\w/:.])~?/(?:[^/\s'\",:;()]+/)+(?=[^/\s])"
)
"""Of a path that begins at the root or at home; no part of a URL."""


def line(words: str) -> str:
    """The last line that says something, without the folders of the paths in it: `ModuleNotFoundError: No module named
    'x'`. "" where there is none."""
    lines = (line.strip(_FRAME) for line in reversed(words.splitlines()))
    last = next((line for line in lines if any(map(str.isalnum, line))), "")
    text = " ".join("".join(character if character.isprintable() else " " for character in last).split())
    text = _FOLDERS.sub("", text)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
