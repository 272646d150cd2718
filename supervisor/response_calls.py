"""The calls of one response: taken from what the worker assembled, under ids of ours (K5, R43). Pure."""

import msgspec

from haltline.protocol import events
from haltline.protocol.conversation import ToolCall
from haltline.protocol.ids import CallId
from haltline.protocol.messages import CallDraft
from haltline.supervisor import arguments
from haltline.supervisor.state import Call, Draft


def take_calls(d: Draft, drafts: tuple[CallDraft, ...]) -> tuple[Call, ...]:
    """The calls of a response under ids of ours."""
    kept = distinct(drafts)
    first = d.state.call_number + 1
    d.state.call_number += len(kept)
    d.state.run = msgspec.structs.replace(d.state.run, tool_calls=d.state.run.tool_calls + len(kept))
    return tuple(
        Call(
            call=ToolCall(
                call_id=CallId(f"c{first + index}"),
                name=draft.name or "unnamed",
                arguments_raw=draft.arguments_raw.strip(),
                parsed=isinstance(arguments.parse(draft.arguments_raw), arguments.Parsed),
            )
        )
        for index, draft in enumerate(kept)
    )


def distinct(drafts: tuple[CallDraft, ...]) -> tuple[CallDraft, ...]:
    """Without a second copy of a call that came twice under one provider id (R43), and without pieces of a cut
    response that have no name (K5)."""
    kept: list[CallDraft] = []
    for draft in drafts:
        if not draft.complete and not draft.name:
            continue
        twice = draft.provider_id and any(
            (other.provider_id, other.name, other.arguments_raw) == (draft.provider_id, draft.name, draft.arguments_raw)
            for other in kept
        )
        if not twice:
            kept.append(draft)
    return tuple(kept)


def tool_use(call: ToolCall) -> events.ToolUse:
    return events.ToolUse(call_id=call.call_id, name=call.name, arguments_raw=call.arguments_raw)
