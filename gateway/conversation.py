"""A request as a script sees it: what was said so far, in no wire format's dialect."""

from typing import Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that the model made in an earlier turn, as the client sent it back."""

    call_id: str
    name: str
    arguments: str
    """JSON text, as the client sent it; not necessarily valid."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    text: str
    calls: tuple[Call, ...] = ()
    """Only with role assistant."""
    call_id: str | None = None
    """Only with role tool: the call that this is the result of."""
    reasoning: tuple[str, ...] = ()
    """Only with role assistant: the reasoning that came back with it, where the format signs it. It was checked: each
    is one that we sent, unchanged."""


BYTES_PER_TOKEN = 4
"""Rule of thumb for English text and code; there is no tokenizer, so all usage is an estimate."""


class Repeated(msgspec.Struct, frozen=True):
    """A parameter of a request that its response repeats."""

    name: str
    value: msgspec.Raw


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request for a model response."""

    model: str
    stream: bool
    include_usage: bool
    """False: a stream carries no usage, as the client did not ask for it."""
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    """Names of the tools that were offered."""
    body_bytes: int
    wants_reasoning_back: bool = False
    """The format demands that the reasoning before a call comes back with it."""
    repeated: tuple[Repeated, ...] = ()

    @property
    def prompt_tokens(self) -> int:
        return self.body_bytes // BYTES_PER_TOKEN

    @property
    def last_reasoning(self) -> tuple[str, ...]:
        """What came back of the reasoning before the last calls."""
        return next((message.reasoning for message in reversed(self.messages) if message.calls), ())

    @property
    def first_user_text(self) -> str:
        return next((message.text for message in self.messages if message.role == "user"), "")


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What a script decides from: the request, and its place in the session."""

    request: Request
    n: int
    """Number of this request in its session and scenario, from 1; repeated ones count."""
    first_body_bytes: int
    """Size of the session's first request."""

    @property
    def results(self) -> tuple[str, ...]:
        """Texts of the tool results of the current run, that is, after the first user message that follows the last
        assistant message without calls."""
        found: list[str] = []
        for message in self.request.messages:
            if message.role == "tool":
                found.append(message.text)
            elif message.role == "assistant" and not message.calls:
                found.clear()
        return tuple(found)
