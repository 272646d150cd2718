"""A line that a person types where a terminal gives keys: what is kept, what the screen gets."""

from __future__ import annotations

import pytest

from haltline.cli.keys import Reading, read
from haltline.cli.line_editor import LineEditor


def typed(data: bytes) -> tuple[str, list[str], str, int]:
    """The screen, the whole lines, the begun one, and how often the input ended."""
    editor = LineEditor()
    _, keys = read(Reading(), data, quiet=True)
    done = [one for key in keys for one in editor.press(key)]
    lines = [one.line for one in done if one.line is not None]
    return "".join(one.echo for one in done), lines, editor.text, sum(one.ended for one in done)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"yes\r", "yes"),
        (b"yes\n", "yes"),
        ("größer 🙂 €\r".encode(), "größer 🙂 €"),
        ("👨‍👩‍👧\r".encode(), "👨‍👩‍👧"),
        (b"nox\x7f\r", "no"),
        (b"nox\b\r", "no"),
        (b"\x7f\x7fno\r", "no"),
        (b"some wrong\x17words\r", "some words"),
        (b"wrong  \x17right\r", "right"),
        (b"all of it\x15no\r", "no"),
        (b"n\x1b[A\x1b[D\x1bOP\x1bxo\x00\x01\r", "no"),
        (b"a\tb\r", "a\tb"),
        (b"\xffa\r", "\ufffda"),
        (b"n\x04o\r", "no"),
        (b"\x1b[200~a \x1b[31m b\x1b[201~\r", "a [31m b"),
    ],
)
def test_a_line_is_edited_as_in_a_terminal_that_gives_lines(data: bytes, line: str) -> None:
    _, lines, begun, ended = typed(data)
    assert (lines, begun, ended) == ([line], "", 0)


def test_several_lines_and_a_begun_one() -> None:
    assert typed(b"one\rtwo\nthr")[1:] == (["one", "two"], "thr", 0)


def test_ctrl_d_ends_the_input_on_an_empty_line_alone() -> None:
    assert typed(b"\x04")[3] == 1
    assert typed(b"x\x04")[3] == 0


@pytest.mark.parametrize(
    ("data", "screen"),
    [
        (b"no\r", "no\n"),
        (b"ab\x7f", "ab\b \b"),
        ("漢\x7f".encode(), "漢\b \b\b \b"),  # two columns wide
        (b"ab cd\x17", "ab cd\b \b\b \b"),
        (b"ab\x15", "ab\b \b\b \b"),
        (b"a\tb", "a b"),
        (b"\x1b[A\x07", ""),
    ],
)
def test_the_screen_shows_what_is_kept(data: bytes, screen: str) -> None:
    assert typed(data)[0] == screen


def test_a_dropped_line_is_taken_off_the_screen() -> None:
    editor = LineEditor()
    for key in read(Reading(), b"abc", quiet=True)[1]:
        editor.press(key)
    assert editor.clear() == "\b \b" * 3
    assert editor.clear() == editor.text == ""
