"""Which bytes of a terminal stop a run (F2), decided without a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haltline.cli.keys import ESC_WAIT_S, PASTE_WAIT_S, Key, Keys, Reading, cancels, read, split

ESC = b"\x1b"
CTRL_C = b"\x03"


def presses(data: bytes) -> int:
    """Keys that cancel among bytes after which nothing came."""
    return sum(map(cancels, split(data, quiet=True).keys))


@pytest.mark.parametrize("key", [ESC, CTRL_C], ids=["esc", "ctrl-c"])
def test_esc_and_ctrl_c_cancel(key: bytes) -> None:
    assert presses(key) == 1
    assert presses(key + key) == 2  # the second press ends the grace (F10)
    assert presses(b"some words" + key) == 1
    assert presses(key + b"\r") == (0 if key == ESC else 1)  # ESC and a character are Alt and that character


LETTERS = [bytes([code]) for code in range(256) if code not in (0x03, 0x1B)]
ALT = [ESC + letter for letter in LETTERS] + [ESC + "é".encode(), ESC + "€".encode(), ESC + "🙂".encode()]
ARROWS = [start + end for start in (b"\x1b[", b"\x1bO", b"\x1b[1;2", b"\x1b[1;5") for end in (b"A", b"B", b"C", b"D")]
FUNCTION_KEYS = [
    *(b"\x1bO" + end for end in (b"P", b"Q", b"R", b"S", b"2P", b"5S")),
    *(b"\x1b[" + number + b"~" for number in (b"11", b"15", b"17", b"21", b"24", b"15;5", b"24;2")),
    *(b"\x1b[[" + end for end in (b"A", b"B", b"C", b"D", b"E")),
]
OTHER_KEYS = [
    *(b"\x1b[" + end for end in (b"H", b"F", b"Z", b"1~", b"2~", b"3~", b"5~", b"6~", b"I", b"O")),
    b"\x1bOH",
    b"\x1bOF",
    b"\x1b[M",
    b"\x1b[<0;33;7M",
    b"\x1b[<35;200;90m",
    b"\x1b[M #$",
    b"\x1b[32;33;7M",
    b"\x1b[12;40R",
    b"\x1b[?62;22c",
    b"\x1b[200~",
    b"\x1b[201~",
]


@pytest.mark.parametrize(
    "keys",
    [LETTERS, ALT, ARROWS, FUNCTION_KEYS, OTHER_KEYS, [ESC + key for key in (*ARROWS, *FUNCTION_KEYS)]],
    ids=["a letter or any other byte", "alt and a character", "arrows", "function keys", "other keys", "alt and a key"],
)
def test_no_other_key_cancels(keys: list[bytes]) -> None:
    assert [key for key in keys if presses(key)] == []


def test_a_key_is_one_whatever_it_is_made_of() -> None:
    keys = (
        b"a",
        "é".encode(),
        "🙂".encode(),
        b"\x1b[1;5A",
        b"\x1bOP",
        b"\x1b[[A",
        b"\x1bx",
        b"\x1b\x1b[A",
        CTRL_C,
        ESC,
    )
    assert split(b"".join(keys), quiet=True) == Keys(keys=keys, rest=b"")


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"\x1b[1;\x03", (b"\x1b[1;", CTRL_C)),
        (b"\x1b[\x03", (b"\x1b[", CTRL_C)),
        (b"\x1bO\x03", (b"\x1bO", CTRL_C)),
        (b"\x1b[[\x03", (b"\x1b[[", CTRL_C)),
        (b"\xe2\x82\x03", (b"\xe2", b"\x82", CTRL_C)),
        (b"\x1b\x03", (ESC, CTRL_C)),
        (b"\x1b\x1b", (ESC, ESC)),
        (b"\x1b\x1b[", (ESC, b"\x1b[")),
        (b"\x1b\x1bc", (ESC, b"\x1bc")),
    ],
)
def test_where_bytes_have_two_readings_the_one_that_stops_is_taken(data: bytes, keys: tuple[bytes, ...]) -> None:
    assert split(data, quiet=True).keys == keys
    assert presses(data) > 0


@pytest.mark.parametrize(
    "begun", [b"\x1b", b"\x1b\x1b", b"\x1b[", b"\x1b[1;5", b"\x1b[[", b"\x1bO", b"\x1b\x1b[", b"\xf0\x9f", b"\x1b\xc3"]
)
def test_what_may_go_on_waits_until_nothing_follows(begun: bytes) -> None:
    """An Esc is not known before the bytes of an arrow have had their time to come."""
    assert split(b"a" + begun, quiet=False) == Keys(keys=(b"a",), rest=begun)
    assert split(b"a" + begun, quiet=True).rest == b""


@pytest.mark.parametrize(
    ("key", "cancelling"),
    [
        (b"\x1b[27u", True),
        (b"\x1b[27;1u", True),
        (b"\x1b[27;129u", True),  # with num lock
        (b"\x1b[99;5u", True),
        (b"\x1b[99;5:1u", True),
        (b"\x1b[99:67;69u", True),  # with caps lock, and the other letter of that key
        (b"\x1b[27;5;99~", True),
        (b"\x1b[27;3u", False),  # Alt+Esc
        (b"\x1b[27;1:3u", False),  # let go
        (b"\x1b[99;5:3u", False),
        (b"\x1b[99u", False),
        (b"\x1b[99;3u", False),
        (b"\x1b[99;7u", False),  # Ctrl+Alt+C
        (b"\x1b[27;3;99~", False),
        (b"\x1b[27;5;27~", False),
        (b"\x1b[97;5u", False),
    ],
)
def test_keys_sent_as_numbers_count_by_what_they_are(key: bytes, cancelling: bool) -> None:
    """A program that died may have left a terminal in that mode; Esc and Ctrl+C have to work in it."""
    assert split(key, quiet=False) == Keys(keys=(key,), rest=b"")
    assert cancels(key) is cancelling


PIECES = st.lists(
    st.sampled_from([*ARROWS, *FUNCTION_KEYS, ESC, CTRL_C, b"[", b"O", b"1", b";", b"A", b"c", "€".encode(), b"\xe2"])
)


@given(PIECES, st.integers(min_value=0))
def test_where_a_read_ends_changes_nothing(pieces: list[bytes], where: int) -> None:
    data = b"".join(pieces)
    at = where % (len(data) + 1)
    first = split(data[:at], quiet=False)
    second = split(first.rest + data[at:], quiet=True)
    assert first.keys + second.keys == split(data, quiet=True).keys


@given(st.binary(max_size=40), st.booleans())
def test_every_byte_is_in_one_key_or_in_the_rest(data: bytes, quiet: bool) -> None:
    cut = split(data, quiet=quiet)
    assert b"".join(cut.keys) + cut.rest == data
    assert all(cut.keys)


@given(st.binary(max_size=40))
def test_a_ctrl_c_is_one_whatever_came_before_it(data: bytes) -> None:
    for quiet in (False, True):
        assert split(data + CTRL_C, quiet=quiet).keys[-1] == CTRL_C


PASTES: dict[str, tuple[bytes, ...]] = {
    "an escape in it": (b"\x1b[200~one \x1b two\x1b[201~",),
    "escapes and a ctrl+c in it": (b"\x1b[200~\x1b\x1b\x1b \x03 \x1b[27u\x1b[201~",),
    "an escape at its end": (b"\x1b[200~words\x1b\x1b[201~",),
    "cut at its escape": (b"\x1b[200~one \x1b", b" two\x1b[201~"),
    "cut in its first mark": (b"\x1b", b"[20", b"0~\x1b\x1b", b"\x1b[201~"),
    "cut in its last mark": (b"\x1b[200~\x1b\x1b", b"\x1b", b"[201", b"~"),
    "cut in a character": (b"\x1b[200~\xf0\x9f", b"\x99\x82\x1b[201~"),
    "two of them": (b"\x1b[200~\x1b\x1b[201~\x1b[200~\x1b\x1b[201~",),
}


@pytest.mark.parametrize("pieces", PASTES.values(), ids=list(PASTES))
def test_a_marked_paste_stops_nothing_and_an_esc_behind_it_does(pieces: tuple[bytes, ...]) -> None:
    """Each piece is a read, with no pause between two."""
    reading, keys = Reading(), list[Key]()
    for piece in (*pieces, ESC):
        reading, more = read(reading, piece, quiet=False)
        keys += more
    assert [key for key in keys if key.cancels] == []
    assert reading.wait_s == ESC_WAIT_S
    assert [key.cancels for key in read(reading, b"", quiet=True)[1]] == [True]


def test_a_paste_comes_in_whole_characters() -> None:
    reading, first = read(Reading(), b"\x1b[200~a\xf0\x9f", quiet=False)
    _, second = read(reading, b"\x99\x82b\x1b[201~c", quiet=False)
    assert (*first, *second) == (Key(b"a", pasted=True), Key("🙂b".encode(), pasted=True), Key(b"c"))


def test_a_paste_whose_end_got_lost_is_over_after_a_while() -> None:
    """Else Esc would be dead for good."""
    reading, _ = read(Reading(), b"\x1b[200~words\x1b", quiet=False)
    assert (reading.pasting, reading.wait_s) == (True, PASTE_WAIT_S)
    reading, keys = read(reading, b"", quiet=True)
    assert [key.cancels for key in keys] == [False]
    assert reading == Reading()
    assert [key.cancels for key in read(reading, CTRL_C, quiet=False)[1]] == [True]


@given(st.lists(st.binary(max_size=12), max_size=6), st.booleans())
def test_every_byte_that_was_read_is_in_one_key_or_in_the_rest(pieces: list[bytes], paste: bool) -> None:
    """But for the marks of a paste."""
    reading, came = Reading(), b""
    for piece in (b"\x1b[200~", *pieces) if paste else pieces:
        reading, keys = read(reading, piece, quiet=False)
        came += b"".join(key.data for key in keys)
    came += reading.rest
    for mark in (b"\x1b[200~", b"\x1b[201~"):
        came = came.replace(mark, b"")
    wanted = b"".join(pieces)
    for mark in (b"\x1b[200~", b"\x1b[201~"):
        wanted = wanted.replace(mark, b"")
    assert came == wanted
