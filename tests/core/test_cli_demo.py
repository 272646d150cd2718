"""The demo's receipt holds only what was seen: each of its lines can fail."""

from pathlib import Path

import msgspec
import pytest

from haltline.cli.demo_receipt import Check, Part, fact, receipt, within
from haltline.cli.demo_repair import RepositoryTests, repair_checks, run_tests
from haltline.cli.demo_run import RunSeen
from haltline.cli.demo_stops import Acknowledged, StopSeen, of_hung, of_stream, of_tree
from haltline.gateway import demo as repository
from haltline.protocol import events
from haltline.protocol.conversation import Usage
from haltline.protocol.errors import Undecodable
from haltline.protocol.ids import CallId, SessionId
from haltline.protocol.kinds import Rung
from haltline.protocol.lines import Line, from_json, to_json

replace = msgspec.structs.replace

RED = RepositoryTests(ran=14, green=False)
GREEN = RepositoryTests(ran=14, green=True)
RESULT = events.Result(
    reason="completed", message="", text="done", retryable=False, exit_code=0, usage=Usage(),
    counters=events.Counters(),
    turns=5, attempts=5, tool_calls=4, tool_runs=4, ms=900,
)  # fmt: skip
SEEN = RunSeen(result=RESULT, exit_code=0, seconds=1.24, left=0)


def missed(checks: tuple[Check, ...]) -> list[str]:
    return [check.what for check in checks if not check.holds]


def failing(before: RepositoryTests, seen: RunSeen, after: RepositoryTests) -> list[str]:
    return missed(repair_checks(before, seen, after))


def test_every_line_about_the_repair_can_fail() -> None:
    assert failing(RED, SEEN, GREEN) == []
    assert failing(GREEN, SEEN, GREEN) == ["a test failed before"]
    assert failing(RED, SEEN, RED) == ["all tests are green"]
    assert failing(RED, SEEN, RepositoryTests(ran=13, green=True)) == ["all tests are green"]
    assert failing(RED, replace(SEEN, left=1), GREEN) == ["processes left"]
    assert failing(RED, replace(SEEN, exit_code=1), GREEN) == ["the agent completed"]
    assert failing(RED, replace(SEEN, result=None), GREEN) == ["the agent completed", "turns", "tool runs"]
    assert failing(RED, replace(SEEN, result=replace(RESULT, tool_runs=0)), GREEN) == ["tool runs"]


def stopped(rung: Rung) -> StopSeen:
    """A stop as it should be."""
    told = events.CancelReceipt(stream_ms=2.0, tools_ms=None, total_ms=3.0, rung=rung, killed=0, survivors=0)
    result = replace(RESULT, reason="cancelled", exit_code=130, cancel=told)
    return StopSeen(
        run=RunSeen(result=result, exit_code=130, seconds=1.0, left=0),
        pieces=3,
        tree=14,
        alive=20,
        ended=20,
        acknowledged={role: Acknowledged(told_ms=4.0, own_ms=2.0) for role in ("llm", "tool")},
        closed_ms=3.0,
        gone_ms=25.0,
    )


STREAM = stopped("ack")
TREE = stopped("sweep")
HUNG = replace(stopped("worker_kill"), acknowledged={"tool": Acknowledged(told_ms=2004.0, own_ms=2.0)}, gone_ms=2050.0)
UNSAID = replace(STREAM.run, result=None)
"""A run that ended without a last line."""

GONE = "nothing of the run was alive"


