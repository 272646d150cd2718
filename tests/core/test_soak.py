"""What a soak plans to do, and what it says of what came of it."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest

from haltline.cli.soak_plan import CANCELLED, ENDLESS, Harm, Rates, SessionPlan, plan
from haltline.cli.soak_report import Report, Times, last_lines, round_line, times
from haltline.cli.soak_run import RoundSeen, Stop
from haltline.protocol.kinds import Reason

replace = msgspec.structs.replace

RATES = Rates(kill=10, stop=20)
MANY = 2000


def test_the_same_seed_is_the_same_plan_and_a_round_depends_on_no_other() -> None:
    assert plan(1, 3, 50, RATES) == plan(1, 3, 50, RATES)
    assert plan(1, 3, 50, RATES)[:20] == plan(1, 3, 20, RATES)
    assert plan(1, 3, 50, RATES) != plan(2, 3, 50, RATES)
    assert plan(1, 3, 50, RATES) != plan(1, 4, 50, RATES)


def test_what_would_not_end_by_itself_is_always_stopped_and_the_rest_sometimes() -> None:
    plans = plan(1, 1, MANY, RATES)
    assert all(one.cancel_at_s is not None for one in plans if one.scenario in ENDLESS)
    others = [one for one in plans if one.scenario not in ENDLESS]
    stopped = sum(one.cancel_at_s is not None for one in others)
    assert stopped / len(others) == pytest.approx(CANCELLED, abs=0.1)


def test_workers_are_killed_and_stopped_at_the_rates_that_were_asked_for() -> None:
    hurt = Counter(one.harm.how for one in plan(1, 1, MANY, RATES) if one.harm is not None)
    assert hurt["kill"] / MANY == pytest.approx(0.10, abs=0.03)
    assert hurt["stop"] / MANY == pytest.approx(0.20, abs=0.03)
    assert all(one.harm is None for one in plan(1, 1, MANY, Rates(kill=0, stop=0)))
    assert {one.harm.how for one in plan(1, 1, MANY, Rates(kill=100, stop=0)) if one.harm} == {"kill"}


@pytest.mark.parametrize(
    ("scenario", "cancelled", "hurt", "explained"),
    [
        ("slow", True, None, {"cancelled"}),
        ("slow", True, "llm", {"cancelled", "failed"}),
        ("slow", True, "tool", {"cancelled"}),
        ("tool_tree", True, "tool", {"cancelled", "completed"}),
        ("ok", False, None, {"completed"}),
        ("ok", True, None, {"completed", "cancelled"}),
    ],
)
def test_an_end_is_explained_by_what_was_done_to_that_session_alone(
    scenario: str, cancelled: bool, hurt: str | None, explained: set[Reason]
) -> None:
    harm = None if hurt is None else Harm(how="kill", role="llm" if hurt == "llm" else "tool", at_s=0.1)
    one = SessionPlan(scenario=scenario, cancel_at_s=0.5 if cancelled else None, harm=harm)
    reasons: tuple[Reason, ...] = ("cancelled", "completed", "failed", "worker_failed", "killed", "limit")
    assert {reason for reason in reasons if one.explains(reason)} == explained


ROUND = RoundSeen(
    number=1,
    seconds=4.04,
    results={"cancelled": 3, "completed": 1},
    stop_ms={"ack": (2.0, 4.0), "sweep": (2010.0,)},
    slowest=Stop(
        ms=2010.0,
        rung="sweep",
        plan=SessionPlan(scenario="tool_tree", cancel_at_s=0.5, harm=Harm(how="stop", role="tool", at_s=0.25)),
    ),
    killed=1,
    stopped=2,
    escalated=2,
    replaced=1,
    survivors=0,
    open_streams=0,
    stuck=0,
    unexplained=(),
)
REPORT = Report(sessions=4, seed=7, rounds=(ROUND, ROUND), left=0)


@pytest.mark.parametrize(
    ("spoilt", "name"),
    [
        (replace(REPORT, rounds=(ROUND, replace(ROUND, survivors=1))), "survivors 1"),
        (replace(REPORT, left=2), "survivors 2"),
        (replace(REPORT, rounds=(replace(ROUND, open_streams=1),)), "open streams 1"),
        (replace(REPORT, rounds=(replace(ROUND, stuck=1),)), "stuck 1"),
        (replace(REPORT, rounds=(replace(ROUND, unexplained=("it broke",)),)), "unexplained 1"),
        (replace(REPORT, trouble="in round 2 the supervisor ended"), "in round 2 the supervisor ended"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_each_objective_can_be_missed(spoilt: Report, name: str) -> None:
    assert REPORT.holds
    assert not spoilt.holds
    last = last_lines(spoilt).splitlines()[-1]
    assert last.startswith("MISSED: 4 sessions")
    assert name in last


def test_a_round_is_a_line_and_what_nothing_explains_is_said() -> None:
    lines = round_line(replace(ROUND, unexplained=("s1 ended as worker_failed",))).splitlines()
    counts = "workers killed 1, stopped 2, replaced 1; survivors 0, open streams 0, stuck 0"
    assert lines == [
        f"round 1, 4.0 s: cancelled 3, completed 1; {counts}",
        "  unexplained: s1 ended as worker_failed",
    ]


def test_the_slowest_stop_is_told_with_what_was_done_to_its_session() -> None:
    assert last_lines(REPORT).splitlines()[-2] == (
        "  the slowest: 2010 ms, tool_tree, stopped after 0.50 s, SIGSTOP to its tool worker after 0.25 s"
    )


def test_times_of_stops_are_told_by_what_the_stop_met() -> None:
    assert REPORT.stops == {
        "ack": Times(count=4, p50=4.0, p95=4.0, p99=4.0, max=4.0),
        "sweep": Times(count=2, p50=2010.0, p95=2010.0, p99=2010.0, max=2010.0),
    }
    assert times([float(n) for n in range(1, 101)]) == Times(count=100, p50=51.0, p95=96.0, p99=100.0, max=100.0)
    said = json.loads(msgspec.json.encode(REPORT.as_object()))
    assert (said["ok"], said["survivors"], said["stops"]["ack"]["count"]) == (True, 0, 4)
