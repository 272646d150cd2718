"""The whole chain as it is where there is no Linux: no subreaper, no pidfd, no name of a process, psutil's table.

Forced by HALTLINE_PORTABLE=1. Orphans come to this process, which is a subreaper and ends nothing before it has
counted; so what is gone, haltline alone has ended. docs/decisions/0005-the-portable-fallback.md has the reasons.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from support import scripted_gateway, survivors
from support.asking_gateway import asking
from support.chain import MEMBERS, Member, members, seconds_until_gone
from support.checkout import ROOT
from support.command import COMMAND, WITHIN_S, Running, run
from support.kill_cell import Cell, Hit, State, expected, try_cell

WITHOUT_LINUX = (sys.executable, "-I", str(ROOT / "tests" / "support" / "without_linux.py"))
KNOCKS = ROOT / "tests" / "support" / "vices" / "knocks.py"
KEY = "key-that-nobody-else-may-have-7f3a"


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
def test_one_death_in_a_tool(victim: Member) -> None:
    """G2, L2: as test_deaths.py, which has the same cells with everything that Linux gives."""
    cell = Cell("tool", (Hit(victim, "KILL"),))
    assert try_cell(cell).said in expected(cell)


@pytest.mark.exhaustive
@pytest.mark.parametrize("pair", list(combinations(MEMBERS, 2)), ids="-".join)
@pytest.mark.parametrize("state", ["tool", "text"])
def test_two_deaths(state: State, pair: tuple[Member, Member]) -> None:
    """G2."""
    cell = Cell(state, (Hit(pair[0], "KILL"), Hit(pair[1], "KILL")))
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
def test_a_key_reaches_the_server_and_is_shown_for_none_of_our_processes(tmp_path: Path) -> None:
    """J4: workers are started as programs here, and what a program is started with is open to its user."""
    with scripted_gateway.running(tmp_path) as gateway:
        running = Running(
            ["run", "-m", "slow", "--base-url", gateway.url, "-y", "--json", "-C", str(tmp_path), "hi"],
            extra={"OPENAI_API_KEY": KEY},
        )
        running.until(lambda event: event["type"] == "message" and bool(event["delta"]))
        pids = members(running)
        blocks = [Path(f"/proc/{pids[member]}/environ").read_bytes() for member in MEMBERS[1:]]
        running.process.send_signal(signal.SIGINT)
        running.end()
        sent = [line.headers.get("authorization") for line in gateway.log() if line.headers is not None]
    assert sent == ["present"]
    assert [KEY.encode() in block for block in blocks] == [False] * len(blocks)


@pytest.mark.ci
@pytest.mark.parametrize("mode", ["plain", "daemon"])
def test_a_tool_is_known_at_the_door_by_its_cookie(home: Path, tmp_path: Path, mode: str) -> None:
    """L4. `daemon`: in a session of its own, its parent dead."""
    told = tmp_path / "told.json"
    with asking() as gateway:
        gateway.command = shlex.join(
            [sys.executable, "-B", str(KNOCKS), str(told), str(home / "run"), mode, *COMMAND, "ps", "--json"]
        )
        options = ("-m", "any", "--base-url", gateway.base_url, "-y", "--json", "-C", str(tmp_path))
        running = Running(["run", *options, "knock"])
        running.until("tool_result")
        said = msgspec.json.decode(told.read_bytes(), type=dict[str, object])
        gateway.go_on()
        running.end()
    assert (said["exit_code"], said["stdout"], said["after_death"]) == (77, "[]\n", ["refuse"])
    assert str(said["door"]).startswith("refused: a tool of a session may not control sessions")


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


def test_a_run_and_a_second_terminal_need_none_of_the_names_of_linux(tmp_path: Path) -> None:
    """Nor /proc, but for psutil."""
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--json", "hi"], command=WITHOUT_LINUX, cwd=tmp_path)
    running.until("tool_start")
    listed = Running(["ps", "-q"], command=WITHOUT_LINUX).end()
    assert (listed.exit_code, listed.stderr) == (0, "")
    assert listed.stdout.decode().split() == [running.until("init")["session_id"]]
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
