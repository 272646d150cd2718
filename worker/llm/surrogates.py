"""Lone surrogates: no such half character leaves the worker (R87).

Bytes are decoded with replacement, so a lone surrogate can only come as a JSON escape, either of the stream's own
JSON or of the argument text inside it. Both are mended before they are parsed.
"""

import re

_HIGH, _LOW = r"[dD][89abAB][0-9a-fA-F]{2}", r"[dD][c-fC-F][0-9a-fA-F]{2}"

_HALF = re.compile(rf"\\u(?:{_HIGH}(?!\\u{_LOW})|(?<!\\u{_HIGH}\\u){_LOW})")
"""In text without escaped backslashes, where each backslash begins an escape."""

_STAND_INS = "\x00\x01\x02\ue000"
"""One of them stands for an escaped backslash: the first that the text does not have. JSON has none of the first
three."""


def mend(json_text: str) -> str:
    """`json_text` with each escaped lone surrogate replaced by U+FFFD's escape. Other text is untouched."""
    if "\\ud" not in json_text and "\\uD" not in json_text:
        return json_text
    stand_in = next((one for one in _STAND_INS if one not in json_text), None)
    if stand_in is None:  # no JSON, and none of ours to mend
        return json_text
    return _HALF.sub(r"\\ufffd", json_text.replace("\\\\", stand_in)).replace(stand_in, "\\\\")
