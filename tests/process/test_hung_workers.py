"""Workers that hang: found by a cancel within 2 s (F4), and without one by the supervisor itself (L6)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Literal

import pytest
from support.chain import members, seconds_until_gone
from support.command import COMMAND, Event, Running
from support.conversation import MISBEHAVING

HUNG_STOP_S = 2.3
"""Acknowledgement 2.0 s, then kill and sweep."""
SLACK = 3


def is_delta(event: Event) -> bool:
    return event["type"] == "message" and event["role"] == "assistant" and bool(event["delta"])


def is_ready(role: str) -> Callable[[Event], bool]:
    return lambda event: (event["type"], event.get("role"), event.get("state")) == ("worker", role, "ready")


def test_a_stopped_llm_worker_is_killed_by_a_cancel() -> None:
    running = Running(["run", "-m", "demo/slow", "--json", "hi"])
    running.until(is_delta)
    os.kill(members(running)["llm"], signal.SIGSTOP)
    began = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert seconds_until_gone(began, HUNG_STOP_S * SLACK) >= 2.0  # it had its two seconds
    assert ended.exit_code == 130
    assert [event["role"] for event in ended.of("worker") if event["state"] == "killed"] == ["llm"]
    steps = [(event["phase"], event["role"], event["rung"]) for event in ended.of("cancel")]
    assert steps == [
        ("requested", None, None),
        ("acknowledged", "tool", None),
        ("done", "llm", "worker_kill"),
        ("done", "tool", "ack"),
    ]


def test_a_stopped_tool_worker_takes_its_tree_with_it() -> None:
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--json", "hi"])
    running.until("tool_start")
    os.kill(members(running)["tool"], signal.SIGSTOP)
    began = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    seconds_until_gone(began, HUNG_STOP_S * SLACK)
    receipt = ended.receipt
    rung = "pidns" if ended.of("init")[0]["isolation"] == "pidns" else "worker_kill"
    assert (ended.exit_code, receipt.rung, receipt.survivors) == (130, rung, 0)
    assert receipt.killed > 0
    assert [event["status"] for event in ended.of("tool_result")] == ["outcome_unknown"]


class Hung:
    """A run of which one worker's loop was made to hang: stopped, or by a vice (support/misbehaving_start.py)."""

    def __init__(self, how: str, role: Literal["llm", "tool"], model: str, begun: Callable[[Event], bool]) -> None:
        self.name = f"{how}, {role} worker, {model}"
        self.role = role
        arguments = ["run", "-m", f"demo/{model}", "-y", "--json", "--tool-timeout", "600", "hi"]
        self.running = Running(arguments, command=COMMAND if how == "stop" else (*MISBEHAVING, how))
        self.running.until(begun)
        self.pid = members(self.running)[role]
        os.kill(self.pid, signal.SIGSTOP if how == "stop" else signal.SIGUSR1)

    def life(self, within_s: float) -> list[tuple[object, object]]:
        """What is told of the worker, from the first suspicion until there is a new one, or until the run is over."""

        def over(event: Event) -> bool:
            return event["type"] == "result" or (
                (event["type"], event.get("role"), event.get("state")) == ("worker", self.role, "ready")
                and event["pid"] != self.pid
            )

        self.running.until(over, within_s)
        told = [event for event in self.running.events if (event["type"], event.get("role")) == ("worker", self.role)]
        return [(event["state"], event["reason"]) for event in told if event["reason"] is not None]


SILENT = "no heartbeat for 10 s while work was due"
KILLED = f"{SILENT}; asked to stop, it did not"
FOUND_S = 10.0 + 2.0 + 1.0
"""Silence, acknowledgement, kill and sweep."""


@pytest.mark.ci
def test_a_hung_worker_is_found_without_a_cancel_and_replaced() -> None:
    """L6, L2: whatever holds its loop, mid-stream and mid-tool. All at once: each takes 12 s of waiting."""
    ways = ("stop", "hangs", "blocks")
    after_text = [Hung(how, "llm", "slow", is_delta) for how in ways]
    before_text = [Hung(how, "llm", "hang_first", is_ready("llm")) for how in ways]
    mid_tool = [Hung(how, "tool", "tool_tree", lambda event: event["type"] == "tool_start") for how in ways]
    for hung in (*after_text, *before_text, *mid_tool):
        replaced = [] if hung in after_text else [("replaced", KILLED)]
        assert hung.life(FOUND_S * SLACK) == [("stalled", SILENT), ("killed", KILLED), *replaced], hung.name
    for hung in after_text:
        ended = hung.running.end()
        assert (ended.result["kind"], ended.exit_code) == ("stream_truncated", 76), hung.name
        assert ended.result["text"] == ended.text != ""
    for hung in before_text:
        (retry,) = [event for event in hung.running.events if event["type"] == "retry"]
        assert retry["kind"] in ("network", "stream_truncated")
        hung.running.process.send_signal(signal.SIGINT)
        ended = hung.running.end()
        assert (ended.exit_code, ended.counters.worker_restart, ended.receipt.survivors) == (130, 1, 0), hung.name
    for hung in mid_tool:
        ended = hung.running.end()
        assert [event["status"] for event in ended.of("tool_result")] == ["outcome_unknown"], hung.name
        assert (ended.result["reason"], ended.exit_code, ended.counters.worker_restart) == ("completed", 0, 1)


def test_a_stopped_zygote_hides_no_death_of_a_worker() -> None:
    """L1: known at once; the zygote whose word is missing is killed, and its children are swept by the supervisor."""
    running = Running(["run", "-m", "demo/slow", "--json", "hi"])
    running.until(is_delta)
    pids = members(running)
    os.kill(pids["zygote"], signal.SIGSTOP)
    os.kill(pids["llm"], signal.SIGKILL)
    began = time.monotonic()
    ended = running.end()
    assert (ended.result["reason"], ended.result["kind"], ended.exit_code) == ("failed", "stream_truncated", 76)
    seconds_until_gone(began, 2 * SLACK)
