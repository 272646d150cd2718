"""What becomes of a request that fails, and of a response that is no good (A, C, D, E4)."""

import pytest
from support.drive import USAGE, Drive, call, settings

from haltline.protocol import events
from haltline.protocol.conversation import AssistantMessage, Usage, UserMessage
from haltline.protocol.kinds import Kind, Phase
from haltline.protocol.messages import AttemptProgress, Delta
from haltline.protocol.settings import PATIENT, Limits
from haltline.supervisor import feedback, session


def errors(drive: Drive) -> list[events.Error]:
    return [event for event in drive.told() if isinstance(event, events.Error)]


def test_retries_of_a_turn_are_counted_and_then_surface(drive: Drive) -> None:
    """C4: three attempts, 300 and 600 ms with the random source fixed at 0.5."""
    drive.running().fail(status=500).wait().fail(status=500).wait().fail(status=500)
    shown = drive.told()
    assert [event.wait_ms for event in shown if isinstance(event, events.Retry)] == [300, 600]
    assert [event.handling for event in shown if isinstance(event, events.Error)] == ["retry", "retry", "surface"]
    assert (drive.result.reason, drive.result.kind, drive.result.exit_code) == ("failed", "server", 75)
    assert (drive.result.attempts, drive.result.turns, drive.result.counters.transport_retry) == (3, 1, 2)
    assert drive.result.retryable
    assert drive.result.message == "the provider failed (HTTP 500); gave up after 3 attempts; try again later"
    told = [event.message for event in shown if isinstance(event, events.Error | events.Retry)]
    assert told == [*["the provider failed (HTTP 500)"] * 4, drive.result.message], "advice is for what surfaces"


def test_a_turn_that_went_well_gives_the_next_one_all_its_retries(drive: Drive) -> None:
    """C9, I4: the allowance is a turn's, the counter never falls."""
    drive.running()
    for turn in range(3):
        drive.fail(status=500).wait().fail(status=500).wait().end(call("glob", f'{{"pattern":"{turn}"}}'))
        drive.runs(f"c{turn + 1}")
    assert drive.answer().result.counters.transport_retry == 6


def test_a_wait_longer_than_allowed_surfaces_at_once(drive: Drive) -> None:
    """C6."""
    drive.running().fail(status=429, headers={"retry-after": "600"})
    assert drive.result.reason == "failed"
    assert "may work in 10 min" in drive.result.message
    assert len(drive.requests) == 1


def test_a_wait_beyond_what_is_left_of_the_run_surfaces_at_once() -> None:
    """C6."""
    short = settings(run_limits=Limits(seconds=5.0))
    drive = Drive(short).running().fail(status=429, headers={"retry-after": "30"})
    assert (drive.result.reason, drive.result.kind) == ("failed", "rate_limited")


def test_the_patient_policy_waits_longer() -> None:
    drive = Drive(settings(retry=PATIENT)).running().fail(status=503, jitter=0.0)
    assert next(event for event in drive.told() if isinstance(event, events.Retry)).wait_ms == 2000


def test_nothing_is_sent_again_once_text_was_shown(drive: Drive) -> None:
    """A6, P2: what was received is kept."""
    drive.running().say("Hel").fail(phase="body", truncated=True)
    (error,) = errors(drive)
    assert (error.kind, error.handling, error.emitted, error.retryable) == ("stream_truncated", "surface", 1, True)
    assert (drive.result.reason, drive.result.text, drive.result.exit_code) == ("failed", "Hel", 76)
    assert drive.state.history[1:] == (AssistantMessage(text="Hel", partial=True),)
    assert len(drive.requests) == 1


def test_the_same_break_before_any_text_is_sent_again(drive: Drive) -> None:
    """A6."""
    drive.running().fail(phase="first_event", truncated=True)
    assert errors(drive)[0].handling == "retry"


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [(401, "auth", 77), (402, "quota_exhausted", 77), (400, "bad_request", 76), (413, "context_overflow", 55)],
)
def test_what_no_moment_mends_is_one_request_and_surfaces(drive: Drive, status: int, kind: Kind, code: int) -> None:
    """A3, E1."""
    drive.running().fail(status=status, body='{"error":{"message":"no"}}')
    assert (drive.result.kind, drive.result.exit_code, drive.result.attempts) == (kind, code, 1)
    assert not drive.result.retryable


