"""Which limit of an attempt is the next to trip (D4). What each leads to is shown in tests/process."""

from haltline.protocol.settings import StreamLimits
from haltline.worker.llm.timers import AttemptTimers

OFF = StreamLimits(connect_s=0.0, first_event_s=0.0, silence_s=0.0, progress_s=0.0, whole_s=0.0)


def test_a_limit_of_nought_is_off() -> None:
    """Each by itself, and all together."""
    timers = AttemptTimers(OFF, 100.0)
    assert timers.next() == (float("inf"), None)
    timers.connected(101.0)
    assert timers.next() == (float("inf"), None)
    timers.step(102.0)
    assert timers.next() == (float("inf"), None)


LIMITS = StreamLimits(connect_s=1.0, first_event_s=20.0, silence_s=3.0, progress_s=7.0, whole_s=50.0)


def test_until_the_first_event_only_its_own_limit_counts() -> None:
    """R31: comments do not feed it, and silence on the wire is none of its business."""
    timers = AttemptTimers(LIMITS, 100.0)
    assert timers.next() == (101.0, "connect")
    timers.connected(100.5)
    timers.byte(119.0)
    assert timers.next() == (120.5, "first_event")


def test_comments_feed_the_wire_limit_and_model_events_both() -> None:
    """R29, R30: a model event comes as bytes."""
    timers = AttemptTimers(LIMITS, 100.0)
    timers.connected(100.0)
    timers.byte(101.0)
    timers.step(101.0)
    assert timers.next() == (104.0, "silence")
    timers.byte(103.9)
    timers.byte(106.8)
    assert timers.next() == (108.0, "no_progress")
    timers.byte(107.9)
    timers.step(107.9)
    assert timers.next() == (110.9, "silence")


def test_nothing_feeds_the_limit_of_the_whole_request() -> None:
    timers = AttemptTimers(LIMITS, 100.0)
    timers.connected(100.0)
    timers.byte(149.0)
    timers.step(149.0)
    assert timers.next() == (150.0, "whole_request")


def test_the_rest_of_a_body_has_its_own_short_time() -> None:
    timers = AttemptTimers(StreamLimits(), 100.0)
    timers.limit_rest(102.0)
    timers.limit_rest(105.0)
    assert timers.next() == (102.0, None)


def test_the_rest_of_a_body_ends_with_the_whole_request_at_the_latest() -> None:
    """I6: the supervisor waits for the whole request and its close, and for nothing after it."""
    timers = AttemptTimers(StreamLimits(whole_s=10.0), 100.0)
    timers.limit_rest(111.0)
    assert timers.next() == (110.0, None)


def test_without_a_limit_of_the_whole_request_the_rest_is_limited_all_the_same() -> None:
    timers = AttemptTimers(OFF, 100.0)
    timers.limit_rest(102.0)
    assert timers.next() == (102.0, None)
