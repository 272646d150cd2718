"""A conversation that does not fit, or soon will not, is made shorter (E1 to E3, E5, E6; R10, R11, R59). Pure.

Theory of operation
1. A request that was refused as too large is never sent again as it was. If the refusal says that max_tokens is what
   is too much, that is lowered, once in a run (E5). Else the history is made shorter: reactive, once in a turn and
   REACTIVE in a run. Before the first request of a turn that fills FULL of a window that is known it is made shorter
   too: proactive, PROACTIVE in a run.
2. First older results are folded (folding.py), which takes no time. Where that is not enough and the older turns are
   worth it, a summary of them is had from the model: phase `compacting`. Where no summary is to be had, what could be
   folded is all there is; then long results that the model has not answered to yet keep their heads and tails.
3. What is enough is measured before it is sent: TARGET of the window where one is known, else what fitted before. A
   tenth less is the least that is called shorter; less than that is no compaction (R59).
4. Everything is built beside the history, in state.compaction, and switched in at once, as an effect that the journal
   has before the next request. Until then whatever ends the compaction leaves the history as it was (R11).
5. The request for a summary is an attempt like any other: charged, within the limits, cancelled with the run, ended
   with its worker. It offers no tools and holds the older turns as words in one message, so that no call can lose its
   result (R75), bounded to HALF of what did not fit, so that it fits itself. Its text is not shown; as nothing of it
   was passed on, it may be had again: SUMMARY_REQUESTS in all, waits and counter being those of any retry.

    streaming --overflow--> starting                 max_tokens lowered, or folding was enough
             `------------> compacting --summary--> starting
    starting --nearly full--^   |  ^  `--no summary, but folded by a tenth--> starting
                 (waiting_retry)'--'  `--neither--> idle (reactive), starting (proactive: as it was)
"""

import msgspec

from haltline.protocol import events
from haltline.protocol.conversation import Item
from haltline.protocol.kinds import Trigger
from haltline.protocol.messages import AttemptEnded
from haltline.supervisor import (
    budget,
    deadlines,
    ends,
    estimate,
    failures,
    feedback,
    folding,
    requests,
    retry,
    seats,
    window,
)
from haltline.supervisor.effects import SwitchHistory
from haltline.supervisor.failure_lines import show_error, show_retry
from haltline.supervisor.failures import Failure
from haltline.supervisor.state import Compaction, Draft, SessionState

REACTIVE = 10
"""In a run (E2)."""
IN_A_TURN = 1
"""Reactive ones (E2)."""
PROACTIVE = 10
"""In a run (I4)."""
LOWERINGS = 1
"""Of max_tokens, in a run (I4)."""
FULL = 0.85
"""Share of a known window (E6)."""
TARGET = 0.7
"""Share of a known window: room for some turns before it is FULL again."""
SHORTER = 0.9
"""At most this share of what it was is called shorter (E2)."""
RECENT = 0.4
"""Share of the target for the latest turns, which a summary leaves as they are."""
HALF = 0.5
"""Share of what did not fit, or of the window, that a request for a summary may fill (rule 5)."""
SUMMARY_TOKENS = 500
"""What a summary is expected to take; one that would save less is not asked for."""
SUMMARY_OUTPUT_TOKENS = 4_096
"""At most; models that reason first count that too."""
SUMMARY_REQUESTS = 3
"""For one summary, repeated and halved ones included."""


def overflowed(d: Draft, failure: Failure) -> str | None:
    """The request of a turn was refused as too large. None: the run goes on (rule 1). Else, in words, why not."""
    state = d.state
    window.refused(d, failure)
    counters = state.run.counters
    room = window.room_for_output(failure)
    if room is not None and counters.max_tokens_lowered < LOWERINGS:
        show_error(d, failure, "compact")
        d.count(msgspec.structs.replace(counters, max_tokens_lowered=counters.max_tokens_lowered + 1))
        state.run = msgspec.structs.replace(state.run, max_output_tokens=room, retry_turn=True)
        state.phase = "starting"
        return None
    if state.run.turn_compactions >= IN_A_TURN:
        return f"the conversation was made shorter once already in this turn; {_fixed_part(state)}"
    if counters.compaction >= REACTIVE:
        return f"the conversation was made shorter {REACTIVE} times already in this run; {_fixed_part(state)}"
    way = _way(state, "overflow", failure)
    if way is None:
        return f"nothing is left that could be made shorter; {_fixed_part(state)}"
    show_error(d, failure, "compact")
    d.count(msgspec.structs.replace(counters, compaction=counters.compaction + 1))
    state.run = msgspec.structs.replace(state.run, turn_compactions=state.run.turn_compactions + 1)
    _take(d, "overflow", way)
    return None


