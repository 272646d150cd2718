"""The whole chain as it is where there is no Linux: no subreaper, no pidfd, no name of a process, psutil's table.

Forced by HALTLINE_PORTABLE=1. Orphans come to this process, which is a subreaper and ends nothing before it has
counted; so what is gone, haltline alone has ended. docs/decisions/0005-the-portable-fallback.md has the reasons.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import survivors
from support.chain import MEMBERS, Member, members, seconds_until_gone
from support.checkout import ROOT
from support.command import WITHIN_S, Running, run
from support.kill_cell import Cell, Hit, State, expected, try_cell

WITHOUT_LINUX = (sys.executable, "-I", str(ROOT / "tests" / "support" / "without_linux.py"))


@pytest.fixture(autouse=True)
def _portable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALTLINE_PORTABLE", "1")


@pytest.mark.ci
def test_a_run_completes_and_says_how_its_tools_are_held() -> None:
    ended = run("run", "-m", "demo/ok", "--json", "hi")
    assert (ended.exit_code, ended.result["reason"]) == (0, "completed")
    assert ended.events[0]["isolation"] == "groups"


@pytest.mark.ci
def test_a_nasty_tree_is_stopped_and_nothing_is_left() -> None:
    """F1, G1."""
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--json", "hi"])
    running.until("tool_start")
    before = survivors.descendants(os.getpid())
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert (ended.exit_code, ended.receipt.survivors) == (130, 0)
    assert survivors.settle(before) == []


@pytest.mark.ci
@pytest.mark.parametrize("victim", MEMBERS)
@pytest.mark.parametrize("state", ["tool", "text"])
def test_one_death(state: State, victim: Member) -> None:
    """G2, L2: as test_deaths.py, which has the same cells with everything that Linux gives."""
    cell = Cell(state, (Hit(victim, "KILL"),))
    assert try_cell(cell).said in expected(cell)


@pytest.mark.ci
def test_a_killed_worker_is_replaced() -> None:
    """L2."""
    running = Running(["run", "-m", "demo/hang_first", "--retry", "interactive", "-y", "--json", "hi"])
    running.until("init")
    os.kill(members(running)["llm"], signal.SIGKILL)
    running.until(lambda event: (event["type"], event.get("state")) == ("worker", "replaced"))
    running.process.send_signal(signal.SIGINT)
    assert running.end().exit_code == 130


@pytest.mark.ci
@pytest.mark.parametrize("isolation", ["pidns", "subreaper"])
def test_what_only_linux_has_is_refused_in_words(isolation: str) -> None:
    ended = run("run", "-m", "demo/ok", "--isolation", isolation, "hi")
    assert ended.exit_code == 78
    assert f"isolation {isolation} is not usable here: it needs Linux; use auto or groups" in ended.stderr


@pytest.mark.ci
def test_every_module_can_be_imported_without_the_names_of_linux() -> None:
    done = subprocess.run([*WITHOUT_LINUX, "import"], capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 100  # modules


def test_a_run_needs_none_of_the_names_of_linux(tmp_path: Path) -> None:
    """Nor /proc, but for psutil."""
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--json", "hi"], command=WITHOUT_LINUX, cwd=tmp_path)
    running.until("tool_start")
    running.process.send_signal(signal.SIGINT)
    running.until("cancel")
    running.process.send_signal(signal.SIGINT)  # no grace
    ended = running.end()
    assert (ended.exit_code, ended.receipt.survivors) == (130, 0)
    assert "Traceback" not in ended.stderr
    assert seconds_until_gone(0.0, float("inf")) >= 0


@pytest.mark.ci
def test_on_linux_it_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool worker alone is without subreaper then."""
    monkeypatch.delenv("HALTLINE_PORTABLE")
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--isolation", "groups", "--json", "hi"])
    running.until("tool_start")
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert (ended.events[0]["isolation"], ended.exit_code, ended.receipt.survivors) == ("groups", 130, 0)
    assert survivors.descendants(os.getpid()) == []
