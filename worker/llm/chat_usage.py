"""Token usage as chat servers report it: once, in every chunk, or never, under several names.

Each field is kept at its largest value within the attempt (R61); the four parts are taken apart at the end, because
`prompt_tokens` includes the cached ones (R64).
"""

import math

import msgspec

from haltline.protocol.conversation import Usage

Count = int | float | None


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _Reported(msgspec.Struct, frozen=True):
    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    """More than prompt and completion where a server leaves the reasoning out of `completion_tokens`."""
    prompt_tokens_details: _PromptDetails | None = None
    prompt_cache_hit_tokens: Count = None
    """DeepSeek."""
    cache_read_input_tokens: Count = None
    """Gateways before an Anthropic model."""
    cache_creation_input_tokens: Count = None


_decoder = msgspec.json.Decoder(_Reported)


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
        self._seen = True
        self._prompt = _larger(self._prompt, reported.prompt_tokens)
        self._completion = _larger(self._completion, reported.completion_tokens)
        self._total = _larger(self._total, reported.total_tokens)
        self._read = _larger(
            self._read,
            details.cached_tokens,
            reported.prompt_cache_hit_tokens,
            reported.cache_read_input_tokens,
        )
        self._written = _larger(self._written, details.cache_write_tokens, reported.cache_creation_input_tokens)

    def total(self) -> Usage | None:
        """None: no report came."""
        if not self._seen:
            return None
        return Usage(
            input=max(0, self._prompt - self._read - self._written),
            cache_read=self._read,
            cache_write=self._written,
            output=max(self._completion, self._total - self._prompt if self._prompt else 0),
        )


def _larger(known: int, *counts: Count) -> int:
    return max([known, *(int(count) for count in counts if count is not None and math.isfinite(count))])
