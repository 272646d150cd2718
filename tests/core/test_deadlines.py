"""Every limit that contains others is their sum, and none fires twice (I6)."""

from haltline.protocol.settings import StreamLimits
from haltline.supervisor import deadlines
from haltline.supervisor.deadlines import (
    DEATH_GRACE_S,
    GRACE_S,
    KILL_S,
    LATE_S,
    MARGIN_S,
    attempt_s,
    call_s,
    done_s,
    earliest,
    first_due,
    gone_s,
    moved,
    only,
    parsed,
    without,
    without_kinds,
)


def test_wholes_contain_their_parts() -> None:
    assert done_s(GRACE_S) == GRACE_S + KILL_S + MARGIN_S
    assert gone_s() == DEATH_GRACE_S + KILL_S + MARGIN_S
    assert attempt_s(StreamLimits(whole_s=100.0)) == 100.0 + LATE_S
    assert call_s(30.0) == 30.0 + GRACE_S + KILL_S + LATE_S


def test_a_hung_worker_is_gone_within_what_a_stop_may_take() -> None:
    """Design 11: at least 2.3 s for what can be killed at once; F4."""
    assert deadlines.ACK_S == 2.0


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
