"""How long a server asked us to wait, out of headers and bodies (requirement C3). Pure, never raises.

Precedence: `retry-after-ms`, `retry-after` (seconds or a date), fields of the body, words of the body.
Zero, negative, not finite, absurd and unreadable values count as absent, so that the next source is asked.
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

LONGEST_S = 100 * 365.25 * 86_400
"""More is absurd. A date in 2099 is not: it is surfaced with its time (R17, R19)."""
LONGEST_NUMBER_S = 10 * 365.25 * 86_400
"""A bare number above this is no wait in seconds (a Unix time, a wrong unit)."""

_NUMBER = re.compile(r"\s*\+?(\d{1,18}(?:\.\d{0,18})?(?:e[+-]?\d{1,3})?)\s*", re.IGNORECASE | re.ASCII)
_UNIT_MS = {
    "ms": 1.0,
    "millisecond": 1.0,
    "s": 1_000.0,
    "sec": 1_000.0,
    "second": 1_000.0,
    "m": 60_000.0,
    "min": 60_000.0,
    "minute": 60_000.0,
    "h": 3_600_000.0,
    "hr": 3_600_000.0,
    "hour": 3_600_000.0,
    "d": 86_400_000.0,
    "day": 86_400_000.0,
}
_UNITS = r"(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)(?![a-z])"
_AMOUNT = r"\d{1,9}(?:\.\d{1,9})?"
_PIECE = re.compile(rf"({_AMOUNT})\s{{0,3}}({_UNITS})", re.IGNORECASE | re.ASCII)
_ASKED = re.compile(
    r"(?:(?:try(?:ing)?|retry(?:ing)?|available|resets?)\s{1,3}(?:your\s{1,3}request\s{1,3})?(?:again\s{1,3})?(?:in|after)"
    r"|wait(?:\s{1,3}for)?|retry[-_ ]?after[\"']?\s{0,3}[:=]?)"
    r"\s{0,3}(?:about\s{1,3}|at\s{1,3}least\s{1,3}|~\s{0,3})?"
    rf"((?:{_AMOUNT}\s{{0,3}}{_UNITS}(?:\s{{0,3}},?\s{{0,3}}(?:and\s{{1,3}})?)){{1,4}}"
    rf"|{_AMOUNT}(?=\s{{0,3}}(?:$|[.,;:!?)\]}}\"'](?!\d))))",
    re.IGNORECASE | re.ASCII | re.MULTILINE,
)
_PROTO_DELAY = re.compile(r"retry_?delay\s{0,3}\{\s{0,3}seconds:\s{0,3}(\d{1,9})", re.IGNORECASE | re.ASCII)

WAIT_FIELDS: dict[str, float] = {
    "retryaftermilliseconds": 1.0,
    "retryafterms": 1.0,
    "retrydelayms": 1.0,
    "retryinms": 1.0,
    "retrydelay": 1_000.0,
    "retryafter": 1_000.0,
    "retryafterseconds": 1_000.0,
    "retryafters": 1_000.0,
    "retryin": 1_000.0,
    "retryinseconds": 1_000.0,
    "waitseconds": 1_000.0,
    "resetsinseconds": 1_000.0,
    "resetinseconds": 1_000.0,
    "resetafterseconds": 1_000.0,
    "secondsuntilreset": 1_000.0,
}
"""Body fields that hold a wait (names without `_` and `-`), with the milliseconds of their bare number."""

MOMENT_FIELDS = frozenset({"resetsat", "resetat", "resettime", "nextresettime", "xratelimitreset", "retryat"})
"""Body fields that hold a moment: Unix seconds or milliseconds, or a date."""


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a body that speaks of waiting."""

    field: str
    """Canonical: lower case, without `_` and `-`."""
    value: str


def asked_ms(headers: Mapping[str, str], hints: Iterable[Hint], texts: Iterable[str], wall_s: float) -> int | None:
    """Milliseconds to wait from now (`wall_s`, Unix seconds), rounded up; None: nothing usable was said."""
    hints = tuple(hints)
    for candidate in (
        _positive(_number(headers.get("retry-after-ms", "")), 1.0),
        _positive(_number(headers.get("retry-after", "")), 1_000.0),
        _until(_date(headers.get("retry-after", "")), wall_s),
        *(_field_ms(hint) for hint in hints),
        *(_until(_moment(hint.value), wall_s) for hint in hints if hint.field in MOMENT_FIELDS),
        *(_words_ms(text) for text in texts),
    ):
        if candidate is not None:
            return max(1, math.ceil(round(candidate, 6)))  # rounded: 2.3 s are 2300 ms, not 2301
    return None


def reset_moment(hints: Iterable[Hint], wall_s: float) -> float | None:
    """Unix seconds of a future moment that the body names as its reset; None: it names none."""
    for hint in hints:
        if hint.field in MOMENT_FIELDS:
            moment = _moment(hint.value)
            if moment is not None and _until(moment, wall_s) is not None:
                return moment
    return None


def _positive(number: float | None, unit_ms: float) -> float | None:
    if number is None or not 0 < number * unit_ms <= LONGEST_NUMBER_S * 1000:
        return None
    return number * unit_ms


def _number(text: str) -> float | None:
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    number = float(found[1])
    return number if math.isfinite(number) else None


def _date(text: str) -> float | None:
    """Unix seconds of an HTTP date or an ISO 8601 date."""
    text = text.strip()[:64]
    if not text or text[0] in "+-" or _NUMBER.fullmatch(text):
        return None
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = read(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
    return None


def _moment(text: str) -> float | None:
    number = _number(text)
    if number is None:
        return _date(text)
    return number / 1000 if number > 1e11 else number  # milliseconds: 1e11 s is the year 5138


def _until(moment: float | None, wall_s: float) -> float | None:
    if moment is None or not 0 < moment - wall_s <= LONGEST_S:
        return None
    return (moment - wall_s) * 1000


def _field_ms(hint: Hint) -> float | None:
    unit_ms = WAIT_FIELDS.get(hint.field)
    if unit_ms is None:
        return None
    number = _number(hint.value)
    return _pieces_ms(hint.value) if number is None else _positive(number, unit_ms)


def _words_ms(text: str) -> float | None:
    for found in _ASKED.finditer(text):
        number = _number(found[1])
        ms = _pieces_ms(found[1]) if number is None else _positive(number, 1_000.0)
        if ms is not None:
            return ms
    proto = _PROTO_DELAY.search(text)
    return _positive(_number(proto[1]), 1_000.0) if proto else None


def _pieces_ms(text: str) -> float | None:
    """Milliseconds of `8m38.4s`, `28ms`, `1 minute and 20 seconds`."""
    total = 0.0
    for amount, unit in _PIECE.findall(text.lower()):
        total += float(amount) * (_UNIT_MS.get(unit) or _UNIT_MS[unit.removesuffix("s")])
    return _positive(total / 1000, 1_000.0)