def before_request(d: Draft) -> None:
    """The first request of a turn is due. The phase says whether a summary comes first."""
    state = d.state
    counters = state.run.counters
    full = FULL * window.size(state)
    if not full or state.run.proactive_in_vain or counters.proactive_compaction >= PROACTIVE:
        return
    if window.measured(state, state.history) < full:
        return
    way = _way(state, "window", None)
    if way is None:
        state.run = msgspec.structs.replace(state.run, proactive_in_vain=True)
        return
    d.count(msgspec.structs.replace(counters, proactive_compaction=counters.proactive_compaction + 1))
    _take(d, "window", way)


def go_on(d: Draft) -> None:
    """Phase compacting: asks for the summary once the LLM worker is ready, unless it is being written."""
    state, c = d.state, d.state.compaction
    if c is None or state.attempt is not None:
        return
    if state.llm.gave_up is not None:
        ends.fail_of_worker(d, state.llm.gave_up)
        return
    if state.llm.state != "ready":
        return
    settings = state.settings
    tripped = budget.tripped(state.ledger, settings.run_limits, settings.session_limits, d.now, new_turn=False)
    if tripped is not None:
        ends.trip(d, tripped)
        return
    state.compaction = msgspec.structs.replace(c, requests=c.requests + 1)
    known = window.size(state)
    most = min(SUMMARY_OUTPUT_TOKENS, known // 4) if known else SUMMARY_OUTPUT_TOKENS
    requests.send(
        d,
        purpose="summary",
        system=feedback.summary_system(),
        items=(feedback.summarise(folding.transcript(c.folded[: c.place], c.transcript_characters)),),
        tools=(),
        max_output_tokens=min(most, settings.max_output_tokens or most),
    )


def ended(d: Draft, message: AttemptEnded, text: str) -> None:
    """The response to the request for a summary ended with a positive end signal; its attempt is closed. A summary
    that the output limit has cut is one."""
    c = d.state.compaction
    if c is None:
        return
    text = text.strip()
    failure = failures.of_finish(
        message.finish, has_text=bool(text), has_calls=False, refusal=message.refusal, emitted=0
    )
    if failure is not None and not (failure.kind == "output_truncated" and text):
        failed(d, failure)
        return
    summarised = folding.rebuilt(c.folded, c.place, text)
    _settle(d, c, (summarised, folding.shorten(summarised)), c.failure)


def failed(d: Draft, failure: Failure) -> None:
    """It did not come to a summary."""
    state, c = d.state, d.state.compaction
    if c is None:
        return
    may_repeat = c.requests < SUMMARY_REQUESTS
    if failure.kind == "context_overflow" and may_repeat:
        show_error(d, failure, "compact")
        if failure.limit_tokens is not None:
            state.window_tokens = failure.limit_tokens
        state.compaction = msgspec.structs.replace(c, transcript_characters=c.transcript_characters // 2)
        state.phase = "compacting"
        return
    if may_repeat and _is_for_another_moment(failure):
        plan = retry.plan(
            state.settings.retry,
            retries_done=c.requests - 1,
            run_retries=state.run.counters.transport_retry,
            failure=failure,
            jitter=d.jitter,
            seconds_left=budget.seconds_left(
                state.ledger, state.settings.run_limits, state.settings.session_limits, d.now
            ),
        )
        if isinstance(plan, retry.Wait):
            show_error(d, failure, "retry")
            counters = state.run.counters
            d.count(msgspec.structs.replace(counters, transport_retry=counters.transport_retry + 1))
            of = min(plan.of, SUMMARY_REQUESTS)
            show_retry(d, failure, attempt=plan.attempt, of=of, wait_ms=plan.ms)
            state.deadlines = deadlines.with_deadline(state.deadlines, "retry", d.now + plan.ms / 1000)
            state.phase = "waiting_retry"
            return
    _without_summary(d, c, failure)


def lost(d: Draft, failure: Failure) -> None:
    """The LLM worker died with the request for a summary. A new worker is what is waited for (L2)."""
    c = d.state.compaction
    if c is None:
        return
    if not seats.may_restart(d):
        show_error(d, failure, "surface")
        ends.fail_of_worker(d, f"{failure.message}; it was replaced {seats.RESTARTS} times already")
    elif c.requests < SUMMARY_REQUESTS and _is_for_another_moment(failure):
        show_error(d, failure, "retry")
        show_retry(d, failure, attempt=c.requests + 1, of=SUMMARY_REQUESTS, wait_ms=0)
        d.state.phase = "compacting"
    else:
        _without_summary(d, c, failure)


def _is_for_another_moment(failure: Failure) -> bool:
    """An empty summary is not: the same request would give another empty one."""
    way = failures.handling(
        failure.kind, failure.subkind, failure.again, failure.phase, failure.emitted, asking="compaction"
    )
    return way == "retry" and failure.subkind != "empty"


def _way(state: SessionState, trigger: Trigger, failure: Failure | None) -> tuple[Item, ...] | Compaction | None:
    """How the history can be made shorter (rule 2): the shorter one, or a summary that has to be had, or not at all."""
    before = window.measured(state, state.history)
    known = window.size(state)
    target = int(SHORTER * before)
    if known:
        target = int(TARGET * min(known, before))
    elif fits := window.known_to_fit(state):
        target = min(target, fits)
    folds = [folding.fold(state.history, kept) for kept in folding.KEPT_TURNS]
    for items in folds:
        if window.measured(state, items) <= target:
            return items
    folded = folds[-1]
    place = folding.cut(folded, _characters(state, RECENT * target))
    saved = window.measured(state, folded) - window.measured(state, folding.rebuilt(folded, place, ""))
    if saved - SUMMARY_TOKENS >= (1 - SHORTER) * before:
        return Compaction(
            trigger=trigger,
            failure=failure,
            before_tokens=before,
            target_tokens=target,
            folded=folded,
            place=place,
            transcript_characters=_characters(state, HALF * (min(known, before) if known else before)),
        )
    return _best(state, before, target, (folded, folding.shorten(folded)))


def _characters(state: SessionState, tokens: float) -> int:
    return int(tokens * estimate.CHARACTERS_PER_TOKEN / state.token_scale)


def _best(
    state: SessionState, before: int, target: int, candidates: tuple[tuple[Item, ...], ...]
) -> tuple[Item, ...] | None:
    """The first that is enough, else the shortest that is called shorter (rule 3)."""
    sizes = [window.measured(state, items) for items in candidates]
    for items, size in zip(candidates, sizes, strict=True):
        if size <= target:
            return items
    least = min(sizes)
    return candidates[sizes.index(least)] if least <= SHORTER * before else None


def _take(d: Draft, trigger: Trigger, way: tuple[Item, ...] | Compaction) -> None:
    if isinstance(way, Compaction):
        d.state.compaction = way
        d.state.phase = "compacting"
    else:
        _switch(d, trigger, window.measured(d.state, d.state.history), way)


def _without_summary(d: Draft, c: Compaction, failure: Failure) -> None:
    """What could be folded is all there is (rule 2)."""
    candidates = (c.folded, folding.shorten(c.folded))
    goes_on = c.trigger == "window" or _best(d.state, c.before_tokens, c.target_tokens, candidates) is not None
    more = "" if goes_on else f"the conversation does not fit and could not be summarised; {_fixed_part(d.state)}"
    show_error(d, failure, "compact" if goes_on else "surface", more)
    _settle(d, c, candidates, failure, more)


def _settle(
    d: Draft, c: Compaction, candidates: tuple[tuple[Item, ...], ...], failure: Failure | None, more: str = ""
) -> None:
    """Switch to the best of the candidates, if one is shorter. `failure`: what the run ends with where none is."""
    state = d.state
    best = _best(state, c.before_tokens, c.target_tokens, candidates)
    if best is not None:
        _switch(d, c.trigger, c.before_tokens, best)
        return
    least = min(window.measured(state, items) for items in candidates)
    d.show(events.Compaction(trigger=c.trigger, before_tokens=c.before_tokens, after_tokens=least, ok=False))
    state.compaction = None
    if c.trigger == "overflow" and failure is not None:
        ends.fail(d, failure, more or f"it could not be made a tenth shorter; {_fixed_part(state)}")
        return
    state.run = msgspec.structs.replace(state.run, proactive_in_vain=True, retry_turn=True)
    state.phase = "starting"


def _switch(d: Draft, trigger: Trigger, before: int, items: tuple[Item, ...]) -> None:
    """Rule 4. What the run says to the model next belongs to the same turn."""
    state = d.state
    state.history = items
    state.compaction = None
    state.run = msgspec.structs.replace(state.run, retry_turn=True, max_output_tokens=None)
    state.phase = "starting"
    d.do(SwitchHistory(items=items))
    after = window.measured(state, items)
    d.show(events.Compaction(trigger=trigger, before_tokens=before, after_tokens=after, ok=True))


def _fixed_part(state: SessionState) -> str:
    known = window.size(state)
    of = f" of {known:,}" if known else ""
    return f"system prompt and tools alone take about {window.fixed(state):,}{of} tokens"
