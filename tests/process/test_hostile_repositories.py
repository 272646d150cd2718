"""Repositories that are hard on an agent: tests that hang, a syntax error, thousands of files, output that is no text.
The run goes on, or ends and says why; that nothing is alive afterwards is checked after every test (conftest)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import repositories
from support.command import Ended, Event, run

KEPT_CHARACTERS = 34_000
"""A result as the model sees it: 32 KiB of output and some words around it (G6)."""
BOUNDED_MS = 10_000
"""Of `glob` or `search` over 5,000 files; they take about 0.3 s."""


def mend(folder: Path, *options: str) -> Ended:
    """`-m demo/repair` at work there; a hanging command costs 3 s."""
    return run(
        *("run", "-m", "demo/repair", "-y", "-C", str(folder), "--json", "--tool-timeout", "3", *options),
        repositories.TASK,
        within_s=60.0,
    )


def passes(folder: Path) -> bool:
    command = [sys.executable, "-B", "-m", "unittest", "discover"]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=20)
    return done.returncode == 0


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}


def statuses(ended: Ended) -> list[object]:
    return [event["status"] for event in ended.of("tool_result")]


def said(ended: Ended) -> str:
    return str(ended.result["text"])


def test_a_suite_that_hangs_is_ended_at_the_tools_limit_and_mended(tmp_path: Path) -> None:
    """G5, B5: the limit is told to the model, which looks where it hangs."""
    repositories.counts_for_ever(tmp_path)
    ended = mend(tmp_path)
    assert "timed_out" in statuses(ended)
    assert (ended.result["reason"], ended.exit_code, said(ended)[:7]) == ("completed", 0, "Mended:")
    assert passes(tmp_path)


@pytest.mark.parametrize("turns", ["2", "40"])
def test_a_suite_that_waits_for_a_daemon_is_given_up_and_the_daemon_is_gone(tmp_path: Path, turns: str) -> None:
    """G1, G5: each run of the tests leaves a process in a session of its own that ignores SIGTERM."""
    repositories.waits_for_a_daemon(tmp_path)
    before = contents(tmp_path)
    ended = mend(tmp_path, "--max-turns", turns)
    assert "timed_out" in statuses(ended)
    if turns == "2":
        assert (ended.result["reason"], ended.exit_code) == ("limit", 53)
    else:
        assert (ended.result["reason"], ended.exit_code) == ("completed", 0)
        assert said(ended).startswith("I could not mend this.")
    assert contents(tmp_path) == before


def test_a_syntax_error_is_given_up_in_words(tmp_path: Path) -> None:
    repositories.has_a_syntax_error(tmp_path)
    before = contents(tmp_path)
    ended = mend(tmp_path, "--max-turns", "40")
    assert (ended.result["reason"], ended.exit_code) == ("completed", 0)
    assert said(ended).startswith("I could not mend this.")
    assert contents(tmp_path) == before


def test_five_thousand_files_are_looked_through_within_the_bounds(tmp_path: Path) -> None:
    """G6: what a listing shows is bounded, says that there is more, and no step takes long."""
    repositories.is_large(tmp_path)
    ended = mend(tmp_path)
    listings = looked(ended)
    assert len(listings) == 2
    for listing in listings:
        assert listing["status"] == "done"
        assert int(str(listing["ms"])) < BOUNDED_MS
        assert "more" in str(listing["text"])[-200:]
    assert max(len(str(event["text"])) for event in ended.of("tool_result")) < KEPT_CHARACTERS
    assert (ended.result["reason"], ended.exit_code) == ("completed", 0)
    assert passes(tmp_path) is said(ended).startswith("Mended:")


def looked(ended: Ended) -> list[Event]:
    """Results of glob and search."""
    ids = [event["call_id"] for event in ended.of("tool_use") if event["name"] in ("glob", "search")]
    return [event for event in ended.of("tool_result") if event["call_id"] in ids]


def test_output_that_is_no_utf_8_is_replaced_and_the_test_is_mended(tmp_path: Path) -> None:
    """R87, G7: the next requests are valid, and every line that we print is UTF-8 JSON."""
    repositories.prints_no_utf_8(tmp_path)
    ended = mend(tmp_path)
    shown = "".join(str(event["text"]) for event in ended.of("tool_result"))
    ended.stdout.decode("utf-8", "strict")
    assert "gr\ufffdn" in shown
    assert "\0" not in shown
    shown.encode()
    assert (ended.result["reason"], ended.exit_code, said(ended)[:7]) == ("completed", 0, "Mended:")
    assert passes(tmp_path)
