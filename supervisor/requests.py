"""A request to the model on its way: numbered, with the deadlines that its worker owes (C1, L6). Pure."""

import msgspec

from haltline.protocol import times
from haltline.protocol.conversation import Item, ToolSpec
from haltline.protocol.kinds import Purpose
from haltline.protocol.messages import StartAttempt
from haltline.supervisor import deadlines, estimate, history
from haltline.supervisor.effects import SendAttempt
from haltline.supervisor.state import Attempt, Draft


def send(
    d: Draft,
    *,
    purpose: Purpose,
    system: str,
    items: tuple[Item, ...],
    tools: tuple[ToolSpec, ...],
    max_output_tokens: int | None,
) -> None:
    """The next attempt. The LLM worker is ready and has none in hand. The phase is the caller's."""
    state, settings = d.state, d.state.settings
    items = history.request_items(items)
    state.attempt_number += 1
    state.run = msgspec.structs.replace(state.run, attempts=state.run.attempts + 1)
    state.attempt = Attempt(
        number=state.attempt_number, purpose=purpose, request_tokens=estimate.request_tokens(system, items, tools)
    )
    hang = deadlines.name_of("hang", "llm")
    state.deadlines = deadlines.with_deadline(state.deadlines, hang, d.now + times.SILENCE_S)
    whole_s = deadlines.attempt_s(settings.stream)
    if whole_s is not None:
        work = deadlines.name_of("work", "llm")
        state.deadlines = deadlines.with_deadline(state.deadlines, work, d.now + whole_s)
    d.do(
        SendAttempt(
            message=StartAttempt(
                session_id=state.session_id,
                run=state.run_number,
                turn=state.turn,
                generation=state.generation,
                attempt=state.attempt_number,
                api=settings.api,
                base_url=settings.base_url,
                model=settings.model,
                system=system,
                items=items,
                tools=tools,
                max_output_tokens=max_output_tokens,
                limits=settings.stream,
                purpose=purpose,
            )
        )
    )
