"""A terminal is as it was before, whatever ended the run; and job control works (F2, F10, R88)."""

from __future__ import annotations

import json
import mmap
import os
import pty
import signal
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import survivors
from support.chain import Member, only_child, seconds_until_gone
from support.command import COMMAND, run
from support.terminals import OnTerminal, shell, wait_until

from haltline.protocol.terminal import SharedTerminal

SLACK = 3
"""Times that a requirement states are asserted at three times their value."""
GONE_S = 2.0
"""G2."""
HALTLINE = " ".join(COMMAND)


@pytest.fixture
def streaming(tmp_path: Path) -> Iterator[OnTerminal]:
    """A run that has the terminal."""
    with OnTerminal("run", "-m", "demo/slow", "-C", str(tmp_path), "go") as terminal:
        terminal.until("1 2 ")
        assert terminal.settings() != terminal.before  # else nothing is shown by what follows
        yield terminal


@pytest.mark.parametrize(("scenario", "code"), [("ok", 0), ("unauthorized", 77)])
def test_after_an_ordinary_end(scenario: str, code: int, tmp_path: Path) -> None:
    with OnTerminal("run", "-m", f"demo/{scenario}", "-C", str(tmp_path), "go") as terminal:
        ended, screen = terminal.end()
        assert ended == code, screen
        assert terminal.settings() == terminal.before


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_after_a_signal_that_the_client_hears(streaming: OnTerminal, number: signal.Signals) -> None:
    os.kill(streaming.pid, number)
    assert streaming.end()[0] == (143 if number == signal.SIGTERM else 130)
    assert streaming.settings() == streaming.before


DEATHS: list[tuple[tuple[Member, ...], signal.Signals]] = [
    (("client",), signal.SIGKILL),
    (("client", "guard"), signal.SIGKILL),
    (("supervisor", "client"), signal.SIGKILL),
    *(
        ((who,), number)
        for who in ("client", "guard", "supervisor")
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
        if (who, number) not in (("client", signal.SIGKILL), ("client", signal.SIGTERM), ("client", signal.SIGHUP))
    ),
    (("guard", "supervisor"), signal.SIGKILL),
    (("client", "zygote"), signal.SIGKILL),
    (("client", "supervisor"), signal.SIGKILL),
    (("client", "supervisor"), signal.SIGSEGV),
]
"""The first three in every run of the tests."""


def name(death: tuple[tuple[Member, ...], signal.Signals]) -> str:
    return f"{'+'.join(death[0])}-{death[1].name}"


@pytest.mark.parametrize("death", [pytest.param(one, id=name(one)) for one in DEATHS[:3]])
def test_after_a_death(streaming: OnTerminal, death: tuple[tuple[Member, ...], signal.Signals]) -> None:
    as_before_after(streaming, *death)


@pytest.mark.ci
@pytest.mark.parametrize("death", [pytest.param(one, id=name(one)) for one in DEATHS[3:]])
def test_after_another_death(streaming: OnTerminal, death: tuple[tuple[Member, ...], signal.Signals]) -> None:
    as_before_after(streaming, *death)


def as_before_after(terminal: OnTerminal, victims: tuple[Member, ...], number: signal.Signals) -> None:
    """Whoever is still there ends what is left, or the run goes on until Esc."""
    pids = terminal.chain()
    for victim in victims:
        os.kill(pids[victim], number)
    since = time.monotonic()
    if "client" not in victims and not ended_by_itself(terminal):
        terminal.press(b"\x1b")
        since = time.monotonic()
    code, screen = terminal.end()
    assert code == (-number if "client" in victims else code)
    assert "Traceback" not in screen
    seconds_until_gone(since, GONE_S * SLACK)
    assert terminal.settings() == terminal.before


def ended_by_itself(terminal: OnTerminal) -> bool:
    """Whether the run is over: else it says something more."""
    return bool(terminal.child.expect_exact(["haltline: ", "stopped in", "6 "]) < 2)


def test_after_a_client_that_was_stopped_has_lost_its_supervisor_and_is_killed(streaming: OnTerminal) -> None:
    """The guard stays for it when everything else is swept."""
    pids = streaming.chain()
    os.kill(pids["client"], signal.SIGSTOP)
    os.kill(pids["supervisor"], signal.SIGKILL)
    wait_until(lambda: [one.pid for one in survivors.descendants(streaming.pid)] == [pids["guard"]])
    os.kill(pids["client"], signal.SIGKILL)
    streaming.end()
    seconds_until_gone(time.monotonic(), GONE_S * SLACK)
    assert streaming.settings() == streaming.before


