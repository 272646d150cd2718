"""What a script may ask the server to do. A script yields steps; the server performs them, in order, in real time.

Rules:
1. HttpError stands alone: it is the first and only step.
2. Every other first step sends the response's head (status 200) before it is performed.
3. Nothing follows End, Hang or Break.
4. A script that runs out without one of them ends the body in good order and without an end signal.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from haltline.gateway.conversation import Turn

Finish = Literal["stop", "tool_calls", "length", "content_filter"]
"""Why the model stopped, in the words of chat completions; other formats translate."""


FaultKind = Literal[
    "bad_request",
    "not_found",
    "unauthorized",
    "rate_limited",
    "quota",
    "server",
    "overloaded",
    "overflow",
    "reasoning_missing",
]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong. Each wire format has a type, a code and words of its own for it."""

    kind: FaultKind
    message: str | None = None
    """In place of the format's own words."""
    param: str | None = None
    """The part of the request that is wrong, where the format names it."""
    code: str | None = None
    """In place of the format's own code, where it has codes."""
    asked_tokens: int = 0
    """overflow: what the request has."""
    allowed_tokens: int = 0
    """overflow: what the model takes."""


class Piece(msgspec.Struct, frozen=True):
    """A piece of visible text."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """A whole block of reasoning, signed where the format signs it. `hidden`: sent as what only the provider can read;
    a format that has no such thing sends nothing."""

    text: str
    hidden: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """A piece of a refusal."""

    text: str


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call; its arguments are sent as they stand, valid or not, in several pieces."""

    name: str
    arguments: str


class Comment(msgspec.Struct, frozen=True):
    """A line that keeps the connection alive and means nothing."""

    text: str


class Sleep(msgspec.Struct, frozen=True):
    seconds: float


class ErrorEvent(msgspec.Struct, frozen=True):
    """An error inside a response that began with 200."""

    fault: Fault


class End(msgspec.Struct, frozen=True):
    """Usage (where asked for) and the positive end signal."""

    finish: Finish = "stop"


class Hang(msgspec.Struct, frozen=True):
    """No byte any more; the connection stays open until the client leaves."""


class Break(msgspec.Struct, frozen=True):
    """The connection ends here, with FIN or, if `reset`, with RST; the body is left unfinished."""

    reset: bool = False


class HttpError(msgspec.Struct, frozen=True, kw_only=True):
    """An error status with the provider's body."""

    status: int
    fault: Fault
    headers: tuple[tuple[str, str], ...] = ()


Step = Piece | Reasoning | Refusal | ToolCall | Comment | Sleep | ErrorEvent | End | Hang | Break | HttpError
Script = Callable[[Turn], Iterator[Step]]
