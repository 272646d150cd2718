"""Keys through a real terminal: which of them stop a run, in which state, and what a second and a third press do
(F2, F7, F10, R93)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest
from support import survivors
from support.chain import seconds_until_gone
from support.puppet_gateway import PROGRAM, Order, shell
from support.scripted_gateway import running
from support.terminals import OnTerminal, wait_until

ESC = b"\x1b"
CTRL_C = b"\x03"
NASTY_SLEEPS = 7
"""In the tree of the scenario tool_tree."""
SLACK = 3
"""Times that a requirement states are asserted at three times their value."""


class State(msgspec.Struct, frozen=True):
    """Arguments that bring a run into a state, and what the screen shows once it is there."""

    arguments: tuple[str, ...]
    shown: tuple[str, ...]


STATES = {
    "streaming": State(("-m", "demo/slow"), ("1 2 ",)),
    "in a retry wait": State(("-m", "demo/overloaded", "--retry", "patient"), ("trying again in ",)),
    "in a question": State(("-m", "demo/loop"), ("Allow shell: ", "then Enter > ")),
    "in a tool": State(("-m", "demo/tool_timeout", "-y"), ("sleep 600",)),
}

NO_STOP: dict[str, tuple[bytes, ...]] = {
    "a letter": (b"c",),
    "alt+c": (b"\x1bc",),
    "alt+c, cut in two": (b"\x1b", b"c"),
    "alt+shift+c": (b"\x1bC",),
    "alt+[": (b"\x1b[", b"x"),
    "alt+é": ("\x1bé".encode(),),
    "arrows": (b"\x1b[A\x1b[B\x1b[C\x1b[D\x1bOA",),
    "an arrow, cut in two": (b"\x1b", b"[A"),
    "an arrow, cut in three": (b"\x1b", b"[", b"A"),
    "ctrl+arrow, cut in its numbers": (b"\x1b[1;", b"5D"),
    "function keys": (b"\x1bOP\x1b[15~\x1b[24;2~\x1b[[A",),
    "a function key, cut in two": (b"\x1bO", b"Q"),
    "home and end": (b"\x1b[H\x1b[F\x1bOH\x1b[1~\x1b[4~",),
    "a focus report": (b"\x1b[O\x1b[I",),
    "a mouse report": (b"\x1b[<0;33;7M\x1b[<0;33;7m\x1b[M #$",),
    "a mouse report, cut in two": (b"\x1b[<0;3", b"3;7M"),
    "a report of the cursor": (b"\x1b[12;40R",),
    "an answer about colours": (b"\x1b]11;rgb:0000/0000/0000\x1b\\",),
    "a bracketed paste": (b"\x1b[200~two \x1b and \x1b\x1b, [A\r\x1b[201~",),
    "a bracketed paste, cut at an escape": (b"\x1b[200~some \x1b", b"\x1b words\x1b[2", b"01~"),
    "a paste without brackets": (b"red \x1b[31mwords\x1b[0m and \x1b more\r",),
    "a paste without brackets, cut at an escape": (b"red \x1b", b"[31mwords\r"),
}


def started(command: str, state: State, cwd: Path) -> OnTerminal:
    """A run that has come into this state."""
    terminal = OnTerminal(command, *state.arguments, "-C", str(cwd), *(("go",) if command == "run" else ()))
    if command == "chat":
        terminal.until("> ")
        terminal.press(b"go\r")
    terminal.until(*state.shown)
    return terminal


def ended_after_a_stop(terminal: OnTerminal, command: str) -> int:
    """The exit code of a run that is stopping; a chat takes another prompt and is left by Ctrl+D."""
    terminal.until("stopped in ")
    if command == "chat":
        terminal.until("> ")
        terminal.press(b"\x04")
    code, _ = terminal.end()
    assert terminal.settings() == terminal.before
    return code


@pytest.mark.parametrize(
    "key", [ESC, CTRL_C, b"\x1b[27u", b"\x1b[99;5u"], ids=["esc", "ctrl-c", "kitty esc", "kitty ctrl-c"]
)
def test_esc_and_ctrl_c_stop_a_run(key: bytes, tmp_path: Path) -> None:
    """F2, R93: `stopping` shows within 100 ms, and the run ends within 2 s."""
    with started("run", STATES["streaming"], tmp_path) as terminal:
        pressed = time.monotonic()
        terminal.press(key)
        terminal.until("stopping\r\n")
        assert time.monotonic() - pressed < 0.1 * SLACK
        assert ended_after_a_stop(terminal, "run") == 130
        assert time.monotonic() - pressed < 2.0 * SLACK


@pytest.mark.ci
@pytest.mark.parametrize("key", [ESC, CTRL_C], ids=["esc", "ctrl-c"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_key_stops_a_run_in_every_state(command: str, state: str, key: bytes, tmp_path: Path) -> None:
    """F7, F9: and a chat takes the next prompt at once."""
    with started(command, STATES[state], tmp_path) as terminal:
        terminal.press(key)
        terminal.until("stopping\r\n")
        assert ended_after_a_stop(terminal, command) == 130


def screen_after(keys: tuple[bytes, ...], terminal: OnTerminal, seen: int) -> tuple[str, float]:
    """What the screen got until two more pieces of the stream had come, and how long the keys were on their way."""
    began = time.monotonic()
    terminal.press(*keys)
    took_s = time.monotonic() - began
    return terminal.until(f"{seen + 2} "), took_s


@pytest.mark.parametrize("name", ["arrows"])
def test_one_other_key_does_not_stop_a_run(name: str, tmp_path: Path) -> None:
    others_do_not_stop({name: NO_STOP[name]}, tmp_path)


@pytest.mark.ci
def test_no_other_key_stops_a_run(tmp_path: Path) -> None:
    """F2. A stream's next pieces come later than any key is waited for."""
    others_do_not_stop(NO_STOP, tmp_path)


