"""The process that starts workers dies, hangs, or loses its spare: what was asked for comes, once, and whoever lives
does not notice (G1, G2, L2, L3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext

import msgspec
import pytest
from conftest import Samples
from support.chain import members, seconds_until_gone
from support.checkout import ROOT
from support.command import Event, Running
from support.spawning import named

from haltline.protocol import times
from haltline.protocol.events import Counters
from haltline.protocol.ids import WorkerId
from haltline.supervisor import zygote_messages
from haltline.supervisor.spawner import DEADLY, GONE, WorkerProcess, patience_s

SLACK = 3


def on_stage(body: str, *, log: str | None = None) -> object:
    """Play `body` (support/spawning.py); what it returned. `log`: a file for the errors of all, instead of ours."""
    program = "import sys; from support.spawning import run; print(run(sys.stdin.read()))"
    with nullcontext() if log is None else open(log, "ab") as errors:
        played = subprocess.run(
            [sys.executable, "-c", program],
            input=body.encode(),
            stdout=subprocess.PIPE,
            stderr=errors,
            check=True,
            timeout=50,
            env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        )
    return msgspec.json.decode(played.stdout)


def spare_of(zygote_pid: int) -> int:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for pid in named("spare", zygote_pid):
            return pid
    raise AssertionError("no spare")


def is_ready(role: str, besides: int) -> Callable[[Event], bool]:
    return lambda event: (
        (event["type"], event.get("role"), event.get("state")) == ("worker", role, "ready") and event["pid"] != besides
    )


def is_delta(event: Event) -> bool:
    return event["type"] == "message" and event["role"] == "assistant" and bool(event["delta"])


# A run


@pytest.mark.parametrize("spare_died_before", [False, pytest.param(True, marks=pytest.mark.ci)])
def test_a_worker_lost_after_the_zygote_is_replaced_from_the_spare(*, spare_died_before: bool) -> None:
    """L2: before text another attempt is made, by a worker that the spare started."""
    running = Running(["run", "-m", "demo/hang_first", "--retry", "interactive", "-y", "--json", "hi"])
    running.until("init")
    pids = members(running)
    spare = spare_of(pids["zygote"])
    if spare_died_before:
        os.kill(spare, signal.SIGKILL)
        while spare_of(pids["zygote"]) == spare:
            pass
    os.kill(pids["zygote"], signal.SIGKILL)
    os.kill(pids["llm"], signal.SIGKILL)
    running.until(is_ready("llm", besides=pids["llm"]))
    began = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    seconds_until_gone(began, times.DEATH_S * SLACK)
    assert [event["handling"] for event in ended.of("error")] == ["retry"]
    assert (ended.exit_code, ended.counters, ended.receipt.survivors) == (130, Counters(worker_restart=1), 0)
    assert ended.stderr == "stopping\n"


@pytest.mark.ci
def test_a_tool_worker_lost_with_the_zygote_is_replaced_and_the_gateway_lives_on() -> None:
    """L2: the model is told, and its next request is served by the embedded gateway, another child of the zygote."""
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--json", "hi"])
    running.until("tool_start")
    pids = members(running)
    spare_of(pids["zygote"])
    os.kill(pids["zygote"], signal.SIGKILL)
    os.kill(pids["tool"], signal.SIGKILL)
    ended = running.end()
    seconds_until_gone(time.monotonic(), times.DEATH_S * SLACK)
    assert [event["status"] for event in ended.of("tool_result")] == ["outcome_unknown"]
    assert (ended.result["reason"], ended.exit_code, ended.counters) == ("completed", 0, Counters(worker_restart=1))


@pytest.mark.ci
def test_a_run_that_needs_a_worker_when_zygote_and_spare_are_dead_says_so_in_one_line() -> None:
    """L3."""
    running = Running(["run", "-m", "demo/hang_first", "-y", "--json", "hi"])
    running.until("init")
    pids = members(running)
    spare = spare_of(pids["zygote"])
    os.kill(pids["zygote"], signal.SIGSTOP)  # so that it does not replace it
    os.kill(spare, signal.SIGKILL)
    os.kill(pids["zygote"], signal.SIGKILL)
    os.kill(pids["llm"], signal.SIGKILL)
    ended = running.end()
    seconds_until_gone(time.monotonic(), times.DEATH_S * SLACK)
    assert (ended.result["reason"], ended.exit_code) == ("worker_failed", 79)
    assert ended.result["message"] == f"the LLM worker could not be started, 3 times: {GONE}"
    assert ended.stderr == ""


@pytest.mark.ci
@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGSEGV])
def test_a_zygote_that_owes_nothing_is_not_missed(sent: signal.Signals) -> None:
    """Stopped, it holds nothing up but its own end; and a crash leaves no file and no word on the terminal."""
    running = Running(["run", "-m", "demo/slow", "--json", "hi"])
    running.until(is_delta)
    os.kill(members(running)["zygote"], sent)
    seen = len([event for event in running.events if is_delta(event)])
    running.until(lambda event: len([one for one in running.events if is_delta(one)]) > seen and is_delta(event))
    began = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    seconds_until_gone(began, (times.ZYGOTE_LEAVE_S + times.DEATH_S) * SLACK)
    assert (ended.exit_code, ended.receipt.survivors, ended.stderr) == (130, 0, "stopping\n")


def test_a_stopped_zygote_that_is_asked_for_a_worker_is_found_and_replaced() -> None:
    """L2: the death that it does not report is one of what it owes, the worker that follows another."""
    running = Running(["run", "-m", "demo/hang_first", "--retry", "interactive", "-y", "--json", "hi"])
    running.until("init")
    pids = members(running)
    spare_of(pids["zygote"])
    os.kill(pids["zygote"], signal.SIGSTOP)
    os.kill(pids["llm"], signal.SIGKILL)
    running.until(is_ready("llm", besides=pids["llm"]))
    running.process.send_signal(signal.SIGINT)
    assert (running.end().exit_code, running.events[-1]["reason"]) == (130, "cancelled")


# What was asked for


def test_what_was_asked_of_a_dying_zygote_is_started_once_and_who_lives_does_not_notice(samples: Samples) -> None:
    """Killed at another moment each time: before it has read the requests, between two of them, after all."""
    for turns in range(0, samples(quick=3, ci=40, exhaustive=600) * 3, 3):
        said = on_stage(
            f"""
            on.spawn("living")
            await on.until("spawned", "living")
            zygote, spare = await on.zygote_with_spare()
            on.spawn("a", "b", "c", "d")
            await on.turns({turns})
            os.kill(zygote, signal.SIGKILL)
            on.spawn("e")
            await on.until("spawned", "a", "b", "c", "d", "e")
            begun = await on.begun(6)
            zygote, _ = await on.zygote_with_spare(zygote)
            assert zygote == spare
            said = [said for said in on.told if said[0] != "spawned"]
            await on.kill("living", "a", "b", "c", "d", "e")
            return begun, said
            """
        )
        assert said == [6, []], f"killed after {turns} turns of the loop"


def test_five_deaths_leave_the_supervisor_as_it_was() -> None:
    """Descriptors, children, and one zygote with one spare."""
    said = on_stage(
        """
        on.spawn("living")
        await on.until("spawned", "living")
        zygote, spare = await on.zygote_with_spare()
        before = len(os.listdir("/proc/self/fd"))
        for number in range(5):
            os.kill(zygote, signal.SIGKILL)
            on.spawn(f"w{number}")
            await on.until("spawned", f"w{number}")
            await on.kill(f"w{number}")
            zygote, spare = await on.zygote_with_spare(zygote)
        after = len(os.listdir("/proc/self/fd"))
        children = sorted(processes.children(os.getpid()))
        await on.kill("living")
        return after - before, len(children), zygote in children
        """
    )
    assert said == [0, 2, True]  # the zygote, and the worker that its first predecessor had started


def test_a_request_over_which_two_zygotes_die_is_a_failed_start() -> None:
    """L3: it would kill every zygote there ever is; the third serves the others. A role that nobody knows stands for
    whatever a zygote may not survive."""
    said = on_stage(
        """
        zygote, spare = await on.zygote_with_spare()
        on.spawn("deadly", role="unheard of")
        on.spawn("other")
        words = await on.until("exited", "deadly")
        await on.until("spawned", "other")
        await on.kill("other")
        return words
        """
    )
    assert said == DEADLY


def test_a_fork_that_the_system_refuses_is_a_failed_start_and_no_death() -> None:
    """L3: in its own words; the next one may succeed."""
    said = on_stage(
        """
        zygote, _ = await on.zygote_with_spare()
        on.refuse_forks(True)
        on.spawn("refused")
        words = await on.until("exited", "refused")
        await on.until("swept", "refused")
        on.refuse_forks(False)
        on.spawn("next")
        await on.until("spawned", "next")
        await on.kill("next")
        assert (await on.zygote_with_spare())[0] == zygote
        return words
        """
    )
    assert said == "the system refuses to start another process (see ulimit -u): Resource temporarily unavailable"


def test_last_words_that_were_said_before_the_zygote_died_are_heard() -> None:
    """The kernel tells of unread requests before it hands out the reports."""
    said = on_stage(
        """
        zygote, _ = await on.zygote_with_spare()
        on.spawn("failing", role="fails")
        await on.until("spawned", "failing")
        while processes.read_process(on.pids["failing"]):  # until the zygote has collected it, which it has said
            pass
        os.kill(zygote, signal.SIGSTOP)
        on.spawn("other")
        os.kill(zygote, signal.SIGKILL)
        await on.until("spawned", "other")
        await on.kill("other")
        return await on.until("exited", "failing")
        """
    )
    assert said == "it cannot be done"


def test_last_words_for_which_the_log_has_no_room_are_told_and_the_zygote_lives_on() -> None:
    said = on_stage(
        """
        zygote, _ = await on.zygote_with_spare()
        on.spawn("failing", role="fails")
        words = await on.until("exited", "failing")
        await on.until("swept", "failing")
        return words, (await on.zygote_with_spare())[0] == zygote
        """,
        log="/dev/full",
    )
    assert said == ["it cannot be done", True]


# The sweep that it owes


@pytest.mark.parametrize("sent", [signal.SIGSTOP, pytest.param(signal.SIGKILL, marks=pytest.mark.ci)])
def test_a_sweep_that_the_zygote_had_begun_is_done_by_the_supervisor(sent: signal.Signals) -> None:
    """G2."""
    said = on_stage(
        f"""
        await on.zygote_with_spare()
        on.spawn("leaving", role="leaves")
        await on.until("exited", "leaving")
        zygote, _ = await on.zygote_with_spare()
        os.kill(zygote, {int(sent)})
        return await on.until("swept", "leaving")
        """
    )
    assert said == "1 killed, 0 left"


def test_a_stopped_spare_is_no_loss_until_it_is_needed_and_then_as_good_as_none() -> None:
    said = on_stage(
        """
        zygote, spare = await on.zygote_with_spare()
        os.kill(spare, signal.SIGSTOP)
        on.spawn("before")
        await on.until("spawned", "before")
        os.kill(zygote, signal.SIGKILL)
        on.spawn("after")
        words = await on.until("exited", "after")
        await on.kill("before")
        return words
        """
    )
    assert said == GONE


def worker(**facts: bool | int) -> WorkerProcess:
    request = zygote_messages.Spawn(worker_id=WorkerId("w"), role="tool", boot=b"")
    return msgspec.structs.replace(WorkerProcess(request=request), **facts)


def test_how_long_a_zygote_may_be_silent_follows_from_what_it_owes() -> None:
    """I6."""
    assert patience_s(worker()) == times.ZYGOTE_SILENCE_S  # its start
    assert patience_s(worker(pid=5)) is None  # nothing: it lives
    assert patience_s(worker(pid=5, dead=True)) == times.ZYGOTE_WORD_S  # the word of its death
    assert patience_s(worker(pid=5, dead=True, exited=True)) == times.gone_s()  # its sweep
    assert patience_s(worker(pid=5, dead=True, exited=True, ours=True)) is None  # nothing: another one's
    assert times.ZYGOTE_SILENCE_S < times.WORKER_START_S


def test_a_kill_does_not_wait_until_a_burst_is_forked_and_who_is_killed_before_its_turn_is_never_forked() -> None:
    """F7, L1: a session that is cancelled while its workers start ends in milliseconds, however many start before."""
    told = on_stage("""
        crowd = [f"one-{n}" for n in range(100)]
        on.spawn(*crowd, "last")
        on.spawner.kill("last")
        await on.until("swept", "last")
        forked = sum(what == "spawned" for what, _, _ in on.told)
        await on.until("spawned", *crowd)
        began = await on.begun(100)
        await on.kill(*crowd)
        return [forked < 50, began, ("spawned", "last", "") in on.told]
        """)
    assert told == [True, 100, False]
