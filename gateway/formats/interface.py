"""What a wire format has to offer."""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from haltline.gateway.conversation import Request
from haltline.gateway.steps import Fault, Finish, ToolCall


class BadRequest(Exception):
    """The body is not a request of this format; the text says why."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one response. An estimate (four bytes a token), as there is no tokenizer."""

    prompt: int
    completion: int


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """All that one response says."""

    text: str = ""
    refusal: str = ""
    calls: tuple[ToolCall, ...] = ()


class Reply(Protocol):
    """Writes one response. The methods of a stream are called in the order of the steps; each returns bytes of the
    body, to be sent at once."""

    def begin(self) -> bytes:
        """What precedes the first step."""
        ...

    def piece(self, text: str) -> bytes: ...

    def refusal(self, text: str) -> bytes: ...

    def tool_call(self, call: ToolCall) -> Iterator[bytes]:
        """The call in pieces, its arguments cut somewhere."""
        ...

    def comment(self, text: str) -> bytes: ...

    def error_event(self, fault: Fault) -> bytes: ...

    def end(self, finish: Finish, usage: Usage | None) -> bytes:
        """The end signal; usage None: not asked for."""
        ...

    def whole(self, content: Content, finish: Finish, usage: Usage) -> bytes:
        """The body of a response that is not streamed."""
        ...


class WireFormat(Protocol):
    @property
    def paths(self) -> tuple[str, ...]:
        """Request paths at which the format is spoken."""
        ...

    def read(self, body: bytes) -> Request:
        """The request in a body. Raises BadRequest."""
        ...

    def reply(self, request: Request, reply_id: str, created: int) -> Reply:
        """A writer for one response; `created` in Unix seconds."""
        ...

    def error(self, fault: Fault) -> bytes:
        """The body of an error status."""
        ...