def test_an_overflow_names_itself_as_the_reason(drive: Drive) -> None:
    drive.running().fail(status=400, body='{"error":{"code":"context_length_exceeded","message":"too long"}}')
    assert (drive.result.reason, drive.result.kind) == ("context_overflow", "context_overflow")


def test_what_the_provider_refuses_of_its_own_model_is_fed_back(drive: Drive) -> None:
    """A3, R45: counted as an invalid call, in the next turn."""
    body = '{"error":{"code":"tool_use_failed","message":"bad call"}}'
    drive.running().fail(status=400, body=body)
    (error,) = errors(drive)
    assert (error.kind, error.subkind, error.handling) == ("bad_request", "invalid_generation", "feedback")
    assert drive.requests[-1].items == (UserMessage(text="do it"), feedback.invalid_generation(error.message))
    drive.answer()
    assert (drive.result.counters.invalid_call, drive.result.turns) == (1, 2)


def test_the_fourth_refused_generation_in_a_row_ends_the_run(drive: Drive) -> None:
    """I4."""
    body = '{"error":{"code":"tool_use_failed","message":"bad call"}}'
    drive.running()
    for _ in range(4):
        drive.fail(status=400, body=body)
    assert drive.result.reason == "limit"
    assert drive.result.limit == events.LimitTripped(which="invalid_calls", allowed=4, used=4)
    assert drive.result.exit_code == 53


def test_an_empty_response_is_nudged_once_and_then_surfaces(drive: Drive) -> None:
    """D8, R46."""
    drive.running().end()
    (error,) = errors(drive)
    assert (error.kind, error.subkind) == ("malformed_response", "empty")
    assert error.handling == "retry"
    assert drive.requests[-1].items == (UserMessage(text="do it"), feedback.nudge())
    assert drive.requests[-1].turn == 2
    drive.say(" \n").end()
    assert errors(drive)[0].handling == "surface"
    assert (drive.result.kind, drive.result.subkind, drive.result.exit_code) == ("malformed_response", "empty", 76)
    assert drive.result.counters.empty_response == 1


def test_a_response_cut_in_its_text_is_continued_three_times_and_then_surfaces(drive: Drive) -> None:
    """E4, R60."""
    drive.running()
    for part in ("a", "b", "c", "d"):
        drive.say(part).end(finish="length")
    shown = drive.told()
    assert [event.handling for event in shown if isinstance(event, events.Error)] == [
        "continue",
        "continue",
        "continue",
        "surface",
    ]
    assert [event for event in shown if isinstance(event, events.Continuation)] == [
        events.Continuation(count=count, of=3) for count in (1, 2, 3)
    ]
    assert (drive.result.kind, drive.result.text) == ("output_truncated", "d")
    assert drive.requests[-1].items == (
        UserMessage(text="do it"),
        *(item for part in ("a", "b", "c") for item in (AssistantMessage(text=part, partial=True), feedback.go_on())),
    )


def test_a_response_cut_before_its_first_word_leaves_no_empty_message(drive: Drive) -> None:
    """D7, R48: all of the output went into thinking."""
    drive.running().say("hm", reasoning=True).end(finish="length")
    assert drive.requests[-1].items == (UserMessage(text="do it"), feedback.go_on())


def test_a_cut_call_without_a_name_is_dropped(drive: Drive) -> None:
    """K5."""
    drive.running().say("x").end(call("", '{"a', complete=False), finish="length")
    assert [event for event in drive.told() if isinstance(event, events.ToolUse)] == []


def test_a_filtered_response_surfaces_with_what_had_come(drive: Drive) -> None:
    drive.running().say("I can").end(finish="content_filter")
    assert (drive.result.kind, drive.result.text, drive.result.exit_code) == ("content_filtered", "I can", 76)


def test_a_refusal_surfaces(drive: Drive) -> None:
    drive.running().end(refusal="I will not.")
    assert (drive.result.kind, drive.result.subkind) == ("content_filtered", "refusal")


