"""The conversation as it is kept and sent, in no provider's dialect. Adapters encode it for a wire format."""

from typing import Literal

import msgspec

from haltline.protocol.ids import CallId
from haltline.protocol.kinds import CallStatus


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that the model asked for."""

    call_id: CallId
    name: str
    arguments_raw: str
    """The argument text as the model wrote it, ends stripped, lone surrogates replaced; "" where none came."""
    parsed: bool = True
    """False: not a JSON object. Requests then carry `{}` in its place and the result the raw text (K5)."""


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """One finished block of reasoning, with what its provider wants back. Unfinished blocks are never kept (D7)."""

    text: str
    field: str | None = None
    """Under which name it came and goes back, which also says to whom. chat: the delta's field (`reasoning_content`,
    `reasoning`); messages: the block's type (`thinking`, `redacted_thinking`); responses: `encrypted_content`."""
    signature: str | None = None
    opaque: str | None = None
    """Encrypted or redacted content, as the provider sent it."""
    item_id: str | None = None
    """responses: the id that `opaque` came under; a provider may check that they belong together."""
    after_text: int = 0
    """Characters of the message's text that came before it; providers want its place back, too."""
    after_calls: int = 0
    """Calls of the message that came before it."""


Tag = Literal["interrupted", "limit", "continue", "nudge", "loop", "invalid_generation", "summary", "summarise"]
"""Why the harness, not the user, wrote a user message. `summary` stands in the place of older turns; `summarise` asks
for one, in a request of its own."""


class UserMessage(msgspec.Struct, frozen=True, kw_only=True, tag="user"):
    text: str
    tag: Tag | None = None


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True, tag="assistant"):
    """Never without both text and calls (D7). Each call is followed, in order, by its one ToolResult (K1)."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    partial: bool = False


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, tag="tool"):
    call_id: CallId
    name: str
    text: str
    ok: bool
    status: CallStatus = "done"
    """Not sent; what is left of the result when it is folded names it (E1)."""


Item = UserMessage | AssistantMessage | ToolResult


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as the model is told of it."""

    name: str
    description: str
    schema: str
    """JSON Schema of the argument object, as JSON text."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one attempt, or a sum of attempts, in four parts that do not overlap (D6)."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        return self.input + self.cache_read + self.cache_write + self.output
