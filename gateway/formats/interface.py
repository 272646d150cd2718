"""What a wire format has to offer."""

import re
from collections.abc import Iterator, Mapping
from typing import Protocol

import msgspec

from haltline.gateway.conversation import Request
from haltline.gateway.steps import Fault, Finish, Reasoning, ToolCall

Headers = tuple[tuple[str, str], ...]

ARGUMENT_PIECE_CHARS = 24
"""Arguments are cut this fine; providers send single tokens to some dozens of characters."""
REASONING_PIECE_CHARS = 16

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What every provider takes as the name of a tool."""


class BadRequest(Exception):
    """The provider would refuse this request; the text says why."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.fault = Fault(kind="bad_request", message=message, param=param, code=code)


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one response. An estimate (four bytes a token), as there is no tokenizer."""

    prompt: int
    completion: int


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """All that one response says."""

    text: str = ""
    refusal: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()


class Reply(Protocol):
    """Writes one response. The methods of a stream are called in the order of the steps; each returns bytes of the
    body, to be sent at once."""

    def begin(self) -> bytes:
        """What precedes the first step."""
        ...

    def piece(self, text: str) -> bytes: ...

    def refusal(self, text: str) -> bytes: ...

    def reasoning(self, block: Reasoning) -> Iterator[bytes]:
        """The block in pieces; nothing where the format has no such thing."""
        ...

    def tool_call(self, call: ToolCall) -> Iterator[bytes]:
        """The call in pieces, its arguments cut somewhere."""
        ...

    def comment(self, text: str, /) -> bytes:
        """What keeps the connection alive and means nothing."""
        ...

    def error_event(self, fault: Fault) -> bytes:
        """Nothing follows it."""
        ...

    def end(self, finish: Finish, usage: Usage) -> bytes:
        """The end signal, with the usage where it was asked for."""
        ...

    def whole(self, content: Content, finish: Finish, usage: Usage) -> bytes:
        """The body of a response that is not streamed."""
        ...


class WireFormat(Protocol):
    @property
    def paths(self) -> tuple[str, ...]:
        """Request paths at which the format is spoken."""
        ...

    def read(self, body: bytes, headers: Mapping[str, str], /) -> Request:
        """The request in a body, if the provider would take it. Names of headers are in lower case. Raises
        BadRequest."""
        ...

    def headers(self, reply_id: str, /) -> Headers:
        """Headers of every response, an error's too."""
        ...

    def reply(self, request: Request, reply_id: str, created: int, /) -> Reply:
        """A writer for one response; `created` in Unix seconds."""
        ...

    def error(self, fault: Fault, reply_id: str, /) -> bytes:
        """The body of an error status."""
        ...


_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.?(.*)`)?")
_UNKNOWN = re.compile(r"Object contains unknown field `(\w+)`(?: - at `\$\.?(.*)`)?")


class Misfit(msgspec.Struct, frozen=True):
    """The place in a body that does not fit, as in `messages[0].content`."""

    path: str
    unknown: bool
    """True: nothing of that name is taken there; False: it is required and not there."""


def misfit(error: Exception) -> Misfit | None:
    """Where msgspec found a field too few or too many; None: it found something else."""
    for pattern in (_MISSING, _UNKNOWN):
        found = pattern.match(str(error))
        if found:
            inside = f"{found[2]}." if found[2] else ""
            return Misfit(f"{inside}{found[1]}", pattern is _UNKNOWN)
    return None


def pieces(text: str, chars: int) -> Iterator[str]:
    return (text[start : start + chars] for start in range(0, len(text), chars))
