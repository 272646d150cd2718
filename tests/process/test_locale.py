"""What is written is UTF-8, whatever the locale says (R92)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import run
from support.puppet_gateway import PROGRAM, Order, shell
from support.scripted_gateway import running
from support.terminals import OnTerminal

TEXT = "🙂 → größer, 漢字"
C_LOCALE = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "OPENAI_API_KEY": "none"}


@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_the_models_text_in_a_c_locale(output: str, tmp_path: Path) -> None:
    with running(tmp_path, program=PROGRAM) as gateway:
        ended = run(
            *("run", "-m", "puppet", "--base-url", gateway.url, "-o", output, Order(text=TEXT).prompt), extra=C_LOCALE
        )
    assert ended.exit_code == 0
    if output == "text":
        assert ended.stdout.decode("utf-8") == f"{TEXT}\n"
    else:
        last = json.loads(ended.stdout.decode("utf-8").splitlines()[-1])
        assert last["text"] == TEXT
    assert ended.stderr == ""


def test_a_terminal_in_a_c_locale(tmp_path: Path) -> None:
    """What is typed, the marks of our own, and the words of a tool."""
    with running(tmp_path, program=PROGRAM) as gateway:
        arguments = ("chat", "-m", "puppet", "--base-url", gateway.url, "-y", "-C", str(tmp_path))
        with OnTerminal(*arguments, extra=C_LOCALE) as terminal:
            terminal.until("> ")
            terminal.press(f"{Order(calls=shell('echo 🙂')).prompt}\r".encode())
            terminal.until("echo 🙂", "✓ shell echo 🙂: done", "> ")
            terminal.press(b"\x04")
            code, screen = terminal.end()
            assert (code, "Error" in screen) == (0, False)
