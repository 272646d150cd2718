"""As process 1 of a PID namespace, as in a container; with orphans, and without streams or a terminal (R85, G7)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import ordinary_user, survivors
from support.chain import only_child, seconds_until_gone
from support.command import COMMAND, Event, Running
from support.isolations import NAMESPACED, Who
from support.puppet_gateway import PROGRAM, Order, shell
from support.scripted_gateway import running
from support.terminals import wait_until

SLACK = 3
"""Times that a requirement states are asserted at three times their value."""
GONE_S = 2.0
"""G2."""
ENDED_S = 3.0
"""R85."""
ORPHANS = 50
VICES = Path(__file__).resolve().parent.parent


def orphans(count: int) -> str:
    """A command that leaves so many dead orphans to whoever adopts them."""
    return f"cd {VICES} && {sys.executable} -m support.vices.orphans {count}"


def zombies() -> list[int]:
    """Below this test, but for its own children, which it reads when it likes."""
    found: list[int] = []
    waiting = [child for own in survivors._children(os.getpid()) for child in survivors._children(own)]
    while waiting:
        pid = waiting.pop()
        waiting += survivors._children(pid)
        if survivors._state(pid) == "Z":
            found.append(pid)
    return found


def as_process_1(who: Who) -> tuple[str, ...]:
    """To be put before a command."""
    flags = ("--fork", "--pid", "--mount-proc")
    if who == "root":
        return ("unshare", *flags)
    return (*ordinary_user.COMMAND, "unshare", "--user", "--map-root-user", *flags)


def start(who: Who, home: Path, *arguments: str) -> Running:
    if who == "user" and os.geteuid() == 0:
        os.chown(home, ordinary_user.USER, ordinary_user.USER)
    return Running(
        [*arguments, "-C", str(home), "hi"], command=(*as_process_1(who), *COMMAND), extra={"HOME": str(home)}
    )


def process_1(running: Running) -> int:
    """Its pid outside; what made the namespace is its parent."""
    return only_child(running.process.pid)


if NAMESPACED:

    @pytest.mark.parametrize(
        ("who", "number", "code"),
        [
            pytest.param(who, number, code, marks=() if (who, code) == (NAMESPACED[0], 143) else pytest.mark.ci)
            for who in NAMESPACED
            for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130))
        ],
    )
    def test_a_signal_to_process_1_ends_the_run_and_nothing_is_left(
        who: Who, number: signal.Signals, code: int, home: Path
    ) -> None:
        """What `docker stop` does."""
        run = start(who, home, "run", "-m", "demo/tool_timeout", "-y", "--json")
        run.until("tool_start")
        pid = process_1(run)
        since = time.monotonic()
        os.kill(pid, number)
        ended = run.end()
        assert time.monotonic() - since < ENDED_S * SLACK
        assert (ended.exit_code, ended.result["reason"], ended.result["exit_code"]) == (code, "cancelled", code)
        seconds_until_gone(since, ENDED_S * SLACK)

    @pytest.mark.parametrize("who", NAMESPACED)
    def test_an_orphan_of_a_stranger_is_reaped(who: Who, home: Path) -> None:
        """As one of `docker exec`: nobody but process 1 is its parent."""
        run = start(who, home, "run", "-m", "demo/slow", "--json")
        run.until("message")
        pid = process_1(run)
        enter = ("nsenter", "--target", str(pid), "--user", "--preserve-credentials", "--pid")
        command = [
            *(enter if who == "user" else enter[:3] + enter[5:]),
            "sh",
            "-c",
            "(sleep 0 & sleep 0 & true) & true",
        ]
        subprocess.run(command, check=True, timeout=20)
        wait_until(lambda: zombies() == [])
        os.kill(pid, signal.SIGTERM)
        assert run.end().exit_code == 143

    @pytest.mark.ci
    @pytest.mark.parametrize("who", NAMESPACED)
    def test_a_tools_orphans_are_reaped_below_process_1(who: Who, home: Path, tmp_path: Path) -> None:
        with running(tmp_path, program=PROGRAM) as gateway:
            prompt = Order(calls=shell(orphans(ORPHANS), "sleep 600")).prompt
            arguments = ("run", "-m", "puppet", "--base-url", gateway.url, "-y", "--json", "-C", str(home), prompt)
            if who == "user" and os.geteuid() == 0:
                os.chown(home, ordinary_user.USER, ordinary_user.USER)
            run = Running(
                arguments,
                command=(*as_process_1(who), *COMMAND),
                extra={"HOME": str(home), "OPENAI_API_KEY": "none"},
            )
            first = run.until("tool_result")
            assert (first["status"], first["exit_code"]) == ("done", 0), first
            wait_until(lambda: zombies() == [])
            since = time.monotonic()
            os.kill(process_1(run), signal.SIGTERM)
            assert run.end().exit_code == 143
        seconds_until_gone(since, ENDED_S * SLACK)


def result_of(run: int) -> Callable[[Event], bool]:
    return lambda event: (event["type"], event["run"]) == ("result", run)


@pytest.mark.ci
def test_no_zombies_pile_up_in_a_long_chat(tmp_path: Path) -> None:
    """50 calls that leave 20 orphans each."""
    with running(tmp_path, program=PROGRAM) as gateway:
        order = Order(calls=tuple(call for number in range(10) for call in shell(f"{orphans(20)} # {number}")))
        prompts = "".join(f"{order.prompt}\n" for _ in range(5))
        chat = Running(
            ["chat", "-m", "puppet", "--base-url", gateway.url, "-y", "--json"],
            stdin=prompts.encode(),
            extra={"OPENAI_API_KEY": "none"},
        )
        most = 0
        for number in range(1, 6):
            chat.until(result_of(number))
            most = max(most, len(zombies()))
        ended = chat.end()
        done = [event["status"] for event in ended.of("tool_result")]
        assert (ended.exit_code, done) == (0, ["done"] * 50)
        assert most < 20  # fewer than one call leaves: those are on their way


@pytest.mark.parametrize(
    "closed", ["<&- >&- 2>&-", pytest.param("<&-", marks=pytest.mark.ci), pytest.param("2>&-", marks=pytest.mark.ci)]
)
def test_a_command_without_its_streams_runs_and_can_be_stopped(closed: str) -> None:
    """No controlling terminal either."""
    script = f'exec "$@" {closed}'
    started = subprocess.Popen(
        ["sh", "-c", script, "sh", *COMMAND, "run", "-m", "demo/slow", "hi"], start_new_session=True
    )
    wait_until(lambda: len(survivors.descendants(started.pid)) >= 6)
    since = time.monotonic()
    started.send_signal(signal.SIGINT)
    assert started.wait(20) == 130
    seconds_until_gone(since, GONE_S * SLACK)
