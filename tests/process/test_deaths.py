"""SIGKILL of each of our own processes while a tool or the model works (A6, G2, L2, R84), and what a death before any
text costs. Two at once, stops, crashes and the other states of a run: test_kill_matrix.py."""

from __future__ import annotations

import os
import signal

import pytest
from support.chain import MEMBERS, Member, members
from support.command import Running
from support.kill_cell import Cell, Hit, State, expected, try_cell

from haltline.protocol.events import Counters


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
