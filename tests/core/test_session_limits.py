"""Hard limits of a run and of a session (I1 to I5)."""

import pytest
from support.drive import Drive, read, settings, shell

from haltline.protocol import events
from haltline.protocol.conversation import Usage, UserMessage
from haltline.protocol.settings import Limits
from haltline.supervisor import ends, feedback, stimuli
from haltline.supervisor.budget import Trip


def budgets(drive: Drive) -> list[events.Budget]:
    return [event for event in drive.told() if isinstance(event, events.Budget)]


def test_the_turn_limit_ends_the_run_before_the_request_beyond_it() -> None:
    """I1, I2: its tools have run; the history says why it ended."""
    drive = Drive(settings(run_limits=Limits(turns=2))).running()
    drive.end(read("a")).runs("c1").end(read("b")).runs("c2")
    assert len(drive.requests) == 2
    trip = Trip(scope="run", which="turns", allowed=2, used=2)
    assert budgets(drive) == [events.Budget(which="turns", used=2, allowed=2, level="tripped")]
    assert (drive.result.reason, drive.result.exit_code) == ("limit", 53)
    assert drive.result.limit == events.LimitTripped(which="turns", allowed=2, used=2)
    assert drive.state.history[-1] == feedback.limit(trip)
    assert feedback.limit(trip).text == (
        "The run was ended by its limit of turns: 2 used, 2 allowed. No further request was made. "
        "What was done so far stands."
    )


def test_a_retry_of_the_last_turn_is_not_a_turn_more() -> None:
    drive = Drive(settings(run_limits=Limits(turns=1))).running().fail(status=500).wait().answer()
    assert drive.result.reason == "completed"


def test_eighty_percent_is_warned_of_once() -> None:
    """Interface: budget, warning."""
    drive = Drive(settings(run_limits=Limits(turns=5))).running()
    for number in range(4):
        drive.end(read(str(number))).runs(f"c{number + 1}")
    assert budgets(drive) == [events.Budget(which="turns", used=4, allowed=5, level="warning")]
    drive.answer()
    assert budgets(drive) == []


def test_the_token_limit_is_looked_at_after_every_charge_before_the_next_request() -> None:
    """I1, R63: a retry is a request too."""
    drive = Drive(settings(run_limits=Limits(tokens=100))).running()
    drive.end(read("a"), usage=Usage(input=90, output=20)).runs("c1")
    assert drive.result.limit == events.LimitTripped(which="tokens", allowed=100, used=110)
    assert len(drive.requests) == 1


def test_tokens_that_no_provider_counts_are_estimated_and_trip_too() -> None:
    """R63."""
    drive = Drive(settings(run_limits=Limits(tokens=1000))).running()
    drive.end(shell("x" * 8000), usage=None).runs("c1")
    assert drive.result.limit is not None
    assert drive.result.limit.which == "tokens"
    assert drive.result.usage.estimated


def test_a_run_that_is_done_is_completed_whatever_it_used() -> None:
    drive = Drive(settings(run_limits=Limits(tokens=10))).running()
    drive.say("done").end(usage=Usage(input=500, output=500))
    assert drive.result.reason == "completed"


def test_the_time_limit_cancels_work_in_flight() -> None:
    """I3: exit 124, and the stop is told like any other."""
    drive = Drive(settings(run_limits=Limits(seconds=10.0))).running()
    drive.end(shell("sleep 99")).tool_starts("c1").told()
    drive.wait_s(10.0, beats=("llm", "tool"))
    assert drive.told() == [
        events.Budget(which="seconds", used=8.0, allowed=10.0, level="warning"),
        events.Budget(which="seconds", used=10.0, allowed=10.0, level="tripped"),
        events.CancelStep(phase="requested", by="limit"),
    ]
    drive.stopped()
    assert (drive.result.reason, drive.result.exit_code) == ("limit", 124)
    assert drive.result.limit == events.LimitTripped(which="seconds", allowed=10.0, used=10.0)
    assert drive.result.cancel is not None
    assert drive.state.history[-1] == feedback.limit(Trip(scope="run", which="seconds", allowed=10, used=10))


