"""A stop in the first moments, and with members of the chain that somebody stopped (F1, F7)."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.chain import members, seconds_until_gone
from support.command import Running

SLACK = 3


@pytest.mark.parametrize("after_ms", [0, 30, 60, 90, 120, 160, 200])
def test_an_interrupt_while_everything_starts_is_over_at_once(after_ms: int) -> None:
    """Whatever it meets: nothing yet (death by the signal), the imports, the supervisor, the workers."""
    running = Running(["run", "-m", "demo/slow", "--json", "hi"])
    waits = time.monotonic() + after_ms / 1000
    while time.monotonic() < waits:  # the moment is the subject here, not a wait for something
        os.sched_yield()
    began = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert seconds_until_gone(began, 2 * SLACK) < SLACK
    assert ended.exit_code in (130, -signal.SIGINT)
    if ended.exit_code == 130:
        assert ended.result["reason"] == "cancelled"


@pytest.mark.ci
@pytest.mark.timeout(120)
def test_a_stopped_supervisor_is_ended_by_its_client() -> None:
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--json", "hi"])
    running.until("tool_start")
    pids = members(running)
    os.kill(pids["supervisor"], signal.SIGSTOP)
    os.kill(pids["guard"], signal.SIGSTOP)
    running.process.send_signal(signal.SIGINT)
    ended = running.end(within_s=90)
    assert (ended.result["reason"], ended.exit_code) == ("worker_failed", 79)
    seconds_until_gone(time.monotonic(), 2 * SLACK)
