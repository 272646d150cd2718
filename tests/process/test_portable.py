"""What ends a tool where no kernel keeps its orphans for us, and what is left then.

The tool worker is no subreaper here, so an orphan of its tools comes to this process, which ends nothing before it has
counted it: what is gone, the fallback alone has ended. Every test runs with both tables of processes, /proc and psutil.
docs/decisions/0005-the-portable-fallback.md has the reasons.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import survivors, vices
from support.tool_worker import ToolWorker

from haltline.protocol import deaths, portable, procfs
from haltline.protocol.messages import CancelDone


@pytest.fixture(params=[pytest.param("proc", marks=pytest.mark.ci), "psutil"])
def table(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def worker(tmp_path: Path, table: str) -> Iterator[ToolWorker]:
    environment = {"HALTLINE_PORTABLE": "1" if table == "psutil" else ""}
    with ToolWorker(tmp_path, isolation="groups", environment=environment) as made:
        yield made
    assert made.errors == ""


def everything_but(worker: ToolWorker) -> list[survivors.Survivor]:
    """All that is alive below this process, wherever it hangs, without the worker itself."""
    return [one for one in survivors.descendants(os.getpid()) if one.pid != worker.pid]


def left_after(done: CancelDone, worker: ToolWorker) -> list[str]:
    """The command lines of what the stop has left, which this ends."""
    assert done.survivors == 0  # none that it knew of
    left = survivors.settle(everything_but(worker))
    survivors.end(lambda: everything_but(worker))
    return [one.command for one in left]


ENDED: dict[str, tuple[str, ...]] = {
    # vice: arguments
    "polite_tree": (),
    "ignores_term": (),
    "cleans_up": ("marker",),
    "own_session": (),
    "nohup": (),
    "stops_itself": (),
    "leaderless": (),
    "leader_first": (),
    "headless": (),
    "holds_pipe": ("stay",),
    "floods_output": (),
    "fork_storm": (),
}


@pytest.mark.ci
@pytest.mark.parametrize("vice", ENDED)
def test_a_stop_without_subreaper_leaves_nothing_of_a_vice_alive(worker: ToolWorker, vice: str) -> None:
    """G1."""
    worker.vice(vice, *ENDED[vice])
    alive = everything_but(worker)
    done = worker.stopped(grace_s=0.2)
    assert left_after(done, worker) == []
    assert done.killed >= 1
    assert done.killed >= len(alive) or vice == "fork_storm"  # whose processes come and go


@pytest.mark.ci
def test_three_hundred_processes_are_ended_at_once(worker: ToolWorker) -> None:
    """G1, with the fallback."""
    worker.vice("crowd", "300")
    done = worker.stopped(grace_s=0.0)
    assert left_after(done, worker) == []
    assert done.killed >= 301


@pytest.mark.parametrize(
    ("parent", "environment", "left"),
    [
        pytest.param("child", "kept", [], id="found by its session's leader, its parent and its cookie"),
        pytest.param("child", "empty", [], id="found by its parent; remembered when that has gone"),
        pytest.param("orphan", "kept", [], id="found by its cookie"),
        pytest.param("orphan", "empty", ["sleep 25"], id="not found"),
    ],
)
def test_what_is_found_without_a_subreaper_and_what_is_not(
    worker: ToolWorker, parent: str, environment: str, left: list[str]
) -> None:
    """The limit that the README names: a session of its own, no parent, no environment."""
    worker.vice("leaves", parent, environment)
    done = worker.stopped(grace_s=0.3)
    assert left_after(done, worker) == left


@pytest.mark.ci
def test_with_a_subreaper_the_same_is_found(tmp_path: Path) -> None:
    """What is compared with: the table above says something about the fallback, not about the program."""
    with ToolWorker(tmp_path) as worker:
        worker.vice("leaves", "orphan", "empty")
        assert left_after(worker.stopped(grace_s=0.2), worker) == []


@pytest.mark.ci
@pytest.mark.parametrize("vice", ["own_session", "ignores_term", "fork_storm"])
def test_what_a_finished_call_left_behind_ends_with_it(worker: ToolWorker, vice: str) -> None:
    """G1, G4: the first process has ended, what it started lives on."""
    outcome = worker.ended(worker.start("shell", command=f"{vices.command(vice)} & head -c 1 $READY"))
    assert outcome.status == "done"
    assert survivors.settle(everything_but(worker)) == []


@pytest.mark.ci
def test_a_background_job_does_not_hold_the_call_up(worker: ToolWorker) -> None:
    """G4."""
    before = time.monotonic()
    outcome = worker.run("shell", command="sleep 300 & echo done")
    assert time.monotonic() - before < 5
    assert (outcome.status, outcome.text) == ("done", "done\n[exit code 0]")
    assert survivors.settle(everything_but(worker)) == []


@pytest.mark.ci
def test_the_limit_physically_ends_a_tree(worker: ToolWorker) -> None:
    """G5."""
    assert worker.ended(worker.vice("own_session", timeout_s=0.5)).status == "timed_out"
    assert survivors.settle(everything_but(worker)) == []


@pytest.mark.ci
def test_a_worker_that_is_told_to_go_takes_its_tools_along(tmp_path: Path, table: str) -> None:
    """G2, the worker's own part: SIGTERM is as the supervisor's death."""
    environment = {"HALTLINE_PORTABLE": "1" if table == "psutil" else ""}
    with ToolWorker(tmp_path, isolation="groups", environment=environment) as worker:
        worker.vice("leaves", "orphan", "kept")
        worker.process.terminate()
        worker.process.wait(10)
        left = survivors.settle(everything_but(worker))
    assert left == []


def test_nothing_is_ended_that_is_not_the_tools(worker: ToolWorker) -> None:
    """G3: neighbours of the same user, younger than the worker, one with another chain's cookie."""
    other = {**os.environ, "HALTLINE_COOKIE": "another.tool-1 hl-tool.tool-5e551040-1-00"}
    neighbours = [
        subprocess.Popen(["sleep", "25"], start_new_session=True),
        subprocess.Popen(["sleep", "25"], env=other, start_new_session=True),
        subprocess.Popen(["sleep", "25"], env={}, start_new_session=True),
    ]
    try:
        worker.vice("leaves", "orphan", "kept")
        assert worker.stopped(grace_s=0.0).survivors == 0
        assert [one.poll() for one in neighbours] == [None, None, None]
    finally:
        for one in neighbours:
            one.kill()
            one.wait()


