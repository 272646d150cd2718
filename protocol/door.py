"""The one answer of a supervisor's door: `token ` and TOKEN_BYTES bytes, or `refused: WORDS` and a line end.

supervisor/door.py gives it to whoever connects, cli/supervisors.py reads it."""

from typing import Final

import msgspec

TOKEN_BYTES: Final = 16
LONGEST_BYTES: Final = 1024
"""Of an answer; anything longer is none of ours."""

_GRANTED: Final = b"token "
_REFUSED: Final = b"refused: "


class Granted(msgspec.Struct, frozen=True):
    token: bytes
    """Good for one ClientHello."""


class TurnedAway(msgspec.Struct, frozen=True):
    words: str


def encode(answer: Granted | TurnedAway) -> bytes:
    match answer:
        case Granted(token=token):
            return _GRANTED + token
        case TurnedAway(words=words):
            return _REFUSED + words.encode() + b"\n"


def decode(data: bytes) -> Granted | TurnedAway | None:
    """None: not the whole answer yet. A line that is no answer of ours is taken as words."""
    if data.startswith(_GRANTED):
        token = data[len(_GRANTED) : len(_GRANTED) + TOKEN_BYTES]
        return Granted(token) if len(token) == TOKEN_BYTES else None
    words, end, _ = data.partition(b"\n")
    return TurnedAway(words.removeprefix(_REFUSED).decode("utf-8", "replace")) if end else None
