"""The demo's receipt holds only what was seen, and its events are read back as they were written."""

from pathlib import Path

import msgspec
import pytest

from haltline.cli.demo import Check, RepositoryTests, receipt, repair_checks, run_tests
from haltline.cli.demo_run import RunSeen
from haltline.gateway import demo as repository
from haltline.protocol import events
from haltline.protocol.conversation import Usage
from haltline.protocol.errors import Undecodable
from haltline.protocol.ids import CallId, SessionId
from haltline.protocol.lines import Line, from_json, to_json

RED = RepositoryTests(ran=14, green=False)
GREEN = RepositoryTests(ran=14, green=True)
RESULT = events.Result(
    reason="completed", message="", text="done", retryable=False, exit_code=0, usage=Usage(),
    counters=events.Counters(),
    turns=5, attempts=5, tool_calls=4, tool_runs=4, ms=900,
)  # fmt: skip
SEEN = RunSeen(result=RESULT, exit_code=0, seconds=1.24, left=0)


def failing(before: RepositoryTests, seen: RunSeen, after: RepositoryTests) -> list[str]:
    return [check.what for check in repair_checks(before, seen, after) if not check.holds]


def test_every_line_of_the_receipt_can_fail() -> None:
    replace = msgspec.structs.replace
    assert failing(RED, SEEN, GREEN) == []
    assert failing(GREEN, SEEN, GREEN) == ["a test failed before"]
    assert failing(RED, SEEN, RED) == ["all tests are green"]
    assert failing(RED, SEEN, RepositoryTests(ran=13, green=True)) == ["all tests are green"]
    assert failing(RED, replace(SEEN, left=1), GREEN) == ["processes left"]
    assert failing(RED, replace(SEEN, exit_code=1), GREEN) == ["the agent completed"]
    assert failing(RED, replace(SEEN, result=None), GREEN) == ["the agent completed", "turns", "tool runs"]
    assert failing(RED, replace(SEEN, result=replace(RESULT, tool_runs=0)), GREEN) == ["tool runs"]


def test_the_receipt_is_a_table_of_figures() -> None:
    assert receipt([Check("turns", "5", True), Check("processes left", "2", False)]) == (
        "receipt: 1/2 hold\n  ok    turns           5\n  FAIL  processes left  2"
    )


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
