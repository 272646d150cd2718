"""JSON as servers write it: strict first; half characters and bare control characters get a second, lenient look.

Events are decoded with their fields left raw, so that an event or a block of a kind that nobody knew when this was
written can have any shape: only what its kind calls for is looked at.
"""

import json
from typing import TypeVar

import msgspec

from haltline.worker.llm.surrogates import mend

T = TypeVar("T")

ABSENT = msgspec.Raw(b"")
_NOTHING = frozenset({b"", b"null", b"false", b'""', b"{}", b"[]"})

_text = msgspec.json.Decoder(str)
_number = msgspec.json.Decoder(int | float)


class Unreadable(Exception):
    """The text is no JSON, or JSON of another shape than was asked for; its words say which."""


def decode(decoder: msgspec.json.Decoder[T], text: str | msgspec.Raw) -> T:
    """Raises Unreadable."""
    try:
        return decoder.decode(text)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Unreadable(f"JSON of an unexpected shape: {error}") from error
    except msgspec.DecodeError:
        pass
    if not isinstance(text, str):
        text = bytes(text).decode("utf-8", "replace")
    try:
        return decoder.decode(json.dumps(json.loads(mend(text), strict=False)))
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
    """Of a JSON string; "" for anything else."""
    if not bytes(raw).startswith(b'"'):
        return ""
    try:
        return decode(_text, raw)
    except Unreadable:
        return ""


def arguments_of(raw: msgspec.Raw) -> str:
    """The argument text of a call: text as it is; an object as its JSON text, as the server wrote it (R40)."""
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
