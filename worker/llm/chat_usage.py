"""Token usage as chat servers report it: once, in every chunk, or never, under several names.

Each field is kept at its largest value within the attempt (R61); the four parts are taken apart at the end, because
`prompt_tokens` includes the cached ones (R64). A count that is no whole number of 0..MAX_COUNT is none: it is ignored,
and the others of its report hold.
"""

import msgspec

from haltline.protocol.conversation import Usage

MAX_COUNT = 10**12
"""Tokens. Far above any window and any budget, and sums of it fit every number that they are sent in."""

_ABSENT = msgspec.Raw(b"null")


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: msgspec.Raw = _ABSENT
    cache_write_tokens: msgspec.Raw = _ABSENT


class _Reported(msgspec.Struct, frozen=True):
    prompt_tokens: msgspec.Raw = _ABSENT
    completion_tokens: msgspec.Raw = _ABSENT
    total_tokens: msgspec.Raw = _ABSENT
    """More than prompt and completion where a server leaves the reasoning out of `completion_tokens`."""
    prompt_tokens_details: _PromptDetails | None = None
    prompt_cache_hit_tokens: msgspec.Raw = _ABSENT
    """DeepSeek."""
    cache_read_input_tokens: msgspec.Raw = _ABSENT
    """Gateways before an Anthropic model."""
    cache_creation_input_tokens: msgspec.Raw = _ABSENT


_decoder = msgspec.json.Decoder(_Reported)
_number = msgspec.json.Decoder(int | float)


class UsageMeter:
    """Takes every report of one attempt."""

    def __init__(self) -> None:
        self._seen = False
        self._prompt = self._completion = self._total = self._read = self._written = 0

    def report(self, raw: msgspec.Raw) -> None:
        """`raw`: the JSON value of `usage`. One that cannot be read counts as absent: the answer is worth more."""
        try:
            reported = _decoder.decode(raw)
        except msgspec.DecodeError:
            return
        details = reported.prompt_tokens_details or _PromptDetails()
        self._prompt = self._larger(self._prompt, reported.prompt_tokens)
        self._completion = self._larger(self._completion, reported.completion_tokens)
        self._total = self._larger(self._total, reported.total_tokens)
        self._read = self._larger(
            self._read,
            details.cached_tokens,
            reported.prompt_cache_hit_tokens,
            reported.cache_read_input_tokens,
        )
        self._written = self._larger(self._written, details.cache_write_tokens, reported.cache_creation_input_tokens)

    def total(self) -> Usage | None:
        """None: no count came."""
        if not self._seen:
            return None
        return Usage(
            input=max(0, self._prompt - self._read - self._written),
            cache_read=self._read,
            cache_write=self._written,
            output=max(self._completion, self._total - self._prompt if self._prompt else 0),
        )

    def _larger(self, known: int, *reported: msgspec.Raw) -> int:
        counts = [count for raw in reported if (count := _count(raw)) is not None]
        self._seen = self._seen or bool(counts)
        return max(known, *counts) if counts else known


def _count(raw: msgspec.Raw) -> int | None:
    try:
        number = _number.decode(raw)
    except msgspec.DecodeError:
        return None
    return int(number) if 0 <= number <= MAX_COUNT and number == int(number) else None
