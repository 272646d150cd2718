"""The rule on tool calls that all providers share, in no provider's words.

1. Each call of an assistant's message has one result, before anything else is said.
2. A result belongs to a call of the assistant's message that stands before it, and comes once.
"""

from collections.abc import Iterator, Sequence

import msgspec

from haltline.gateway.conversation import Message


class Unanswered(msgspec.Struct, frozen=True):
    """Calls without a result (rule 1), and the number of the message that they are in."""

    message: int
    call_ids: tuple[str, ...]


class Uncalled(msgspec.Struct, frozen=True):
    """A result without a call (rule 2)."""

    message: int
    call_id: str


def broken_rules(messages: Sequence[Message]) -> Iterator[Unanswered | Uncalled]:
    """In the order of the messages."""
    caller = 0
    waiting: tuple[str, ...] = ()
    for number, message in enumerate(messages):
        if message.role == "tool":
            if message.call_id not in waiting:
                yield Uncalled(number, message.call_id or "")
            waiting = tuple(call_id for call_id in waiting if call_id != message.call_id)
            continue
        if waiting:
            yield Unanswered(caller, waiting)
        caller, waiting = number, tuple(call.call_id for call in message.calls)
    if waiting:
        yield Unanswered(caller, waiting)