@pytest.mark.parametrize("command", ["run", pytest.param("chat", marks=pytest.mark.ci)])
def test_a_terminal_that_is_hung_up_ends_what_ran_on_it(command: str, tmp_path: Path, home: Path) -> None:
    """Reads and writes fail (EIO); that is no bug, and nobody is left."""
    with OnTerminal(
        command, "-m", "demo/slow", "-C", str(tmp_path), *(("go",) if command == "run" else ())
    ) as terminal:
        terminal.until("1 2 " if command == "run" else "> ")
        since = time.monotonic()
        terminal.hang_up()
        seconds_until_gone(since, GONE_S * SLACK)
    assert list(home.rglob("client-*.log")) == []


def test_settings_of_somebody_else_are_left_alone() -> None:
    """A shell that was faster than whoever restores has its own settings by then."""
    master, slave = pty.openpty()
    terminal = SharedTerminal(slave)
    try:
        found = termios.tcgetattr(slave)
        assert terminal.take()
        assert terminal.take()  # again, after a stop that nobody saw
        terminal.restore()
        assert termios.tcgetattr(slave) == found
        assert terminal.take()
        of_the_shell = [*termios.tcgetattr(slave)]
        of_the_shell[0] &= ~termios.ICRNL
        termios.tcsetattr(slave, termios.TCSANOW, of_the_shell)
        terminal.restore()
        assert termios.tcgetattr(slave) == of_the_shell
    finally:
        os.close(master)
        assert not terminal.take()  # hung up
        terminal.restore()
        os.close(slave)


def test_whoever_dies_while_it_takes_the_terminal_again_leaves_nothing_that_nobody_can_read() -> None:
    """The page is never half of one pair and half of another: whoever restores would die of it."""
    master, slave = pty.openpty()
    terminal = SharedTerminal(slave)
    try:
        assert terminal.take()
        of_the_shell = [*termios.tcgetattr(slave)]
        of_the_shell[0] &= ~termios.ICRNL
        termios.tcsetattr(slave, termios.TCSANOW, of_the_shell)
        client = os.fork()
        if client == 0:
            terminal._page = _DeadlyPage(terminal._page)  # type: ignore[assignment]
            terminal.take()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(client, 0)[1]) == _DEADLY
        assert not terminal.taken
        terminal.restore()
        assert termios.tcgetattr(slave) == of_the_shell
    finally:
        os.close(master)
        os.close(slave)


_DEADLY = 9


class _DeadlyPage:
    """Its writer dies in the middle of the first long piece."""

    def __init__(self, page: mmap.mmap) -> None:
        self._page = page

    def __getitem__(self, where: slice) -> bytes:
        return self._page[where]

    def __setitem__(self, where: slice, data: bytes) -> None:
        if len(data) > 4:
            self._page[where.start : where.start + len(data) // 2] = b"?" * (len(data) // 2)
            os._exit(_DEADLY)
        self._page[where] = data


# Job control


def states() -> list[str]:
    """Of the sessions that `ps` lists."""
    rows = json.loads(run("ps", "--json").stdout)
    return [row["state"] for row in rows if row["role"] == "session"]


def test_ctrl_z_suspends_the_client_alone_and_fg_shows_what_came(tmp_path: Path) -> None:
    """The run goes on to its end while the client is stopped; the terminal is the shell's meanwhile."""
    with shell(cwd=tmp_path) as terminal:
        terminal.press(f"stty -a >before; {HALTLINE} run -m demo/rate_limit go\r".encode())
        terminal.until("trying again in 1 s")
        terminal.press(b"\x1a")
        terminal.until("Stopped", "READY$ ")
        wait_until(lambda: states() == ["idle"])
        terminal.press(b"stty -a | diff before - && echo same-$((1+1))\r")
        terminal.until("same-2", "READY$ ")
        terminal.press(b"fg\r")
        terminal.until("one two three four five six seven eight nine ten", "READY$ ")
        terminal.press(b"echo code-$?; stty -a | diff before - && echo same-$((2+2))\r")
        terminal.until("code-0", "same-4", "READY$ ")


def test_keys_are_ours_again_after_fg(tmp_path: Path) -> None:
    with shell(cwd=tmp_path) as terminal:
        terminal.press(f"stty -a >before; {HALTLINE} run -m demo/slow go\r".encode())
        for seen in ("1 2 ", "4 "):
            terminal.until(seen)
            terminal.press(b"\x1a")
            terminal.until("Stopped", "READY$ ")
            terminal.press(b"fg\r")
        terminal.until("6 ")
        terminal.press(b"\x1b")
        terminal.until("stopping\r\n", "stopped in ", "READY$ ")
        terminal.press(b"echo code-$?; stty -a | diff before - && echo same-$((1+1))\r")
        terminal.until("code-130", "same-2", "READY$ ")


@pytest.mark.ci
def test_a_suspended_client_can_be_ended_from_its_shell(tmp_path: Path) -> None:
    with shell(cwd=tmp_path) as terminal:
        terminal.press(f"{HALTLINE} run -m demo/tool_timeout -y go\r".encode())
        terminal.until("sleep 600")
        terminal.press(b"\x1a")
        terminal.until("Stopped", "READY$ ")
        terminal.press(b"kill %1\r")
        terminal.until("stopped in ")
        wait_until(lambda: survivors.descendants(terminal.pid) == [])
        terminal.press(b"\r")
        terminal.until("Exit 143", "READY$ ")


def test_fg_shows_the_prompt_again_with_what_was_typed(tmp_path: Path) -> None:
    """Once, however the shell has brought it back: it was stopped, or it ran in the background meanwhile."""
    with shell(cwd=tmp_path) as terminal:
        terminal.press(f"{HALTLINE} chat -m demo/ok\r".encode())
        terminal.until("> ")
        terminal.press(b"begun")
        terminal.until("begun")
        terminal.press(b"\x1a")
        terminal.until("Stopped", "READY$ ")
        for brought_back in (b"fg\r", b"bg; fg\r"):
            terminal.press(brought_back)
            terminal.until("chat -m demo/ok\r\n", "> begun")
            terminal.press(b"\x1a")
            assert "begun" not in terminal.until("Stopped", "READY$ ")
        terminal.press(b"fg\r")
        terminal.until("> begun")
        terminal.press(b"\r")
        assert "begun" not in terminal.until("one two three", "> ")
        terminal.press(b"\x04")
        terminal.until("READY$ ")


@pytest.mark.ci
def test_a_question_is_asked_again_and_answered_after_fg(tmp_path: Path) -> None:
    with shell(cwd=tmp_path) as terminal:
        terminal.press(f"{HALTLINE} run -m demo/loop go\r".encode())
        terminal.until("then Enter > ")
        terminal.press(b"n")
        terminal.until("n")
        terminal.press(b"\x1a")
        terminal.until("Stopped", "READY$ ")
        terminal.press(b"fg\r")
        assert terminal.until("then Enter > n").count("Allow shell: ") == 1
        terminal.press(b"\x7fa\r")
        terminal.until("shell: everything allowed for this session", "READY$ ")


BACKGROUND = {
    "from a shell": HALTLINE,
    "with SIGINT and SIGTERM ignored and everything blocked": (
        "python3 -c 'import os, signal, sys; [signal.signal(n, signal.SIG_IGN) for n in (2, 15, 20, 21, 22)]; "
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); os.execvp(sys.argv[1], sys.argv[1:])' "
        + HALTLINE
    ),
}


