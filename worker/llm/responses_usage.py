"""Token usage of OpenAI responses: in the event that ends it.

The four parts are taken apart here, because `input_tokens` includes the cached ones (R64). See counts.py.
"""

import msgspec

from haltline.protocol.conversation import Usage
from haltline.worker.llm.counts import Largest
from haltline.worker.llm.json_text import ABSENT


class _InputDetails(msgspec.Struct, frozen=True):
    cached_tokens: msgspec.Raw = ABSENT
    cache_write_tokens: msgspec.Raw = ABSENT


class _Reported(msgspec.Struct, frozen=True):
    input_tokens: msgspec.Raw = ABSENT
    output_tokens: msgspec.Raw = ABSENT
    """Reasoning included."""
    input_tokens_details: _InputDetails | None = None


_decoder = msgspec.json.Decoder(_Reported)


class ResponsesUsage:
    """Takes every report of one attempt."""

    def __init__(self) -> None:
        self._input = Largest()
        self._read = Largest()
        self._written = Largest()
        self._output = Largest()

    def report(self, raw: msgspec.Raw) -> None:
        """`raw`: the JSON value of `usage`. One that cannot be read counts as absent: the answer is worth more."""
        try:
            reported = _decoder.decode(raw)
        except msgspec.DecodeError:
            return
        details = reported.input_tokens_details or _InputDetails()
        self._input.take(reported.input_tokens)
        self._read.take(details.cached_tokens)
        self._written.take(details.cache_write_tokens)
        self._output.take(reported.output_tokens)

    def total(self) -> Usage | None:
        """None: no count came."""
        if not any(one.seen for one in (self._input, self._read, self._written, self._output)):
            return None
        return Usage(
            input=max(0, self._input.value - self._read.value - self._written.value),
            cache_read=self._read.value,
            cache_write=self._written.value,
            output=self._output.value,
        )
