"""SIGKILL of our own processes, one or two at once, while a tool or the model works (A6, G2, L2, R84).

After the deaths nobody helps: either nothing of the run is left, and whoever lives says why; or the run goes on under
the members that live, until a Ctrl+C ends it.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator

import msgspec
import pytest
from support.chain import MEMBERS, Member, members, seconds_until_gone
from support.command import Ended, Event, Running

from haltline.protocol.events import Counters

GONE_S = 2.0
"""G2: after the deaths, or after the Ctrl+C that followed them."""
SLACK = 3
"""Times that a requirement states are asserted at three times their value."""

Victims = tuple[Member, ...]


class Work(msgspec.Struct, frozen=True):
    """What goes on when somebody dies: a scenario of the embedded gateway, and the worker that is busy."""

    model: str
    worker: Member

    def begun(self, event: Event) -> bool:
        if self.worker == "tool":
            return event["type"] == "tool_start"
        return event["type"] == "message" and bool(event["delta"])


TREE = Work("tool_tree", "tool")
STREAM = Work("slow", "llm")


class Said(msgspec.Struct, frozen=True):
    """How the command ended; the reason is None where nobody was left to give one."""

    exit_code: int
    reason: str | None = None
    kind: str | None = None
    calls: tuple[str, ...] = ()
    """The statuses of tool results."""


def goes_on(victims: Victims, work: Work) -> bool:
    """Whether the run waits for a person after that: neither its ends nor the worker at work are dead."""
    return not {"client", "supervisor", work.worker} & set(victims)


def expected(victims: Victims, work: Work) -> Said:
    """The first that applies."""
    if "client" in victims:
        return Said(-signal.SIGKILL)
    if "supervisor" in victims:
        return Said(79, "worker_failed")
    if work.worker not in victims:
        return Said(130, "cancelled", calls=("cancelled_killed",) if work == TREE else ())
    if work == TREE:  # the model is told, and concludes
        return Said(0, "completed", calls=("outcome_unknown",))
    return Said(76, "failed", "stream_truncated")


def said(ended: Ended) -> Said:
    if ended.exit_code < 0:
        return Said(ended.exit_code)
    result = ended.result
    kind = None if result["kind"] is None else str(result["kind"])
    calls = tuple(str(event["status"]) for event in ended.of("tool_result"))
    return Said(ended.exit_code, str(result["reason"]), kind, calls)


def after_the_death_of(victims: Victims, work: Work) -> Ended:
    """Kill, press Ctrl+C where the run goes on, and see that nothing is alive in time."""
    running = Running(["run", "-m", f"demo/{work.model}", "-y", "--json", "hi"])
    running.until(work.begun)
    pids = members(running)
    for victim in victims:
        os.kill(pids[victim], signal.SIGKILL)
    since = time.monotonic()
    if goes_on(victims, work):
        running.process.send_signal(signal.SIGINT)
    elif not {"client", "supervisor"} & set(victims):  # it ends by itself, in its own time
        ended = running.end()
        seconds_until_gone(time.monotonic(), GONE_S * SLACK)
        return ended
    seconds_until_gone(since, GONE_S * SLACK)
    return running.end()


@pytest.mark.parametrize("victim", MEMBERS)
@pytest.mark.parametrize("work", [TREE, STREAM], ids=lambda work: work.model)
def test_one_death(work: Work, victim: Member) -> None:
    ended = after_the_death_of((victim,), work)
    assert said(ended) == expected((victim,), work)
    if work == STREAM and ended.exit_code > 0:  # what was shown is kept (A6)
        assert ended.text == ended.result["text"] != ""


def test_an_llm_worker_that_dies_before_any_text_costs_a_retry() -> None:
    """A6, L2."""
    running = Running(["run", "-m", "demo/hang_first", "--retry", "interactive", "-y", "--json", "hi"])
    running.until("init")
    os.kill(members(running)["llm"], signal.SIGKILL)
    running.until(lambda event: (event["type"], event.get("state")) == ("worker", "replaced"))
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert [(event["kind"], event["handling"]) for event in ended.of("error")] == [("network", "retry")]
    assert [event["attempt"] for event in ended.of("retry")] == [2]
    assert (ended.exit_code, ended.counters) == (130, Counters(worker_restart=1))


def rounds() -> Iterator[tuple[Victims, ...]]:
    """Every pair once, in five rounds of three pairs in which every member dies once (a round robin)."""
    fixed, *ring = MEMBERS
    for _ in range(len(ring)):
        yield ((fixed, ring[0]), (ring[1], ring[4]), (ring[2], ring[3]))
        ring.append(ring.pop(0))


def two_deaths(every_time: int) -> pytest.MarkDecorator:
    """A test for each pair; those of the round `every_time` are tried in every run, the others with --ci."""
    cases = [
        pytest.param(pair, id="+".join(pair), marks=() if number == every_time else pytest.mark.ci)
        for number, pairs in enumerate(rounds())
        for pair in pairs
    ]
    return pytest.mark.parametrize("victims", cases)


def test_the_rounds_hold_every_pair_once() -> None:
    pairs = [frozenset(pair) for pairs in rounds() for pair in pairs]
    assert len(pairs) == 15
    assert set(pairs) == {frozenset(pair) for pair in itertools.combinations(MEMBERS, 2)}


@two_deaths(every_time=0)
def test_two_deaths_with_a_tree_running(victims: Victims) -> None:
    assert said(after_the_death_of(victims, TREE)) == expected(victims, TREE)


@two_deaths(every_time=1)
def test_two_deaths_with_a_stream_open(victims: Victims) -> None:
    assert said(after_the_death_of(victims, STREAM)) == expected(victims, STREAM)
