"""The pipeline of a turn's tool calls: check, ask, run, close (H9, I4, J2, J3, R43). Pure.

Rules
1. Calls are taken in the order of the response. Read-only calls that stand next to each other are a group and run
   side by side once all of them have passed their checks; any other call is a group of its own. A group begins when
   the one before is closed.
2. The checks of a call, in order: repeat detectors, known tool, arguments, schema, approval. The first that refuses
   closes the call with words for the model.
3. A looping call is refused before anything is asked; if it is invalid as well, it counts among the invalid too.
4. A path that leads out of the workspace by a link is found by the tool worker, which then runs nothing. The call
   goes through the approval once more, when what ran beside it has ended, and is sent again if it is allowed (J1).
5. Between the last check and the run stands nothing but the journal: the shell records RunTool, then sends it.
"""

from typing import assert_never

import msgspec

from haltline.protocol import events, times
from haltline.protocol.kinds import CallStatus
from haltline.protocol.messages import Outcome, RunTool, ToolEnded, ToolLeadsOutside, ToolStarted
from haltline.protocol.tools import TOOLS, Tool
from haltline.supervisor import active_time, approval, arguments, budget, deadlines, ends, feedback, repeat, ways_back
from haltline.supervisor.effects import SendTool
from haltline.supervisor.state import Call, Draft, SessionState
from haltline.supervisor.stimuli import Answered


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    status: CallStatus
    text: str


class Valid(msgspec.Struct, frozen=True, kw_only=True):
    tool: Tool
    arguments: bytes


class _OwnLimit(msgspec.Struct):
    timeout_s: float | None = None


def go_on(d: Draft) -> None:
    """Phase deciding or running_tools: whatever can be done for the turn's calls now, until something is waited for
    or the turn is over."""
    while d.state.phase in ("deciding", "running_tools"):
        if any(call.stage == "sent" for call in d.state.calls):
            d.state.phase = "running_tools"
            return
        group = _next_group(d.state)
        if not group:
            ends.commit_turn(d)
            d.state.phase = "starting"
            return
        if not (_check_group(d, group) and _run_cleared(d)):
            return


def is_read_only(call: Call) -> bool:
    tool = TOOLS.get(call.call.name)
    return tool is not None and tool.read_only


def _next_group(state: SessionState) -> tuple[Call, ...]:
    """Rule 1: the calls that come next together; empty when all are closed."""
    rest = state.calls
    while rest and rest[0].stage == "closed":
        rest = rest[1:]
    if not rest or not is_read_only(rest[0]):
        return rest[:1]
    size = next((index for index, call in enumerate(rest) if not is_read_only(call)), len(rest))
    return rest[:size]


def _check_group(d: Draft, group: tuple[Call, ...]) -> bool:
    """Checks what is new in the group, or new about it; False: a person is being asked, or the run is over."""
    for call in group:
        if call.stage == "new":
            _check(d, call)
        elif call.stage == "outside":
            _approve(d, call, Valid(tool=TOOLS[call.call.name], arguments=call.arguments))
        if d.state.phase in ("idle", "waiting_approval"):
            return False
    return True


def _run_cleared(d: Draft) -> bool:
    """Sends what has passed its checks; False: it has to wait, or the run is over."""
    cleared = tuple(call for call in d.state.calls if call.stage == "cleared")
    if not cleared:
        return True
    if d.state.tool.gave_up is not None:
        ends.fail_of_worker(d, d.state.tool.gave_up)
        return False
    if d.state.tool.state != "ready":
        d.state.phase = "deciding"
        return False
    for call in cleared:
        _send(d, call)
    return True


def _check(d: Draft, call: Call) -> None:
    """Rule 2: one new call is closed, asked about, or cleared."""
    state = d.state
    name, raw = call.call.name, call.call.arguments_raw
    verdict = repeat.seen(state.window, name, raw, d.now)
    state.window = verdict.window
    if verdict.slow:
        state.notes = (*state.notes, feedback.waits_by_calling(name))
    validity = validate(name, raw)
    tripped = None
    if isinstance(validity, Refusal):
        tripped = ways_back.count_invalid(d)
    else:
        state.run = msgspec.structs.replace(state.run, invalid_row=0)
    if verdict.refused:
        _refuse_loop(d, call, verdict.window.streak)
    elif isinstance(validity, Refusal):
        ends.close_call(d, call, ends.nothing_changed(validity.status, validity.text))
    else:
        _approve(d, call, validity)
    if tripped is not None and state.phase != "idle":
        ends.trip(d, tripped)


def validate(name: str, raw: str) -> Valid | Refusal:
    """Known tool, arguments, schema (B2 to B4)."""
    tool = TOOLS.get(name)
    if tool is None:
        return Refusal(status="refused_unknown", text=feedback.unknown_tool(name, tuple(TOOLS)))
    parsed = arguments.parse(raw)
    if isinstance(parsed, arguments.NotJson):
        return Refusal(status="refused_arguments", text=feedback.not_json(raw, parsed))
    problems = arguments.check(tool, parsed)
    if problems:
        return Refusal(status="refused_schema", text=feedback.breaks_schema(name, problems))
    return Valid(tool=tool, arguments=parsed.text)


