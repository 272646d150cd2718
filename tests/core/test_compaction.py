"""A conversation that does not fit is made shorter: when, how often, and what ends it (E1 to E3, E5, E6, I4)."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drive import Drive, outcome, read, settings
from support.long_history import histories, talk, turn

from haltline.protocol import events
from haltline.protocol.conversation import AssistantMessage, Item, ToolResult, Usage, UserMessage
from haltline.protocol.messages import StartAttempt
from haltline.protocol.settings import Limits, SessionSettings
from haltline.supervisor import compaction, effects, feedback, history
from haltline.supervisor.state import SessionPhase

OVERFLOW = '{"error":{"code":"context_length_exceeded","message":"too long"}}'
WORDS = ("step ", "by ", "step")
"""Of a summary."""


def names_window(limit: int, requested: int) -> str:
    words = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {requested} tokens."
    )
    return msgspec.json.encode({"error": {"code": "context_length_exceeded", "message": words}}).decode()


def over_by_output(prompt: int, output: int, limit: int) -> str:
    words = f"input length and `max_tokens` exceed context limit: {prompt} + {output} > {limit}, decrease input length"
    return msgspec.json.encode({"error": {"type": "invalid_request_error", "message": words}}).decode()


def of(items: tuple[Item, ...], settings_of: SessionSettings | None = None) -> Drive:
    """A run whose first request carries this history and one more prompt."""
    answered = (*items, AssistantMessage(text="So far.")) if items else ()
    return Drive(settings_of or settings(), answered).running("go on")


def overflows(drive: Drive, body: str = OVERFLOW) -> Drive:
    return drive.fail(status=400, body=body)


def in_phase(drive: Drive, *phases: SessionPhase) -> bool:
    return drive.state.phase in phases


def size(request: StartAttempt) -> int:
    return len(msgspec.json.encode(request.items))


def compactions(drive: Drive) -> list[events.Compaction]:
    return [event for event in drive.told() if isinstance(event, events.Compaction)]


def purposes(drive: Drive) -> list[str]:
    return [request.purpose for request in drive.requests]


FOLDABLE = talk(8)
"""Nearly all of it is results."""
SAID = talk(12, characters=10, said=3_000)
"""Nearly all of it is what the model said: a summary alone makes it shorter."""


# Reactive


def test_an_overflow_is_one_request_then_a_smaller_one() -> None:
    """E1, R67, R73: never sent again as it was, and folding takes no request."""
    drive = overflows(of(FOLDABLE))
    first, second = drive.requests
    assert size(second) < size(first) * 0.5
    assert (first.turn, second.turn, second.purpose) == (1, 1, "turn")
    error, done = drive.told()
    assert isinstance(error, events.Error)
    assert (error.kind, error.handling) == ("context_overflow", "compact")
    assert isinstance(done, events.Compaction)
    assert (done.trigger, done.ok) == ("overflow", True)
    assert done.after_tokens < done.before_tokens
    drive.answer()
    assert (drive.result.reason, drive.result.turns, drive.result.attempts) == ("completed", 1, 2)
    assert drive.result.counters == events.Counters(compaction=1)


def test_the_journal_has_the_shorter_history_before_the_request_that_carries_it() -> None:
    """E3, K2."""
    drive = overflows(of(FOLDABLE))
    kinds = [type(effect) for effect in drive.done_so_far]
    switch = next(effect for effect in drive.done_so_far if isinstance(effect, effects.SwitchHistory))
    assert kinds.index(effects.SwitchHistory) < len(kinds) - 1 - kinds[::-1].index(effects.SendAttempt)
    assert switch.items == drive.requests[-1].items == drive.state.history


def test_older_turns_are_summarised_by_a_request_without_tools_that_fits() -> None:
    """E1, E3, R75."""
    drive = overflows(of(SAID))
    turn_request, summary_request = drive.requests
    assert in_phase(drive, "compacting")
    assert (summary_request.purpose, summary_request.tools) == ("summary", ())
    assert summary_request.turn == turn_request.turn
    assert size(summary_request) < size(turn_request) * 0.6
    (asked,) = summary_request.items
    assert isinstance(asked, UserMessage)
    assert asked.tag == "summarise"
    drive.say(*WORDS).end()
    last = drive.requests[-1]
    assert (last.purpose, last.turn) == ("turn", 1)
    assert size(last) < size(turn_request) * 0.5
    assert last.items[:2] == (UserMessage(text="mend the parser"), feedback.summary("step by step"))
    assert last.items[-1] == UserMessage(text="go on")
    assert [event.ok for event in compactions(drive)] == [True]


def test_a_summary_is_not_shown_as_the_assistants_text() -> None:
    drive = overflows(of(SAID)).say(*WORDS).say("hm", reasoning=True).end().answer("done")
    told = drive.told()
    assert [event.text for event in told if isinstance(event, events.Message)] == ["done", "done"]
    assert not [event for event in told if isinstance(event, events.Reasoning)]
    assert drive.result.text == "done"


def test_a_summary_is_charged_to_the_run() -> None:
    """E3, D6."""
    drive = overflows(of(SAID)).say(*WORDS).end(usage=Usage(input=700, output=70)).answer()
    assert (drive.result.usage.input, drive.result.usage.output) == (710, 75)
    assert drive.result.attempts == 3


def test_a_limit_that_is_used_up_comes_before_a_summary() -> None:
    """E3, I1: nothing was made shorter, and no request follows."""
    drive = of(SAID, settings(run_limits=Limits(tokens=1)))
    before = drive.state.history
    drive.fail(status=400, body=OVERFLOW, usage=Usage(input=5))
    assert drive.result.reason == "limit"
    assert purposes(drive) == ["turn"]
    assert drive.state.history[: len(before)] == before


def test_a_second_overflow_in_the_turn_ends_the_run_without_a_second_compaction() -> None:
    """E2, R59."""
    drive = overflows(overflows(of(FOLDABLE)))
    assert (drive.result.reason, drive.result.kind, drive.result.exit_code) == (
        "context_overflow",
        "context_overflow",
        55,
    )
    assert "once already in this turn; system prompt and tools alone take about" in drive.result.message
    assert drive.result.counters == events.Counters(compaction=1)
    assert len(drive.requests) == 2


def test_the_next_turn_may_be_made_shorter_again() -> None:
    """E2. What is known to fit is what fitted before, so a huge last result is cut as well."""
    drive = overflows(of(FOLDABLE)).end(read("big"))
    drive.runs("c1", outcome("x" * 60_000))
    overflows(drive)
    assert [len(result.text) for result in drive.requests[-1].items if isinstance(result, ToolResult)][-1] < 3_000
    drive.answer()
    assert (drive.result.reason, drive.result.counters.compaction) == ("completed", 2)


def test_the_eleventh_of_a_run_is_none() -> None:
    """E2, I4."""
    drive = of(FOLDABLE)
    for number in itertools.count(1):
        overflows(drive)
        if in_phase(drive, "idle"):
            break
        drive.end(read(f"f{number}")).runs(f"c{number}", outcome("y" * 30_000 * number))
    assert drive.result.reason == "context_overflow"
    assert drive.result.counters.compaction == compaction.REACTIVE == 10
    assert "made shorter 10 times already in this run" in drive.result.message


def test_with_nothing_to_fold_or_summarise_the_run_ends_and_names_the_fixed_part() -> None:
    """E2, R59: system prompt and tools alone are too large."""
    drive = overflows(of(()), names_window(8_000, 8_200))
    assert (drive.result.reason, drive.result.attempts) == ("context_overflow", 1)
    assert (
        "nothing is left that could be made shorter; system prompt and tools alone take about" in drive.result.message
    )
    assert " of 8,000 tokens" in drive.result.message
    assert drive.result.counters == events.Counters()
    error, *_ = drive.told()
    assert isinstance(error, events.Error)
    assert error.handling == "surface"
    assert not error.retryable


def test_what_would_be_less_than_a_tenth_shorter_is_not_tried() -> None:
    """E2."""
    task = "the task is long. " * 3_000
    drive = overflows(Drive(settings(), (*talk(2, characters=2_000), AssistantMessage(text="ok"))).running(task))
    assert (drive.result.reason, len(drive.requests)) == ("context_overflow", 1)


def test_a_summary_that_saves_nothing_ends_the_run() -> None:
    """E2, R59: judged by its measured size, not by having run."""
    drive = overflows(of(SAID)).say("much too long. " * 4_000).end()
    (done,) = compactions(drive)
    assert not done.ok
    assert done.after_tokens > done.before_tokens * 0.9
    assert drive.result.reason == "context_overflow"
    assert purposes(drive) == ["turn", "summary"]


def test_two_network_retries_then_an_overflow_leave_the_compaction_allowance_untouched() -> None:
    """I4, C9."""
    drive = of(FOLDABLE)
    for _ in range(2):
        drive.fail(phase="connect", exception="ConnectError: reset").wait()
    overflows(drive).answer()
    assert drive.result.reason == "completed"
    assert drive.result.counters == events.Counters(transport_retry=2, compaction=1)
    assert drive.result.attempts == 4


def test_an_overflow_in_words_is_compacted_too_whatever_its_status() -> None:
    """R67, R70."""
    drive = of(FOLDABLE).fail(status=500, body='{"error":{"message":"Context size has been exceeded."}}')
    assert [event.ok for event in compactions(drive)] == [True]


def test_throttling_is_never_compacted() -> None:
    """R68."""
    drive = of(FOLDABLE).fail(status=429, body='{"message":"ThrottlingException: Too many tokens, please wait"}')
    assert in_phase(drive, "waiting_retry")
    assert not compactions(drive)


def test_an_overflow_after_text_was_shown_surfaces() -> None:
    """A6, P2."""
    drive = of(FOLDABLE).say("Hel").fail(phase="body", status=200, body=OVERFLOW)
    assert (drive.result.reason, drive.result.text) == ("context_overflow", "Hel")
    assert len(drive.requests) == 1


def test_a_named_window_asks_for_more_than_a_tenth() -> None:
    """R70: folding would make it a third shorter, which is not enough for this window."""
    items = (*talk(8, characters=1_500), *talk(8, characters=10, said=3_000)[1:])
    assert purposes(overflows(of(_renumbered(items)))) == ["turn", "turn"]
    named = overflows(of(_renumbered(items)), names_window(5_000, 10_000))
    assert purposes(named) == ["turn", "summary"]
    assert named.state.window_tokens == 5_000


def _renumbered(items: tuple[Item, ...]) -> tuple[Item, ...]:
    made: tuple[Item, ...] = ()
    for number, item in enumerate(items):
        match item:
            case UserMessage():
                made += (item,)
            case AssistantMessage():
                result = items[number + 1]
                assert isinstance(result, ToolResult)
                made += turn(number, result.text, text=item.text)
            case ToolResult():
                pass
    return made


def test_a_refusal_in_unknown_words_of_a_request_above_the_known_window_is_an_overflow() -> None:
    """R67: "request estimate > known window"; below it the same words are a bad request."""
    body = '{"error":{"message":"the flux of this is not right"}}'
    below = of(FOLDABLE, settings(window_tokens=50_000)).fail(status=400, body=body)
    assert (below.result.kind, below.result.exit_code) == ("bad_request", 76)
    task = "the task is long. " * 3_000
    above = Drive(settings(window_tokens=9_000)).running(task).fail(status=400, body=body)
    assert (above.result.kind, above.result.exit_code) == ("context_overflow", 55)


def test_a_server_that_cuts_in_silence_is_told_of_and_gets_a_shorter_request_next() -> None:
    """R71: 20,000 tokens were sent, 2,051 read."""
    drive = of(talk(19)).say("I look.").end(read("a"), usage=Usage(input=2_051, output=5))
    (error,) = [event for event in drive.told() if isinstance(event, events.Error)]
    assert (error.kind, error.handling, error.emitted) == ("context_overflow", "compact", 1)
    assert error.message.startswith("the server has read 2,051 of about 20,")
    drive.runs("c1")
    assert drive.state.window_tokens == 2_051
    assert [(event.trigger, event.ok) for event in compactions(drive)] == [("window", True)]
    assert size(drive.requests[-1]) < size(drive.requests[0]) * 0.5


@pytest.mark.parametrize("count", [0, 10, 13_000, 30_000])
def test_a_count_that_can_be_one_of_all_or_of_nothing_is_no_cut(count: int) -> None:
    drive = of(talk(19)).end(read("a"), usage=Usage(input=count, output=5)).runs("c1").answer()
    assert drive.result.counters == events.Counters()
    assert not [event for event in drive.told() if isinstance(event, events.Error)]


# max_tokens


def test_max_tokens_is_lowered_first_and_once() -> None:
    """E5, R72."""
    drive = of(FOLDABLE, settings(max_output_tokens=21_333))
    overflows(drive, over_by_output(190_000, 21_333, 200_000))
    first, second = drive.requests
    assert second.items == first.items
    assert (first.max_output_tokens, second.max_output_tokens) == (21_333, 10_000 - 64)
    overflows(drive, over_by_output(190_000, 9_936, 199_000))
    assert size(drive.requests[-1]) < size(first) * 0.5
    assert drive.requests[-1].max_output_tokens == 21_333
    drive.answer()
    assert drive.result.counters == events.Counters(max_tokens_lowered=1, compaction=1)
    assert (drive.result.turns, drive.result.attempts) == (1, 3)


def test_where_the_input_alone_leaves_no_room_max_tokens_is_not_lowered() -> None:
    drive = overflows(of(FOLDABLE), over_by_output(199_900, 8_192, 200_000)).answer()
    assert drive.result.counters == events.Counters(compaction=1)


# Proactive


def test_a_known_window_is_acted_on_at_85_percent_before_the_request() -> None:
    """E6: with its own counter, and no request that fails."""
    drive = of(FOLDABLE, settings(window_tokens=10_000))
    assert [size(request) < 20_000 for request in drive.requests] == [True]
    drive.answer()
    assert drive.result.counters == events.Counters(proactive_compaction=1)
    assert (drive.result.turns, drive.result.attempts) == (1, 1)


def test_below_85_percent_nothing_happens() -> None:
    drive = of(FOLDABLE, settings(window_tokens=12_000)).answer()
    assert drive.result.counters == events.Counters()


def test_what_a_provider_counts_is_what_is_measured() -> None:
    """E6, R64: cached tokens are part of the size. The estimate alone would see nothing coming."""
    drive = of(FOLDABLE, settings(window_tokens=12_000)).end(read("a"), usage=Usage(input=1_000, cache_read=11_000))
    drive.runs("c1").answer()
    assert drive.result.counters == events.Counters(proactive_compaction=1)


def test_a_window_that_an_error_named_is_known_from_then_on() -> None:
    """E6, R70."""
    drive = overflows(of(()), names_window(2_000, 2_100))
    drive.prompt("next")
    assert drive.state.window_tokens == 2_000


def test_a_proactive_compaction_that_helps_nothing_is_not_tried_again() -> None:
    """R59: not after every step, where system prompt and tools alone exceed the threshold."""
    drive = of((), settings(window_tokens=500)).end(read("a")).runs("c1", outcome("x" * 100)).answer()
    assert (drive.result.reason, drive.result.counters) == ("completed", events.Counters())


def test_a_proactive_summary_that_fails_lets_the_request_go_as_it_is() -> None:
    drive = of(SAID, settings(window_tokens=9_000))
    assert purposes(drive) == ["summary"]
    before = drive.state.history
    drive.fail(status=401)
    assert purposes(drive) == ["summary", "turn"]
    assert drive.requests[-1].items == before
    assert [event.ok for event in compactions(drive)] == [False]
    drive.answer()
    assert drive.result.counters == events.Counters(proactive_compaction=1)


def test_reactive_and_proactive_never_share_a_counter() -> None:
    """I4."""
    drive = overflows(of(FOLDABLE, settings(window_tokens=10_000))).answer()
    assert drive.result.reason == "completed"
    assert drive.result.counters == events.Counters(proactive_compaction=1, compaction=1)


# The request for a summary


def test_a_summary_that_fails_for_a_moment_is_asked_for_again_after_a_wait() -> None:
    """Nothing of it was shown, so it may break off in its text."""
    drive = overflows(of(SAID)).say("half a ").fail(phase="body", truncated=True)
    assert in_phase(drive, "waiting_retry")
    error, again = drive.told()[-2:]
    assert isinstance(error, events.Error)
    assert (error.emitted, error.handling) == (0, "retry")
    assert isinstance(again, events.Retry)
    assert (again.attempt, again.of) == (2, 3)
    drive.wait()
    assert drive.requests[-1].items == drive.requests[-2].items
    drive.say(*WORDS).end().answer()
    assert drive.result.counters == events.Counters(compaction=1, transport_retry=1)
    assert feedback.summary("step by step") in drive.requests[-1].items


def test_a_summary_is_asked_for_three_times_at_most() -> None:
    drive = overflows(of(SAID))
    for _ in range(3):
        drive.fail(status=503)
        if in_phase(drive, "waiting_retry"):
            drive.wait()
    assert purposes(drive) == ["turn", "summary", "summary", "summary"]
    assert (drive.result.reason, drive.result.kind, drive.result.exit_code) == ("failed", "server", 75)
    assert "could not be summarised" in drive.result.message


@pytest.mark.parametrize(("status", "kind", "code"), [(401, "auth", 77), (400, "bad_request", 76)])
def test_a_summary_that_no_moment_mends_is_asked_for_once(status: int, kind: str, code: int) -> None:
    drive = overflows(of(SAID)).fail(status=status, body='{"error":{"message":"no"}}')
    assert (drive.result.kind, drive.result.exit_code) == (kind, code)
    assert purposes(drive) == ["turn", "summary"]


def test_an_empty_summary_is_none_and_nobody_is_nudged() -> None:
    drive = overflows(of(SAID)).say("  \n").end()
    assert (drive.result.reason, drive.result.kind) == ("failed", "malformed_response")
    assert drive.result.counters == events.Counters(compaction=1)


def test_a_summary_cut_by_the_output_limit_is_one() -> None:
    drive = overflows(of(SAID)).say("what there is").end(finish="length").answer()
    assert drive.result.counters == events.Counters(compaction=1)
    assert feedback.summary("what there is") in drive.requests[-1].items


def test_calls_in_a_summary_are_not_calls() -> None:
    drive = overflows(of(SAID)).say(*WORDS).end(read("a")).answer()
    assert (drive.result.reason, drive.result.tool_calls) == ("completed", 0)


def test_a_request_for_a_summary_that_overflows_itself_is_halved() -> None:
    drive = overflows(of(SAID))
    overflows(drive)
    _, first, second = drive.requests
    assert second.purpose == "summary"
    assert size(second) < size(first) * 0.7
    drive.say(*WORDS).end().answer()
    assert (drive.result.reason, drive.result.counters) == ("completed", events.Counters(compaction=1))


def test_where_every_summary_overflows_the_run_ends() -> None:
    drive = overflows(of(SAID))
    while in_phase(drive, "compacting"):
        overflows(drive)
    assert purposes(drive) == ["turn", "summary", "summary", "summary"]
    assert (drive.result.reason, drive.result.exit_code) == ("context_overflow", 55)


def test_without_a_summary_what_could_be_folded_will_do() -> None:
    """A tenth shorter is worth a try, whatever the window."""
    items = _renumbered((*talk(8, characters=1_500), *talk(8, characters=10, said=3_000)[1:]))
    drive = overflows(of(items), names_window(5_000, 10_000)).fail(status=401)
    assert purposes(drive) == ["turn", "summary", "turn"]
    assert [event.ok for event in compactions(drive)] == [True]


def test_a_worker_lost_with_a_summary_is_replaced_and_asked_again() -> None:
    """L2."""
    drive = overflows(of(SAID)).say("half")
    drive.exits("llm").swept("llm").ready("llm")
    assert purposes(drive) == ["turn", "summary", "summary"]
    drive.say(*WORDS).end().answer()
    assert (drive.result.reason, drive.result.counters) == (
        "completed",
        events.Counters(compaction=1, worker_restart=1),
    )


def test_a_worker_that_is_silent_with_a_summary_is_found() -> None:
    """L6."""
    drive = overflows(of(SAID)).wait_s(11, beats=("tool",))
    assert drive.state.hung is not None
    drive.acknowledges("llm").stops("llm")
    assert drive.told()[-1:] != []
    assert in_phase(drive, "idle", "compacting", "waiting_retry")


def test_a_model_that_is_silent_in_a_summary_is_told_of() -> None:
    """D4."""
    drive = overflows(of(SAID)).beat("llm", model_silent_ms=6_000)
    assert [event.state for event in drive.told(workers=True) if isinstance(event, events.Worker)][-1] == "stalled"


# Cancel


STEPS = (
    "overflow",
    "progress",
    "piece",
    "piece",
    "piece",
    "fail",
    "tick",
    "piece",
    "lost",
    "swept",
    "ready",
    "piece",
)
"""What may happen in a compaction, in order; each is one more place to cancel at."""


@pytest.mark.parametrize("count", range(1, 13))
@pytest.mark.parametrize("how", ["cancel", "kill"])
def test_cancelled_anywhere_the_history_is_byte_for_byte_what_it_was(count: int, how: str) -> None:
    """E3, F7, F9, R10, R11."""
    drive = of(SAID)
    before = msgspec.msgpack.encode(drive.state.history)
    length = len(drive.state.history)
    for step in STEPS[:count]:
        match step:
            case "overflow":
                overflows(drive)
            case "progress":
                drive.beat("llm")
            case "piece":
                drive.say("piece ")
            case "fail":
                drive.fail(status=503)
            case "tick":
                drive.wait()
            case "lost":
                drive.exits("llm")
            case "swept":
                drive.swept("llm")
            case _:
                drive.ready("llm")
    assert in_phase(drive, "compacting", "waiting_retry")
    requests = len(drive.requests)
    if how == "cancel":
        drive.cancel()
        for _ in range(12):
            if in_phase(drive, "idle"):
                break
            drive.wait()
    else:
        drive.kill()
        for role in ("llm", "tool"):
            if not in_phase(drive, "idle"):
                drive.swept(role)
    assert in_phase(drive, "idle")
    assert drive.state.compaction is None
    assert msgspec.msgpack.encode(drive.state.history[:length]) == before
    (note,) = drive.state.history[length:]
    assert isinstance(note, UserMessage)
    assert note.tag == "interrupted"
    assert "before any of your answer had come" in note.text
    assert len(drive.requests) == requests
    assert drive.result.counters.compaction == 1
    drive.prompt("and now?")
    assert in_phase(drive, "starting", "streaming", "compacting")


def test_a_limit_of_time_ends_a_compaction() -> None:
    """I3, E3."""
    drive = of(SAID, settings(run_limits=Limits(seconds=30.0)))
    before = drive.state.history
    overflows(drive).wait_s(31, beats=("llm", "tool"))
    assert in_phase(drive, "cancelling")
    drive.stopped()
    assert drive.result.reason == "limit"
    assert drive.state.history[:-1] == before


@given(
    items=histories(),
    texts=st.lists(st.text(max_size=60), max_size=3),
    window=st.sampled_from((0, 2_000, 6_000, 50_000)),
)
def test_any_history_comes_out_valid_and_smaller_or_not_at_all(
    items: tuple[Item, ...], texts: list[str], window: int
) -> None:
    """E1, E2, K1: whatever the model makes of the summary. Each request is checked by the driver."""
    drive = of(items, settings(window_tokens=window))
    before = drive.state.history
    while in_phase(drive, "compacting"):
        drive.say(*texts).end()
    if in_phase(drive, "idle"):
        return
    was = size(drive.requests[-1])
    overflows(drive)
    while in_phase(drive, "compacting"):
        drive.say(*texts).end()
    if in_phase(drive, "idle"):
        assert drive.result.exit_code in (55, 76)
        return
    assert drive.requests[-1].purpose == "turn"
    assert size(drive.requests[-1]) < was
    assert history.check(drive.state.history) is None
    prompts = [item for item in before if isinstance(item, UserMessage) and item.tag is None]
    assert prompts[-1] in drive.state.history
