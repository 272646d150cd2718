"""Every limit that contains others is their sum, in whichever process it is kept, and none fires twice (I6)."""

from haltline.cli import client, loop
from haltline.protocol import times
from haltline.protocol.settings import StreamLimits
from haltline.supervisor import guard
from haltline.supervisor.deadlines import (
    attempt_s,
    call_s,
    earliest,
    first_due,
    grace_s,
    moved,
    only,
    parsed,
    without,
    without_kinds,
)
from haltline.worker.tool import background, handler, shell


def test_what_the_requirements_say_in_seconds() -> None:
    """F4, F5, F10, G2, L6."""
    assert (times.ACK_S, times.GRACE_S, times.DEATH_S) == (2.0, 2.0, 2.0)
    assert (times.LATE_S, times.SILENCE_S) == (2.0, 10.0)
    assert [grace_s("key", 1), grace_s("key", 2), grace_s("lost_client", 1), grace_s("lost_client", 2)] == [2, 0, 1, 0]


def test_the_supervisor_waits_two_seconds_longer_than_the_worker_may_need() -> None:
    """L6: the worker's limit for it plus 2 s. A background call needs its first look at most."""
    worker_at_limit = times.LIMIT_GRACE_S + times.STORM_S
    worker_with_leftovers = shell.LINGER_S + shell.LEFTOVER_GRACE_S + times.STORM_S
    worker_at_a_stuck_disk = times.FILE_ANSWER_S
    assert background.FIRST_LOOK_S + shell.LINGER_S < times.CALL_END_S
    slowest = max(worker_at_limit, worker_with_leftovers, worker_at_a_stuck_disk)
    assert call_s(30.0) == 30.0 + slowest + 2.0
    assert attempt_s(StreamLimits(whole_s=100.0)) == 100.0 + times.CLOSE_S + 2.0


def test_a_request_without_a_limit_is_never_overdue() -> None:
    assert attempt_s(StreamLimits(whole_s=0.0)) is None


def test_a_worker_that_does_its_part_is_never_killed_in_a_stop() -> None:
    """F4: an acknowledgement says that the stream is closed; done follows the grace and the kill."""
    assert times.CLOSE_S < times.ACK_S
    for grace in (times.NO_GRACE_S, times.DEATH_GRACE_S, times.GRACE_S):
        assert times.done_s(grace) > grace + times.STORM_S
    assert times.done_s(times.NO_GRACE_S) > times.FILE_ANSWER_S
    assert times.LEAVE_GRACE_S + handler.SHUTDOWN_WAIT_S < times.WORKER_LEAVE_S


def test_after_a_death_each_has_time_before_the_next_one_sweeps_and_all_are_done_in_two_seconds() -> None:
    """G2: the worker, then the zygote, then the guard."""
    assert times.DEATH_GRACE_S < times.ZYGOTE_PATIENCE_S < times.GUARD_PATIENCE_S
    assert times.DEATH_GRACE_S + times.SWEEP_S <= times.ZYGOTE_PATIENCE_S
    assert times.GUARD_PATIENCE_S + times.SWEEP_S <= times.DEATH_S


def test_the_guard_does_not_kill_a_supervisor_that_is_stopping_for_a_lost_client() -> None:
    longest_stop = times.ACK_S + times.done_s(grace_s("lost_client", 1)) + times.gone_s()
    assert longest_stop + times.WORKER_LEAVE_S + times.ZYGOTE_LEAVE_S <= guard.CLIENT_LOST_S


def test_the_client_does_not_call_a_supervisor_mute_that_is_stopping() -> None:
    assert times.ACK_S + times.done_s(times.GRACE_S) + times.gone_s() < client.STOPPED_WITHIN_S
    assert times.WORKER_LEAVE_S + times.gone_s() < client.CLOSED_WITHIN_S
    assert times.ZYGOTE_LEAVE_S + times.GUARD_PATIENCE_S + times.STORM_S < loop.GUARD_WITHIN_S


def test_the_earliest_is_first_and_what_has_not_passed_is_not_due() -> None:
    held = {"b": 2.0, "a": 2.0, "c": 1.0}
    assert earliest(held) == 1.0
    assert earliest({}) is None
    assert first_due(held, 0.9) is None
    assert first_due(held, 5.0) == "c"
    assert first_due(without(held, "c"), 5.0) == "b"


def test_names_carry_their_kind() -> None:
    held = {"ack:llm": 1.0, "work:c1": 2.0, "seconds": 3.0}
    assert [parsed(name) for name in held] == [("ack", "llm"), ("work", "c1"), ("seconds", "")]
    assert only(held, "ack") == {"ack:llm": 1.0}
    assert without_kinds(held, "ack", "seconds") == {"work:c1": 2.0}
    assert moved(held, 1.0) == {"ack:llm": 2.0, "work:c1": 3.0, "seconds": 4.0}
