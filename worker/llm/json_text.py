"""JSON as servers write it: strict first; half characters and bare control characters get a second, lenient look.

Events are decoded with their fields left raw, so that an event or a block of a kind that nobody knew when this was
written can have any shape: only what its kind calls for is looked at.
"""

import json
import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

ABSENT = msgspec.Raw(b"")
_NOTHING = frozenset({b"", b"null", b"false", b'""', b"{}", b"[]"})

_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT = "\ufffd".encode()
"""For each half character (R87)."""

MAX_PARTS = 50_000
"""Objects in one event, or half characters where it has any: each costs up to 0.5 us and 100 bytes, so that 8 MiB of
empty ones would hold the loop for more than a second (L5) and take 300 MiB (G6). Real events have tens."""

_text = msgspec.json.Decoder(str)
_number = msgspec.json.Decoder(int | float)


class Unreadable(Exception):
    """The text is no JSON, or JSON of another shape than was asked for; its words say which."""


def decode(decoder: msgspec.json.Decoder[T], text: str | msgspec.Raw) -> T:
    """Raises Unreadable."""
    if isinstance(text, str) and text.count("{") > MAX_PARTS:  # of raw ones the whole was looked at
        raise Unreadable(f"JSON of more than {MAX_PARTS:,} objects")
    try:
        return decoder.decode(text)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Unreadable(f"JSON of an unexpected shape: {error}") from error
    except msgspec.DecodeError:
        pass
    if not isinstance(text, str):
        text = bytes(text).decode("utf-8", "replace")
    if text.count("\\ud") + text.count("\\uD") > MAX_PARTS:
        raise Unreadable(f"not JSON: more than {MAX_PARTS:,} half characters")
    try:
        mended = json.dumps(json.loads(text, strict=False), ensure_ascii=False).encode("utf-8", "surrogatepass")
        return decoder.decode(_HALF.sub(_REPLACEMENT, mended))
    except (msgspec.ValidationError, RecursionError) as error:
        raise Unreadable(f"JSON of an unexpected shape: {error}") from error
    except ValueError as error:
        raise Unreadable(f"not JSON: {error}") from error


def fields_of(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw) -> T:
    """The object in a field; one without fields where there is none. Raises Unreadable for anything else."""
    return decode(decoder, raw if is_there(raw) else "{}")


def is_there(raw: msgspec.Raw) -> bool:
    """False: absent, null, or empty in any way."""
    return bytes(raw) not in _NOTHING


def text_of(raw: msgspec.Raw) -> str:
    """Of a JSON string; "" for anything else. Raises Unreadable for one that cannot be read."""
    return decode(_text, raw) if bytes(raw).startswith(b'"') else ""


def arguments_of(raw: msgspec.Raw) -> str:
    """The argument text of a call: text as it is; an object as its JSON text, as the server wrote it (R40).
    Raises Unreadable."""
    value = bytes(raw)
    if value in (b"", b"null"):
        return ""
    return text_of(raw) if value.startswith(b'"') else value.decode("utf-8", "replace")


def whole_number(raw: msgspec.Raw) -> int | None:
    """None: no whole number, also not one written with a fraction of nought."""
    try:
        number = _number.decode(raw)
    except msgspec.DecodeError:
        return None
    return int(number) if abs(number) < float("inf") and number == int(number) else None
