"""A stop in the first moments, and with members of the chain that somebody stopped (F1, F7)."""

from __future__ import annotations

import os
import signal
import time

import msgspec
import pytest
from conftest import Samples
from support.chain import members, seconds_until_gone
from support.command import SHIPPED, Running
from support.terminals import OnTerminal, wait

SLACK = 3
STOPPED_S = 2.0
"""G2, R93."""
SWEEP_MS = 300
STEP_MS = 5


class Early(msgspec.Struct, frozen=True, kw_only=True):
    """A command that is stopped while it starts, and the exit codes that it may have then."""

    arguments: tuple[str, ...]
    number: signal.Signals = signal.SIGINT
    ends: tuple[int, ...] = (130, -signal.SIGINT)
    """-N: death by the signal, before a handler stood and before anything was started. 0: `ps` was through already, or
    the chat had come to its prompt."""


RUN = ("run", "-m", "demo/slow", "hi")
CHAT = ("chat", "-m", "demo/slow")
EARLY = {
    "run, Ctrl+C": Early(arguments=RUN),
    "run, SIGTERM": Early(arguments=RUN, number=signal.SIGTERM, ends=(143, -signal.SIGTERM)),
    "chat, Ctrl+C": Early(arguments=CHAT, ends=(130, -signal.SIGINT, 0)),
    "chat, SIGTERM": Early(arguments=CHAT, number=signal.SIGTERM, ends=(143, -signal.SIGTERM)),
    "demo, Ctrl+C": Early(arguments=("demo",)),
    "demo, SIGTERM": Early(arguments=("demo",), number=signal.SIGTERM, ends=(143, -signal.SIGTERM)),
    "ps, Ctrl+C": Early(arguments=("ps",), ends=(0, 130, -signal.SIGINT)),
    "ps, SIGTERM": Early(arguments=("ps",), number=signal.SIGTERM, ends=(0, -signal.SIGTERM)),
}


def stop_at(early: Early, after_ms: float) -> None:
    """The shipped command on a terminal: no survivor, no traceback, the terminal as it was."""
    with OnTerminal(*early.arguments, command=SHIPPED) as terminal:
        wait(after_ms / 1000)
        began = time.monotonic()
        if early.number == signal.SIGINT:
            terminal.press(b"\x03")  # by the terminal, to all of the foreground
        else:
            os.kill(terminal.pid, early.number)
        screen = terminal.until_or_end("\nCtrl+D leaves\r\n> ")  # a chat that has come to its prompt
        terminal.press(b"\x04")
        code, more = terminal.end()
        screen += more
        what = f"{early.arguments[0]}, {early.number.name} after {after_ms:g} ms: exit code {code}, {screen!r}"
        assert code in early.ends, what
        assert "Traceback" not in screen, what
        assert "Error" not in screen, what
        assert "bug of haltline" not in screen, what
        seconds_until_gone(began, STOPPED_S * SLACK)
        assert terminal.settings() == terminal.before, what


def moments(count: int) -> list[float]:
    """That many over the first SWEEP_MS, from 0."""
    return [round(SWEEP_MS * index / (count - 1), 1) for index in range(count)]


ALL = SWEEP_MS // STEP_MS + 1


@pytest.mark.timeout(300)
def test_ctrl_c_at_any_moment_of_a_start(samples: Samples) -> None:
    """F7; at every 5 ms of the first 300, where there is time for it."""
    for after_ms in moments(samples(6, ALL, 3 * ALL)):
        stop_at(EARLY["run, Ctrl+C"], after_ms)


@pytest.mark.ci
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(EARLY)[1:])
def test_another_command_or_signal_at_any_moment_of_a_start(name: str, samples: Samples) -> None:
    for after_ms in moments(samples(2, 7, ALL)):
        stop_at(EARLY[name], after_ms)


@pytest.mark.parametrize("after_ms", [60, 120, 200])
def test_an_interrupt_while_everything_starts_is_over_at_once(after_ms: int) -> None:
    """Whatever it meets: nothing yet (death by the signal), the imports, the supervisor, the workers."""
    running = Running(["run", "-m", "demo/slow", "--json", "hi"], command=SHIPPED)
    wait(after_ms / 1000)
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