def test_every_attempt_is_charged(drive: Drive) -> None:
    """D6: a refused connection cost nothing; a broken stream is estimated; what is reported is taken."""
    drive.running().fail(phase="connect", exception="ConnectError: refused").wait()
    assert drive.state.ledger.usage == Usage()
    drive.fail(phase="first_event", truncated=True).wait()
    estimated = drive.state.ledger.usage
    assert estimated.estimated
    assert estimated.input > 100
    drive.answer()
    assert drive.result.usage == Usage(
        input=estimated.input + USAGE.input, output=estimated.output + USAGE.output, estimated=True
    )


@pytest.mark.parametrize("phase", ["connect", "headers", "first_event", "body"])
def test_the_same_attempt_costs_the_same_however_it_was_cut_off(phase: Phase) -> None:
    """D6: a stop, a failure and the worker's death are charged alike; nothing where no answer had begun."""

    def reached() -> Drive:
        drive = Drive(settings()).running()
        drive.said("llm", AttemptProgress(**drive.work(), attempt=drive.attempt, phase=phase))
        return drive

    stopped = reached().cancel().stopped().result.usage
    failed = reached().fail(phase=phase, exception="ReadError: ").state.ledger.usage
    died = reached().exits("llm").swept("llm").state.ledger.usage
    assert stopped == failed == died
    assert stopped.estimated is (phase in ("first_event", "body"))
    assert (stopped.total > 0) is stopped.estimated


def test_output_that_was_counted_only_at_the_start_is_estimated_where_the_end_never_came(drive: Drive) -> None:
    """D6: a messages server counts one token in its first event and all of them in its last."""
    begun = Usage(input=100, output=1)
    drive.running().say("x" * 400).fail(phase="body", truncated=True, usage=begun)
    assert drive.result.usage == Usage(input=100, output=100, estimated=True)
    stopped = Drive(settings()).running().say("x" * 400).cancel()
    stopped.acknowledges("llm", usage=begun).acknowledges("tool").stops("llm", "tool")
    assert stopped.result.usage == Usage(input=100, output=100, estimated=True)
    counted = Usage(input=100, output=101)
    told = Drive(settings()).running().say("x" * 400).fail(phase="body", truncated=True, usage=counted)
    assert told.result.usage == counted


def test_a_silent_model_is_told_of_and_again_when_it_stays_silent(drive: Drive) -> None:
    """D4: after 5 s, each further 5 s, until something comes."""
    drive.running().beat("llm", 4_900).beat("llm", 5_100)
    assert session.ps_state(drive.state) == "stalled"
    drive.beat("llm", 6_100).beat("llm", 10_200).say("x")
    assert session.ps_state(drive.state) == "running"
    drive.beat("llm", 5_000).beat("llm", 100).beat("llm", 5_000)
    stalled = [event for event in drive.told(workers=True) if isinstance(event, events.Worker)]
    assert [(event.state, event.silent_ms) for event in stalled] == [
        ("stalled", 5_100),
        ("stalled", 10_200),
        ("stalled", 5_000),
        ("stalled", 5_000),
    ]


def test_deltas_of_another_attempt_are_dropped(drive: Drive) -> None:
    """R12, R76."""
    drive.running().fail(status=500)
    late = drive.attempt
    drive.wait()
    before = drive.state
    drive.said("llm", Delta(**drive.work(), attempt=late, text="late"))
    assert drive.state == before


def test_a_run_that_never_reached_its_server_ends_with_host_and_port(drive: Drive) -> None:
    """The issue: the gateway is not there; also where its name does not resolve."""
    drive.running().fail(phase="connect", exception="ConnectError: [Errno -2] Name or service not known")
    drive.wait().fail(phase="connect", exception="ConnectError: [Errno -2] Name or service not known")
    drive.wait().fail(phase="connect", exception="ConnectError: [Errno -2] Name or service not known")
    assert drive.result.exit_code == 75
    assert drive.result.message == (
        "the base URL's host was not found (127.0.0.1:1): Name or service not known; "
        "gave up after 3 attempts; check the base URL and the name service"
    )
