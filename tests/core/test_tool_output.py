"""What is kept of a tool's output, and which paths a glob means; no process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haltline.worker.tool.find import matching
from haltline.worker.tool.output import Output, readable


def kept(pieces: list[bytes], limit: int) -> str:
    output = Output(limit)
    for piece in pieces:
        output.add(piece)
    return output.text()


def test_what_fits_is_whole() -> None:
    assert kept([b"abc", b"", b"defgh"], 8) == "abcdefgh"


def test_of_what_does_not_fit_head_and_tail_are_kept_and_the_rest_is_counted() -> None:
    """G6."""
    assert kept([b"abcdefghijklmnop"], 8) == "abcd\n[... 8 bytes not kept ...]\nmnop"


def test_a_character_is_not_cut_in_two() -> None:
    """G7."""
    assert kept(["é€𝄞".encode() * 10], 20) == "é€𝄞\n[... 72 bytes not kept ...]\né€𝄞"
    assert "\ufffd" not in kept(["é€𝄞".encode() * 100], 31)


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 64))
def test_pieces_do_not_matter_and_every_byte_is_kept_or_counted(pieces: list[bytes], limit: int) -> None:
    """R86: however it is cut into pieces."""
    whole = b"".join(pieces)
    text = kept(pieces, limit)
    assert text == kept([whole], limit)
    text.encode()
    if len(whole) <= limit:
        assert text == readable(whole)
    else:
        head, _, rest = text.partition("\n[... ")
        number, _, tail = rest.partition(" bytes not kept ...]\n")
        assert int(number) >= len(whole) - limit
        assert len(head) <= limit
        assert len(tail) <= limit


@given(st.binary())
def test_any_bytes_become_valid_unicode(data: bytes) -> None:
    """R87, G7."""
    assert "\0" not in readable(data)
    assert readable(data).encode().decode() == readable(data)


def test_memory_does_not_grow_with_what_is_added() -> None:
    """G6."""
    output = Output(1_000)
    for _ in range(1_000):
        output.add(b"x" * 65_536)
    assert output.total == 65_536_000
    assert len(output._tail) + len(output._head) < 3_000


@pytest.fixture
def tree(tmp_path: Path) -> str:
    for name in ("a.py", "b.txt", "x/a.py", "x/y/a.py", "x/y/z/c.md", ".git/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return str(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**", ["a.py", "b.txt", "x/a.py", "x/y/a.py", "x/y/z/c.md"]),
        ("*", ["a.py", "b.txt"]),
        ("**/a.py", ["a.py", "x/a.py", "x/y/a.py"]),
        ("x/**/a.py", ["x/a.py", "x/y/a.py"]),
        ("x/**/**/*.md", ["x/y/z/c.md"]),
        ("./x/*", ["x/a.py"]),
        ("?.{py,txt}", ["a.py", "b.txt"]),
        ("[!a].*", ["b.txt"]),
        ("{a", []),
    ],
)
def test_a_glob_means(tree: str, pattern: str, found: list[str]) -> None:
    assert sorted(matching(tree, pattern)) == found


def test_a_glob_of_many_stars_is_not_slow(tmp_path: Path) -> None:
    """L5: no pattern makes a match cost more than its length times the path's."""
    folder = tmp_path
    for _ in range(20):
        folder = folder / "d"
    folder.mkdir(parents=True)
    (folder / "f").touch()
    assert list(matching(str(tmp_path), "/".join(["**", "d"] * 20) + "/f")) == [os.path.join(*"d" * 20, "f")]
    assert list(matching(str(tmp_path), "/".join(["**"] * 40) + "/g")) == []
