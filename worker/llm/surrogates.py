"""Lone surrogates: no such half character leaves the worker (R87).

Bytes are decoded with replacement, so a lone surrogate can only come as a JSON escape, either of the stream's own
JSON or of the argument text inside it. Both are mended before they are parsed.
"""

import re

_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair, left as it is
    r"|(u[dD][89a-fA-F][0-9a-fA-F]{2})"  # half of one
    r"|.)",  # any other escape; eats the second backslash of an escaped one
    re.DOTALL,
)


def mend(json_text: str) -> str:
    """`json_text` with each escaped lone surrogate replaced by U+FFFD's escape. Other text is untouched."""
    if "\\u" not in json_text:
        return json_text
    return _ESCAPE.sub(_mend_one, json_text)


def _mend_one(match: re.Match[str]) -> str:
    return "\\ufffd" if match.group(1) else match.group(0)
