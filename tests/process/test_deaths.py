"""SIGKILL of each of our own processes while a tool or the model works (A6, G2, L2, R84), and what a death before any
text costs. Two at once, stops, crashes and the other states of a run: test_kill_matrix.py. And a worker that has to end
because it cannot see any more what it should end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from support import survivors
from support.asking_gateway import asking
from support.chain import MEMBERS, Member, members
from support.command import Running
from support.kill_cell import Cell, Hit, State, expected, try_cell

from haltline.protocol.events import Counters

BLINDING = "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (4, 4))"
"""For a tool's foreground process: its worker can open nothing any more, /proc included."""


@pytest.mark.parametrize("victim", MEMBERS)
@pytest.mark.parametrize("state", ["tool", "text"])
def test_one_death(state: State, victim: Member) -> None:
    """Nothing of the run is left, and whoever lives says why; or the run goes on until a Ctrl+C ends it."""
    cell = Cell(state, (Hit(victim, "KILL"),))
    assert try_cell(cell).said in expected(cell)


def test_an_llm_worker_that_dies_before_any_text_costs_a_retry() -> None:
    """A6, L2."""
    running = Running(["run", "-m", "demo/hang_first", "--retry", "interactive", "-y", "--json", "hi"])
    running.until("init")
    os.kill(members(running)["llm"], signal.SIGKILL)
    running.until(lambda event: (event["type"], event.get("state")) == ("worker", "replaced"))
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    (error,) = ended.of("error")
    assert (error["kind"] in ("network", "stream_truncated"), error["handling"]) == (True, "retry")  # by the headers
    assert [event["attempt"] for event in ended.of("retry")] == [2]
    assert (ended.exit_code, ended.counters) == (130, Counters(worker_restart=1))


@pytest.mark.parametrize("isolation", ["subreaper", pytest.param("groups", marks=pytest.mark.ci)])
def test_a_tool_that_blinds_its_worker_leaves_no_process_behind(tmp_path: Path, isolation: str) -> None:
    """G1, L2: the worker that sees nobody does not say that nobody is there. The session goes on with another one."""
    with asking() as gateway:
        gateway.command = f"setsid sleep 601 & exec {sys.executable} -S -c '{BLINDING}'"
        running = _run(gateway.base_url, isolation, tmp_path)
        result = running.until("tool_result")
        left = [process for process in survivors.descendants(os.getpid()) if process.command == "sleep 601"]
        alive = survivors.settle(left)
        gateway.go_on()
        ended = running.end()
    assert (result["status"], alive) == ("outcome_unknown", [])
    assert (ended.result["reason"], ended.counters) == ("completed", Counters(worker_restart=1))


@pytest.mark.parametrize("isolation", ["subreaper", pytest.param("groups", marks=pytest.mark.ci)])
def test_the_receipt_of_a_stop_counts_what_a_blinded_worker_could_not_see(tmp_path: Path, isolation: str) -> None:
    """F1: it said that nothing had to be ended, while two processes lived."""
    os.mkfifo(tmp_path / "blind")
    with asking() as gateway:
        then = 'open("blind", "w"); os.read(os.pipe()[0], 1)'
        gateway.command = f"setsid sleep 601 & exec {sys.executable} -S -c '{BLINDING}; {then}'"
        running = _run(gateway.base_url, isolation, tmp_path)
        running.until("tool_start")
        (tmp_path / "blind").read_bytes()
        running.process.send_signal(signal.SIGINT)
        ended = running.end()
    assert (ended.exit_code, ended.receipt.killed, ended.receipt.survivors) == (130, 2, 0)


def _run(base_url: str, isolation: str, workspace: Path) -> Running:
    options = ("-m", "any", "--base-url", base_url, "-y", "--isolation", isolation, "--json")
    return Running(["run", *options, "hi"], cwd=workspace)