def test_both_tables_say_the_same_of_a_process() -> None:
    """Children, sessions, groups and states; the start is in another unit."""
    with subprocess.Popen(["sleep", "25"], start_new_session=True, env={"A": "b=c", "HALTLINE_COOKIE": "x.y"}) as child:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        for read in (procfs.read_process, portable.read_process):
            said = read(child.pid)
            assert said is not None
            assert (said.parent, said.group, said.session) == (os.getpid(), child.pid, child.pid)
            assert (said.stopped, said.alive) == (True, True)
        for look in (procfs, portable):
            assert child.pid in look.children(os.getpid())
            assert child.pid in look.all_pids()
            assert [look.variable(child.pid, name) for name in ("A", "HALTLINE_COOKIE", "B")] == ["b=c", "x.y", ""]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        for read in (procfs.read_process, portable.read_process):
            said = read(child.pid)
            assert said is not None
            assert not said.alive
    for read in (procfs.read_process, portable.read_process):
        assert read(child.pid) is None


def test_a_descriptor_never_stands_for_whoever_had_its_number_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """G3."""
    monkeypatch.setattr(deaths, "PORTABLE", True)
    with subprocess.Popen(["sleep", "25"]) as before, subprocess.Popen(["true"]) as gone:
        gone.wait()
        descriptor = deaths.came(1_000_000, before.pid)
        assert deaths.kill(deaths.came(descriptor, gone.pid)) is False
        assert before.poll() is None
        before.kill()


def test_on_linux_nobody_imports_psutil() -> None:
    """It would cost a start 23 ms."""
    rooms = "cli.launcher, haltline.cli.roles, haltline.supervisor.guard, haltline.supervisor.main"
    body = f"import sys, haltline.{rooms}, haltline.supervisor.runtime, haltline.worker.tool.main, haltline.cli.main"
    done = subprocess.run(
        [sys.executable, "-c", f"{body}; print('psutil' in sys.modules, len(sys.modules) > 100)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False True\n"
