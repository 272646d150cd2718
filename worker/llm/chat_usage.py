"""Token usage of chat completions, under the names of several servers.

The four parts are taken apart at the end, because `prompt_tokens` includes the cached ones (R64). See counts.py.
"""

import msgspec

from haltline.protocol.conversation import Usage
from haltline.worker.llm.counts import Largest
from haltline.worker.llm.json_text import ABSENT


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: msgspec.Raw = ABSENT
    cache_write_tokens: msgspec.Raw = ABSENT


class _Reported(msgspec.Struct, frozen=True):
    prompt_tokens: msgspec.Raw = ABSENT
    completion_tokens: msgspec.Raw = ABSENT
    total_tokens: msgspec.Raw = ABSENT
    """More than prompt and completion where a server leaves the reasoning out of `completion_tokens`."""
    prompt_tokens_details: _PromptDetails | None = None
    prompt_cache_hit_tokens: msgspec.Raw = ABSENT
    """DeepSeek."""
    cache_read_input_tokens: msgspec.Raw = ABSENT
    """Gateways before an Anthropic model."""
    cache_creation_input_tokens: msgspec.Raw = ABSENT


_decoder = msgspec.json.Decoder(_Reported)


class ChatUsage:
    """Takes every report of one attempt."""

    def __init__(self) -> None:
        self._prompt = Largest()
        self._completion = Largest()
        self._total = Largest()
        self._read = Largest()
        self._written = Largest()

    def report(self, raw: msgspec.Raw) -> None:
        """`raw`: the JSON value of `usage`. One that cannot be read counts as absent: the answer is worth more."""
        try:
            reported = _decoder.decode(raw)
        except msgspec.DecodeError:
            return
        details = reported.prompt_tokens_details or _PromptDetails()
        self._prompt.take(reported.prompt_tokens)
        self._completion.take(reported.completion_tokens)
        self._total.take(reported.total_tokens)
        self._read.take(details.cached_tokens, reported.prompt_cache_hit_tokens, reported.cache_read_input_tokens)
        self._written.take(details.cache_write_tokens, reported.cache_creation_input_tokens)

    def total(self) -> Usage | None:
        """None: no count came."""
        prompt, read, written = self._prompt, self._read, self._written
        if not any(one.seen for one in (prompt, self._completion, self._total, read, written)):
            return None
        beside = self._total.value - prompt.value if prompt.value else 0
        return Usage(
            input=max(0, prompt.value - read.value - written.value),
            cache_read=read.value,
            cache_write=written.value,
            output=max(self._completion.value, beside),
        )