@pytest.mark.parametrize("how", ["from a shell", pytest.param(list(BACKGROUND)[1], marks=pytest.mark.ci)])
@pytest.mark.parametrize("number", ["INT", pytest.param("TERM", marks=pytest.mark.ci)])
def test_a_run_in_the_background_leaves_the_terminal_to_the_shell_and_can_be_stopped(
    how: str, number: str, tmp_path: Path
) -> None:
    """F2. What is typed is the shell's, an Esc too."""
    with shell(cwd=tmp_path) as terminal:
        terminal.press(f"{BACKGROUND[how]} run -m demo/slow go &\r".encode())
        terminal.until("READY$ ", "1 2 ")
        terminal.press(b"\x1b[Cecho typed-$((1+1))\r")
        assert "stopping" not in terminal.until("typed-2", "READY$ ")
        terminal.press(f"kill -{number} %1; wait %1; echo code-$?\r".encode())
        terminal.until(f"code-{130 if number == 'INT' else 143}", "READY$ ")


def test_fg_gives_the_keys_to_a_run_that_began_in_the_background(tmp_path: Path) -> None:
    """Bash tells such a run nothing: it runs already."""
    with shell(cwd=tmp_path) as terminal:
        terminal.press(f"{HALTLINE} run -m demo/slow go &\r".encode())
        terminal.until("READY$ ", "1 2 ")
        terminal.press(b"fg\r")
        wait_until(lambda: "-icanon" in terminal.settings() and "icrnl" in terminal.settings().split())
        wait_until(lambda: "-echo" in terminal.settings())
        terminal.until("5 ")
        terminal.press(b"\x1b")
        terminal.until("stopping\r\n", "stopped in ", "READY$ ")


@pytest.mark.ci
def test_a_run_that_a_terminal_stopped_for_writing_goes_on_with_fg(tmp_path: Path) -> None:
    """`stty tostop` is the person's wish; it holds the client alone, and not for ever."""
    with shell(cwd=tmp_path) as terminal:
        terminal.press(f"stty tostop; {HALTLINE} run -m demo/ok go &\r".encode())
        terminal.until("[1] ")
        wait_until(lambda: survivors._state(only_child(terminal.pid)) == "T")
        terminal.press(b"\r")
        terminal.until("Stopped", "READY$ ")
        terminal.press(b"fg\r")
        terminal.until("one two three four five six seven eight nine ten", "READY$ ")