def test_every_line_about_a_stopped_stream_can_fail() -> None:
    assert missed(of_stream(STREAM)) == []
    assert missed(of_stream(replace(STREAM, pieces=2))) == ["text was on its way"]
    one = {"llm": STREAM.acknowledged["llm"]}
    assert missed(of_stream(replace(STREAM, acknowledged=one))) == ["both workers acknowledged"]
    assert missed(of_stream(replace(STREAM, closed_ms=None))) == ["the server saw the stream closed"]
    assert missed(of_stream(replace(STREAM, gone_ms=3000.1))) == [GONE]
    assert missed(of_stream(replace(STREAM, ended=19, gone_ms=None))) == [GONE, "processes that ended"]
    assert missed(of_stream(replace(STREAM, alive=0, ended=0))) == ["processes that ended"]
    assert missed(of_stream(stopped("worker_kill"))) == ["rung"]
    assert missed(of_stream(replace(STREAM, run=replace(STREAM.run, exit_code=0)))) == ["the run ended"]
    assert missed(of_stream(replace(STREAM, run=UNSAID))) == ["rung", "the run ended"]
    assert missed(of_stream(replace(STREAM, run=replace(STREAM.run, left=1)))) == ["survivors"]


def test_every_line_about_a_stopped_tree_can_fail() -> None:
    assert missed(of_tree(TREE, 12)) == []
    assert missed(of_tree(TREE, 15)) == ["processes of the tool"]
    assert missed(of_tree(replace(TREE, acknowledged={}), 12)) == ["both workers acknowledged"]
    assert missed(of_tree(replace(TREE, gone_ms=6900.1), 12)) == [GONE]
    assert missed(of_tree(stopped("term"), 12)) == ["rung"]
    assert missed(of_tree(replace(TREE, run=replace(TREE.run, left=1)), 12)) == ["survivors"]


def test_every_line_about_a_worker_that_does_not_answer_can_fail() -> None:
    assert missed(of_hung(HUNG)) == []
    assert missed(of_hung(replace(HUNG, acknowledged=STREAM.acknowledged))) == ["the LLM worker acknowledged"]
    assert missed(of_hung(replace(HUNG, acknowledged={}))) == ["the tool worker did, it says"]
    assert missed(of_hung(replace(HUNG, closed_ms=None))) == ["the server saw the stream closed"]
    assert missed(of_hung(replace(HUNG, gone_ms=None))) == [GONE]
    assert missed(of_hung(replace(HUNG, run=STREAM.run))) == ["rung"]


def test_a_time_over_its_bound_is_late_and_at_three_times_its_bound_it_fails() -> None:
    assert within("gone", 1000.0, 1000) == Check("gone", "1000.0 ms", "ok", "at most 1000 ms")
    assert within("gone", 3000.0, 1000) == Check("gone", "3000.0 ms", "late", "at most 1000 ms")
    assert within("gone", 3000.1, 1000) == Check("gone", "3000.1 ms", "FAIL", "at most 1000 ms")
    assert within("gone", None, 1000) == Check("gone", "never", "FAIL", "at most 1000 ms")


def test_the_receipt_is_a_table_of_figures_and_their_bounds() -> None:
    parts = [
        Part("a repair", (fact("turns", 5, True), fact("processes left", 2, False))),
        Part("a stop", (within("gone", 1500, 1000),)),
    ]
    assert receipt(parts).splitlines()[:-2] == [
        "receipt: 2/3 hold",
        "a repair",
        "  ok    turns           5",
        "  FAIL  processes left  2",
        "a stop",
        "  late  gone            1500.0 ms  at most 1000 ms",
    ]


def test_the_repository_of_the_demo_has_a_failing_test(tmp_path: Path) -> None:
    repository.copy_to(tmp_path)
    tests = run_tests(str(tmp_path))
    assert tests.ran > 0
    assert not tests.green


def test_a_line_is_read_back_as_it_was_written() -> None:
    event = events.ToolUse(call_id=CallId("c1"), name="shell", arguments_raw="{}")
    line = Line(seq=3, ts="2026-01-01T00:00:00.000Z", session_id=SessionId("abcdef01"), run=1, turn=2, event=event)
    assert from_json(to_json(line)) == line
    with pytest.raises(Undecodable, match="a line of stream-json"):
        from_json(b"Traceback (most recent call last):")