def others_do_not_stop(others: dict[str, tuple[bytes, ...]], cwd: Path) -> None:
    waiting = dict(others)
    while waiting:
        with started("run", STATES["streaming"], cwd) as terminal:
            seen = 2
            for name, keys in list(waiting.items()):
                screen, took_s = screen_after(keys, terminal, seen)
                late = took_s > 0.02 * len(keys)  # this test was held up between two pieces: they are two keys then
                if late and "stopping" in screen:
                    break
                assert "stopping" not in screen, name
                seen += 2
                del waiting[name]
            else:
                terminal.press(ESC)
                terminal.until("stopping\r\n")
                assert ended_after_a_stop(terminal, "run") == 130


@pytest.mark.ci
@pytest.mark.parametrize("state", ["in a retry wait", "in a question", "in a tool"])
def test_no_other_key_stops_a_run_in_another_state(state: str, tmp_path: Path) -> None:
    """Whole keys at once; the Esc behind them is the first press, since it does not end the graces."""
    with started("run", STATES[state], tmp_path) as terminal:
        terminal.press(b"".join(b"".join(keys) for keys in NO_STOP.values() if b"\r" not in b"".join(keys)))
        terminal.press(b"\x15", b"", b"", b"", ESC)
        assert "at once" not in terminal.until("stopping\r\n")
        assert "at once" not in terminal.until("stopped in ")
        assert terminal.end()[0] == 130


def is_planted() -> bool:
    """All of the nasty tree is there: what ignores SIGTERM has started its child."""
    below = survivors.descendants(os.getpid())
    return sum(one.command == "sleep 600" for one in below) == NASTY_SLEEPS


def test_a_second_press_ends_every_grace(tmp_path: Path) -> None:
    """F10: a tree that ignores SIGTERM has 2 s, and none any more."""
    with OnTerminal("run", "-m", "demo/tool_tree", "-y", "-C", str(tmp_path), "go") as terminal:
        wait_until(is_planted)
        terminal.press(ESC)
        terminal.until("stopping\r\n")
        pressed = time.monotonic()
        terminal.press(ESC)
        terminal.until("stopping at once, without grace\r\n")
        assert terminal.end()[0] == 130
        assert time.monotonic() - pressed < 0.3 * SLACK
        assert terminal.settings() == terminal.before


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_third_press_leaves_and_the_guard_finishes(command: str, tmp_path: Path) -> None:
    """F10: the supervisor cannot answer; the client is gone at once, and what it started as well, by the guard."""
    with started(command, STATES["in a tool"], tmp_path) as terminal:
        pids = terminal.chain()
        os.kill(pids["supervisor"], signal.SIGSTOP)
        terminal.press(ESC, CTRL_C, ESC)
        terminal.until("stopping\r\n", "stopping at once, without grace\r\n", "the guard finishes it")
        assert terminal.end()[0] == 130
        assert terminal.settings() == terminal.before
        os.kill(pids["supervisor"], signal.SIGCONT)
        seconds_until_gone(time.monotonic(), 2.0 * SLACK)


def test_ctrl_c_twice_in_a_stalled_stream(tmp_path: Path) -> None:
    """R93."""
    with OnTerminal("run", "-m", "demo/hang_mid", "-C", str(tmp_path), "go") as terminal:
        terminal.until("three")
        pressed = time.monotonic()
        terminal.press(CTRL_C, b"", b"", CTRL_C)
        code, _ = terminal.end()
        assert code == 130
        assert time.monotonic() - pressed < 2.0 * SLACK


def test_each_run_of_a_chat_has_a_stop_of_its_own(tmp_path: Path) -> None:
    """R95: a stop addresses the run that goes on and nothing else, whatever was stopped before it."""
    orders = (
        (Order(text="first ", hangs=True), "first "),
        (Order(calls=shell("sleep 601")), "sleep 601"),
        (Order(text="third ", hangs=True), "third "),
    )
    with running(tmp_path, program=PROGRAM) as gateway:
        arguments = ("chat", "-m", "puppet", "--base-url", gateway.url, "-y", "-C", str(tmp_path), "--json")
        with OnTerminal(*arguments, extra={"OPENAI_API_KEY": "none"}) as terminal:
            for number, (order, shown) in enumerate(orders, 1):
                terminal.until("> ")
                terminal.press(f"{order.prompt}\r".encode())
                terminal.until(f'"run":{number},' if number == 2 else shown, *(("tool_start",) if number == 2 else ()))
                terminal.press(ESC)
                terminal.until("stopping\r\n", '"phase":"requested","by":"key"', '"reason":"cancelled"')
            terminal.until("> ")
            terminal.press(b"\x04")
            assert terminal.end()[0] == 130


def test_what_is_typed_during_a_run_is_shown_once_it_is_asked_for(tmp_path: Path) -> None:
    with OnTerminal("chat", "-m", "demo/rate_limit", "-C", str(tmp_path)) as terminal:
        terminal.until("> ")
        terminal.press(b"first\r")
        terminal.until("first\r\n", "trying again in ")
        terminal.press(b"second\rbeg")
        assert "second" not in terminal.until("nine ten")
        terminal.until("> second\r\n", "nine ten")
        terminal.until("> beg")
        terminal.press(b"un\x15\x04")
        assert terminal.end()[0] == 0
        assert terminal.settings() == terminal.before
