"""The token numbers that an overflow's words name: the window, the request, the part kept for the output. Pure.

A number is taken from its words; where no words fit, two numbers of a message are the request and the window,
the larger being the request. Numbers that contradict each other are dropped rather than guessed.
"""

import re

import msgspec

from haltline.supervisor.failure_evidence import Evidence

SMALLEST = 256
"""Smaller numbers are codes, indexes or counts of messages, not windows."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """None: not said."""

    limit: int | None = None
    requested: int | None = None
    """The whole request as the error counts it, `output` included where it is known."""
    output: int | None = None
    """What max_tokens reserved of it."""


NO_TOKENS = Tokens()

_N = r"\(?(\d[\d,_]{0,14})(?![\d_k])\)?"
_SUM = re.compile(rf"{_N} \+ {_N} > {_N}")
"""`input + max_tokens > window` (Anthropic)."""
_DIFFERENCE = re.compile(rf"{_N} > {_N} - {_N}")
"""`max_tokens > window - input` (vLLM)."""
_IS = r"(?: is| of|:)?(?: only)?"
_LIMIT = (
    rf"> {_N}(?: maximum)?",
    (
        r"(?:maximum|max|model's|model) (?:allowed )?(?:\w+ )?"
        rf"(?:context|model|prompt|input|sequence) (?:length|window|size){_IS} {_N}"
    ),
    rf"(?:context|input) (?:window|length|size|limit){_IS} {_N}",
    rf"{_N} maximum context",
    rf"(?:limit|maximum){_IS} {_N}",
    rf"(?:supports?|allowed)(?: only| up| to| is)* {_N}",
    rf"(?:less than|<=) {_N}",
    rf"should be \[\d+, {_N}\]",
    rf"(?:n_ctx:|max_seq_len) {_N}",
)
_REQUESTED = (
    rf"too long: {_N} tokens",
    rf"requested (?:about |a total of |at least )*{_N}(?! output)(?: tokens)?",
    rf"(?:resulted in|contains?|has|passed|total of|keep the first)(?: at least)? {_N} (?:\w+ )?tokens",
    rf"requested: {_N}",
    rf"given: {_N}",
    rf"current length is {_N}",
    rf"(?:prompt|input|request|requested tokens)(?: token)?(?: count| length)?(?: is| of)? {_N}",
    rf"(?:n_keep:|prompt_tokens) {_N}",
)
_OUTPUT = (
    rf"{_N} (?:tokens )?(?:in|for) (?:the |your )?(?:completion|output)",
    rf"{_N} (?:output tokens|max_new_tokens)",
)
_LIMITS, _REQUESTS, _OUTPUTS = (tuple(map(re.compile, words)) for words in (_LIMIT, _REQUESTED, _OUTPUT))
_ANY = re.compile(r"(?<![\w.])\d[\d,_]{2,14}(?![\w.]*\w)")


def tokens(evidence: Evidence) -> Tokens:
    """The numbers of an overflow. Fields of the body beat its words."""
    text = evidence.full_text.lower()
    if found := _SUM.search(text):
        fresh, output, limit = map(_number, found.groups())
        return _sound(limit, fresh + output, output)
    if found := _DIFFERENCE.search(text):
        output, limit, fresh = map(_number, found.groups())
        return _sound(limit, fresh + output, output)
    window = evidence.limit_tokens or _first(_LIMITS, text)
    request = evidence.requested_tokens or _first(_REQUESTS, text)
    reserved = _first(_OUTPUTS, text)
    if window is None or request is None:
        numbers = sorted({number for number in map(_number, _ANY.findall(text)) if number >= SMALLEST})
        if len(numbers) == 2:
            window, request = numbers
    elif reserved is not None and request <= window:
        request += reserved  # counted apart: `requested M output tokens and your prompt contains N`
    return _sound(window, request, reserved)


def _sound(limit: int | None, requested: int | None, output: int | None) -> Tokens:
    """The numbers that make sense beside each other."""
    if limit is not None and limit < SMALLEST:
        limit = None
    if requested is not None and (requested < SMALLEST or (limit is not None and requested <= limit)):
        requested = None
    if output is not None and (requested is None or not 0 < output < requested):
        output = None
    return Tokens(limit=limit, requested=requested, output=output)


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(text)
        if found is not None and (number := _number(found[1])) >= SMALLEST:
            return number
    return None


def _number(digits: str) -> int:
    return int(digits.replace(",", "").replace("_", ""))
