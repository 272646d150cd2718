"""How the self-test says what it found: what holds by its expectation, what does not with both."""

from __future__ import annotations

import msgspec
import pytest

from haltline.cli.selftest_findings import (
    Check,
    Finding,
    at_least,
    check,
    last_line,
    line,
    pieces,
    report,
    same,
    says,
    trouble,
    within,
)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (same("calls", 2, 2), "calls 2"),
        (same("used", 2.0, 2.0), "used 2"),
        (
            same("results", ["done", "done", "refused_loop"], ["done", "done", "refused_loop"]),
            "results 2x done refused_loop",
        ),
        (same("requests", [2, 1, 1], [2, 1, 1]), "requests 2 1 1"),
        (same("whole", [("one ", False)], [("one ", False)]), "whole one  False"),
        (same("lost", [], []), "lost none"),
        (within("wait", 200, 400, 200, " ms"), "wait 200..400 ms"),
        (within("wait", 200, 400, 400.0, " ms"), "wait 200..400 ms"),
        (at_least("used", 100, 4711, ""), "used >= 100"),
        (pieces("pieces", ("one ", "two"), "one two"), "pieces 2"),
    ],
)
def test_what_holds_is_said_by_what_was_expected(finding: Finding, words: str) -> None:
    """So the lines are the same in every run, whatever was measured."""
    assert (finding.holds, finding.came) == (True, None)
    assert line(check("name", [finding]), 6) == f"ok  name    {words}"


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (same("calls", 2, 3), "calls: expected 2, came 3"),
        (same("alive", 1, True), "alive: expected 1, came True"),
        (same("kind", "server", None), "kind: expected server, came none"),
        (same("results", ["done"], []), "results: expected done, came none"),
        (within("wait", 200, 400, 199.5, " ms"), "wait: expected 200..400 ms, came 199.5 ms"),
        (within("wait", 200, 400, 401, " ms"), "wait: expected 200..400 ms, came 401 ms"),
        (within("wait", 200, 400, None, " ms"), "wait: expected 200..400 ms, came nothing"),
        (at_least("used", 100, 99, ""), "used: expected >= 100, came 99"),
        (at_least("used", 100, None, ""), "used: expected >= 100, came nothing"),
        (pieces("pieces", ("one ", "two"), "one one two"), "pieces: expected 2, came 'one one two'"),
        (pieces("pieces", ("one ", "two"), None), "pieces: expected 2, came None"),
        (says("words", ["a", "b"], "a\nc"), "words: expected 'a' and 'b', came 'a\\nc'"),
        (same("text", "a\n", "b\n"), "text: expected a\\n, came b\\n"),
        (trouble("it hangs"), "a run that ends by itself: expected a result, came it hangs"),
    ],
)
def test_what_does_not_hold_is_said_with_what_came(finding: Finding, words: str) -> None:
    assert not finding.holds
    assert line(check("name", [same("calls", 2, 2), finding]), 4) == f"FAIL  name  {words}"


def test_what_is_not_for_the_line_of_a_check_that_holds_is_left_out() -> None:
    assert line(check("name", [same("calls", 2, 2), same("reason", "completed", "completed", shown=False)]), 4) == (
        "ok  name  calls 2"
    )


def test_a_check_that_has_found_nothing_has_not_passed() -> None:
    assert check("name", []) == Check(name="name", passed=False, findings=())
    assert line(check("name", []), 4) == "FAIL  name  nothing was found"


def test_the_report_counts_and_its_json_holds_everything() -> None:
    said = report([check("one", [same("calls", 2, 2)]), check("two", [within("wait", 200, 400, 7, " ms")])])
    assert last_line(said) == "1/2 passed"
    assert msgspec.json.decode(msgspec.json.encode(said)) == {
        "v": 1,
        "passed": 1,
        "of": 2,
        "checks": [
            {"name": "one", "passed": True, "findings": [{"what": "calls", "expected": "2", "holds": True}]},
            {
                "name": "two",
                "passed": False,
                "findings": [{"what": "wait", "expected": "200..400 ms", "holds": False, "came": "7 ms"}],
            },
        ],
    }
