"""The calls of one response as they leave the worker."""

from collections.abc import Iterable

import msgspec

from haltline.protocol.messages import CallDraft
from haltline.worker.llm.surrogates import mend


class Assembled(msgspec.Struct, frozen=True, kw_only=True):
    """One call as its stream gave it."""

    id: str
    name: str
    arguments: str
    complete: bool


def drafts(calls: Iterable[Assembled]) -> tuple[CallDraft, ...]:
    """Without lone surrogates (R87). One with the id, name and arguments of an earlier one is dropped: it is the same
    call, sent twice (R43). One with the id alone of an earlier one is another call, and loses the id."""
    kept: list[CallDraft] = []
    seen: dict[str, set[tuple[str, str]]] = {}
    for call in calls:
        arguments = mend(call.arguments)
        none: set[tuple[str, str]] = set()
        twins = seen.setdefault(call.id, none) if call.id else none
        if (call.name, arguments) in twins:
            continue
        kept.append(
            CallDraft(
                name=call.name,
                arguments_raw=arguments,
                provider_id=(call.id or None) if not twins else None,
                complete=call.complete,
            )
        )
        twins.add((call.name, arguments))
    return tuple(kept)
