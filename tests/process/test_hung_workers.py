"""Workers that hang: found by a cancel within 2 s (F4), and without one by the supervisor itself (L6)."""

from __future__ import annotations

import os
import signal
import time

import pytest
from support.chain import members, seconds_until_gone
from support.command import Event, Running

HUNG_STOP_S = 2.3
"""Acknowledgement 2.0 s, then kill and sweep."""
SLACK = 3


def is_delta(event: Event) -> bool:
    return event["type"] == "message" and event["role"] == "assistant" and bool(event["delta"])


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
    assert (ended.exit_code, receipt.rung, receipt.survivors) == (130, "worker_kill", 0)
    assert receipt.killed > 0
    assert [event["status"] for event in ended.of("tool_result")] == ["outcome_unknown"]


@pytest.mark.ci
@pytest.mark.parametrize(("model", "began", "role"), [("slow", "message", "llm"), ("tool_tree", "tool_start", "tool")])
def test_a_hung_worker_is_found_without_a_cancel(model: str, began: str, role: str) -> None:
    running = Running(["run", "-m", f"demo/{model}", "-y", "--json", "--tool-timeout", "600", "hi"])
    running.until(is_delta if model == "slow" else began)
    os.kill(members(running)[role], signal.SIGSTOP)  # type: ignore[index]
    running.until(
        lambda event: event["type"] == "worker" and event["state"] == "killed" and event["role"] == role, within_s=36
    )
    running.process.send_signal(signal.SIGINT)
    running.end()


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
