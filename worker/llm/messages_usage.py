"""Token usage of Anthropic messages: in the first event, and again, grown, near the end.

`input_tokens` excludes the cached ones, which are counted beside it: four parts that do not overlap (R64). See
counts.py.
"""

import msgspec

from haltline.protocol.conversation import Usage
from haltline.worker.llm.counts import Largest
from haltline.worker.llm.json_text import ABSENT


class _Reported(msgspec.Struct, frozen=True):
    input_tokens: msgspec.Raw = ABSENT
    cache_read_input_tokens: msgspec.Raw = ABSENT
    cache_creation_input_tokens: msgspec.Raw = ABSENT
    output_tokens: msgspec.Raw = ABSENT
    """Reasoning included."""


_decoder = msgspec.json.Decoder(_Reported)


class MessagesUsage:
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
        self._input.take(reported.input_tokens)
        self._read.take(reported.cache_read_input_tokens)
        self._written.take(reported.cache_creation_input_tokens)
        self._output.take(reported.output_tokens)

    def total(self) -> Usage | None:
        """None: no count came."""
        if not any(one.seen for one in (self._input, self._read, self._written, self._output)):
            return None
        return Usage(
            input=self._input.value,
            cache_read=self._read.value,
            cache_write=self._written.value,
            output=self._output.value,
        )