def test_a_cancel_while_the_time_limit_stops_the_run_leaves_the_reason() -> None:
    drive = Drive(settings(run_limits=Limits(seconds=10.0))).running().wait_s(10.0, beats=("llm",))
    drive.cancel().stopped()
    assert drive.result.reason == "limit"


def test_time_spent_waiting_for_a_human_does_not_count() -> None:
    """I3."""
    drive = Drive(settings(approval_mode="ask", interactive=True, run_limits=Limits(seconds=10.0))).running()
    drive.wait_s(5.0, beats=("llm",)).end(shell("ls"))
    drive.wait_s(1000.0)
    phases: list[str] = [drive.state.phase]
    drive.answers("c1", "yes").wait_s(4.0, beats=("tool",))
    phases.append(drive.state.phase)
    drive.wait_s(1.0, beats=("tool",))
    phases.append(drive.state.phase)
    assert phases == ["waiting_approval", "running_tools", "cancelling"]


def test_the_session_counts_on_over_its_runs() -> None:
    """I1."""
    drive = Drive(settings(session_limits=Limits(turns=2, seconds=0, tokens=0))).running().answer()
    drive.prompt().answer()
    assert drive.result.reason == "completed"
    drive.prompt("third")
    assert drive.result.limit == events.LimitTripped(which="turns", allowed=2, used=2)
    assert drive.result.message == "the session's limit of 2 turns is reached (2 used)"
    assert drive.result.attempts == 0
    assert len(drive.requests) == 2


def test_a_limit_of_zero_is_none() -> None:
    """I1."""
    drive = Drive(settings(run_limits=Limits(turns=0, seconds=0, tokens=0))).running()
    for number in range(150):
        drive.end(read(str(number)), usage=Usage(input=100_000)).runs(f"c{number + 1}")
    assert drive.answer().result.reason == "completed"


def test_a_run_after_a_limit_starts_with_all_of_its_own(drive: Drive) -> None:
    """I5, R65."""
    drive = Drive(settings(run_limits=Limits(turns=1))).running().end(read("a")).runs("c1")
    reasons: list[str] = [drive.result.reason]
    reasons.append(drive.prompt("go on").answer().result.reason)
    assert reasons == ["limit", "completed"]
    assert drive.requests[-1].items[-1] == UserMessage(text="go on")


@pytest.mark.parametrize(
    ("trip", "words"),
    [
        (Trip(scope="run", which="seconds", allowed=2, used=2.04), "the time limit of 2 s is reached (2.0 s used)"),
        (
            Trip(scope="session", which="seconds", allowed=0.5, used=1),
            "the session's time limit of 0.5 s is reached (1.0 s used)",
        ),
        (Trip(scope="run", which="turns", allowed=3, used=3), "the limit of 3 turns is reached (3 used)"),
        (
            Trip(scope="run", which="tokens", allowed=2000, used=2345),
            "the limit of 2,000 tokens is reached (2,345 used)",
        ),
        (
            Trip(scope="run", which="invalid_calls", allowed=4, used=4),
            "the limit of 4 invalid calls in a row is reached (4 made)",
        ),
    ],
)
def test_a_limit_that_was_reached_is_said_in_plain_words(trip: Trip, words: str) -> None:
    """I2."""
    assert ends.limit_words(trip) == words


def test_a_limit_of_time_that_passes_together_with_its_warning_ends_the_run() -> None:
    """I3: a busy machine brings the Tick late. The warning, too late to be given, is not waited for for ever."""
    drive = Drive(settings(run_limits=Limits(seconds=4.0))).running()
    drive.feed(stimuli.Tick(), after_s=5.0)
    assert [event.level for event in budgets(drive)] == ["tripped"]
    drive.stopped()
    assert (drive.result.reason, drive.result.exit_code) == ("limit", 124)