def _refuse_loop(d: Draft, call: Call, streak: int) -> None:
    """One step up the ladder of same_call (H8)."""
    counters = d.state.run.counters
    trips = counters.same_call + 1
    d.count(msgspec.structs.replace(counters, same_call=trips))
    step = repeat.ladder(trips)
    name = call.call.name
    d.show(events.Loop(detector="same_call", count=streak, action=step))
    match step:
        case "feedback":
            text = feedback.repeated(name, streak)
        case "deduct":
            d.state.ledger = budget.turns_deducted(d.state.ledger, repeat.DEDUCTED_TURNS)
            text = feedback.repeated_deducted(name, streak, repeat.DEDUCTED_TURNS)
        case "stop":
            text = feedback.repeated_stopped(name, streak)
        case _:
            assert_never(step)
    ends.close_call(d, call, ends.nothing_changed("refused_loop", text))
    if step == "stop":
        ends.loop(d, "same_call", streak)


def _approve(d: Draft, call: Call, valid: Valid) -> None:
    settings = d.state.settings
    decision = approval.decide(
        valid.tool,
        valid.arguments,
        mode=settings.approval_mode,
        interactive=settings.interactive,
        allowed_tools=settings.allowed_tools,
        grants=d.state.grants,
        cwd=settings.cwd,
        leads_to=call.leads_to,
    )
    match decision:
        case approval.Run(outside_allowed=outside):
            ends.set_call(
                d,
                msgspec.structs.replace(call, stage="cleared", arguments=valid.arguments, outside_allowed=outside),
            )
        case approval.Deny(why=why):
            ends.close_call(d, call, ends.nothing_changed("denied", feedback.denied(why)))
        case approval.Ask(question=question, outside=outside):
            ends.set_call(
                d,
                msgspec.structs.replace(
                    call, stage="asking", arguments=valid.arguments, question=question, outside_allowed=outside
                ),
            )
            d.show(events.Approval(call_id=call.call.call_id, question=question))
            active_time.pause(d)
            d.state.phase = "waiting_approval"
        case _:
            assert_never(decision)


def answered(d: Draft, said: Answered) -> None:
    """Phase waiting_approval. An answer to anything but the question that stands is dropped."""
    call = next((call for call in d.state.calls if call.stage == "asking"), None)
    if call is None or call.call.call_id != said.call_id:
        return
    d.show(
        events.Approval(call_id=said.call_id, question=call.question or "", answer=said.answer, by="user"),
    )
    d.state.grants = approval.granted(d.state.grants, said.answer, call.call.name)
    active_time.resume(d)
    d.state.phase = "deciding"
    if said.answer == "no":
        ends.close_call(d, call, ends.nothing_changed("denied", feedback.denied_by_user(said.words)))
    else:
        ends.set_call(d, msgspec.structs.replace(call, stage="cleared"))


def _send(d: Draft, call: Call) -> None:
    """Rule 5."""
    state = d.state
    limits = state.settings.tools
    own = msgspec.json.decode(call.arguments, type=_OwnLimit).timeout_s
    timeout_s = limits.timeout_s if own is None else min(own, limits.max_timeout_s)
    ends.set_call(d, msgspec.structs.replace(call, stage="sent"))
    state.deadlines = {
        **state.deadlines,
        deadlines.name_of("work", call.call.call_id): d.now + deadlines.call_s(timeout_s),
        deadlines.name_of("hang", "tool"): d.now + times.SILENCE_S,
    }
    d.do(
        SendTool(
            message=RunTool(
                session_id=state.session_id,
                run=state.run_number,
                turn=state.turn,
                generation=state.generation,
                call_id=call.call.call_id,
                name=call.call.name,
                arguments=call.arguments,
                timeout_s=timeout_s,
                outside_allowed=call.outside_allowed,
            )
        )
    )


def is_current(state: SessionState, message: ToolStarted | ToolEnded | ToolLeadsOutside) -> bool:
    """Whether the report belongs to the present turn; anything else is stale and dropped."""
    return (
        state.phase == "running_tools"
        and message.generation == state.generation
        and message.run == state.run_number
        and message.turn == state.turn
        and message.session_id == state.session_id
    )


def started(d: Draft, message: ToolStarted) -> None:
    call = ends.open_call(d, message.call_id) if is_current(d.state, message) else None
    if call is None or call.started:
        return
    ends.set_call(d, msgspec.structs.replace(call, started=True))
    d.state.run = msgspec.structs.replace(d.state.run, tool_runs=d.state.run.tool_runs + 1)
    d.show(events.ToolStart(call_id=message.call_id, pid=message.pid))


def ended(d: Draft, message: ToolEnded) -> None:
    call = ends.open_call(d, message.call_id) if is_current(d.state, message) else None
    if call is not None:
        ends.close_call(d, call, message.outcome)


def led_outside(d: Draft, message: ToolLeadsOutside) -> None:
    """Rule 4. Only of a call that has not started and was not allowed to lead outside."""
    call = ends.open_call(d, message.call_id) if is_current(d.state, message) else None
    if call is not None and not call.started and not call.outside_allowed:
        ends.set_call(d, msgspec.structs.replace(call, stage="outside", leads_to=message.real))
        ends.forget_deadlines(d, call)


def stopped_by_worker(d: Draft, outcomes: dict[str, Outcome]) -> None:
    """The tool worker was asked to stop because it was overdue, and did (L6): its calls end as it says."""
    for call in d.state.calls:
        if call.stage == "sent":
            ends.close_call(d, call, outcomes.get(call.call.call_id) or unreported(call))


def unreported(call: Call) -> Outcome:
    """Of a call that a living worker was sent and says nothing about: if it never started, it never will."""
    if call.started:
        return ends.unknown_outcome()
    return ends.nothing_changed("cancelled_not_started", feedback.not_started())


def lost(d: Draft) -> None:
    """The tool worker died and its tree is gone: what it had in hand has an unknown outcome (L2, K3)."""
    for call in d.state.calls:
        if call.stage == "sent":
            ends.close_call(d, call, ends.unknown_outcome())
