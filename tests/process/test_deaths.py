"""SIGKILL of our own processes, one or two at once, with a nasty tree running (G2, L2, R84).

After the deaths nobody helps: either nothing of the run is left, or the run goes on under the members that live.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time

import pytest
from conftest import Samples
from support.chain import MEMBERS, Member, members, seconds_until_gone
from support.command import Ended, Running

SLACK = 3
"""Times that a requirement states are asserted at three times their value."""

PAIRS = tuple(itertools.combinations(MEMBERS, 2))


def a_run(model: str) -> Running:
    return Running(["run", "-m", f"demo/{model}", "-y", "--json", "hi"])


def kill(pids: dict[Member, int], victims: tuple[Member, ...]) -> float:
    """The moment of the last kill."""
    for victim in victims:
        os.kill(pids[victim], signal.SIGKILL)
    return time.monotonic()


def goes_on(victims: tuple[Member, ...], worker: Member) -> bool:
    """Whether the run waits for a person after that: neither its ends nor the worker at work are dead."""
    return not {"client", "supervisor", worker} & set(victims)


def nothing_is_left_after(running: Running, victims: tuple[Member, ...], *, worker: Member) -> Ended:
    """Kill, interrupt where the run goes on, and see that nothing is alive in time."""
    since = kill(members(running), victims)
    if goes_on(victims, worker):
        running.process.send_signal(signal.SIGINT)
        since = time.monotonic()
    elif "client" not in victims and "supervisor" not in victims:
        ended = running.end()
        seconds_until_gone(time.monotonic(), 2 * SLACK)
        return ended
    seconds_until_gone(since, 2 * SLACK)
    return running.end()


@pytest.mark.parametrize("victim", MEMBERS)
def test_one_death_with_a_tree_running(victim: Member) -> None:
    running = a_run("tool_tree")
    running.until("tool_start")
    ended = nothing_is_left_after(running, (victim,), worker="tool")
    match victim:
        case "client":
            assert ended.exit_code == -signal.SIGKILL
        case "supervisor":
            assert (ended.result["reason"], ended.exit_code) == ("worker_failed", 79)
        case "guard" | "zygote" | "llm":
            assert (ended.result["reason"], ended.exit_code) == ("cancelled", 130)
        case "tool":
            assert next(event["status"] for event in ended.of("tool_result")) == "outcome_unknown"
            assert ended.exit_code == 0


@pytest.mark.parametrize("victim", MEMBERS)
def test_one_death_with_a_stream_open(victim: Member) -> None:
    running = a_run("slow")
    running.until(lambda event: event["type"] == "message" and bool(event["delta"]))
    ended = nothing_is_left_after(running, (victim,), worker="llm")
    if victim == "llm":  # after text it is surfaced, with the text kept (A6)
        assert (ended.result["reason"], ended.result["kind"], ended.exit_code) == ("failed", "stream_truncated", 76)
        assert ended.text == ended.result["text"] != ""


def test_two_deaths_with_a_tree_running(samples: Samples) -> None:
    chosen = random.Random(20).sample(PAIRS, samples(3, len(PAIRS), len(PAIRS)))
    for victims in chosen:
        running = a_run("tool_tree")
        running.until("tool_start")
        nothing_is_left_after(running, victims, worker="tool")
