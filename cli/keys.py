"""What the bytes of a terminal in raw mode mean: whole keys, and which of them stop a run (F2). Pure.

A terminal sends no keys but bytes. Esc is one byte, and the same byte begins arrows, function keys and everything
that is pressed together with Alt. So:

1. `split` cuts what was read into whole keys. What may go on is kept as `rest`, to be put before the next read.
2. When nothing has followed for ESC_WAIT_S, `quiet` says so, and what had to wait is taken as it stands: a lone ESC
   byte is the Esc key.
3. `cancels` decides about one whole key, and nothing else does.
4. Where bytes have two readings, the one that stops is taken, because a stop that is not heard is the worse mistake:
   two ESC bytes and nothing more are Esc pressed twice, not Alt+Esc; Ctrl+C is one whatever came before it, as it is
   for a terminal that is not in raw mode.
5. Terminals that were asked to (by another program, which may have died) send Esc and Ctrl+C as numbers. Those count.
6. `read` is `split` for what comes read by read. Text that a terminal marks as pasted is no key, whatever is in it,
   also where the marks are cut in two; a paste that is silent for PASTE_WAIT_S is over, so that one whose end got lost
   does not make us deaf.
"""

import re
from typing import Final

import msgspec

ESC_WAIT_S: Final = 0.05
"""A terminal writes a sequence at once, and a network may cut it in two. "stopping" has to show within 100 ms."""

PASTE_WAIT_S: Final = 1.0
"""Rule 6. Longer than a network holds the rest of a paste back, shorter than a person waits for Esc to work."""

_PASTE_BEGINS: Final = b"\x1b[200~"
_PASTE_ENDS: Final = b"\x1b[201~"

_ESC: Final = 0x1B

_SEQUENCE: Final = re.compile(
    rb"\x1b?\x1b(?:"  # with Alt, some terminals put one ESC more before it
    rb"\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x5a\x5c-\x7e]"  # CSI
    rb"|\[\[[A-E]"  # F1 to F5 of the Linux console
    rb"|O[0-9;]*[\x40-\x7e])"  # SS3: keypad, F1 to F4
)
_BEGUN: Final = re.compile(rb"\x1b?\x1b(?:\[(?:\[|[\x30-\x3f]*[\x20-\x2f]*)|O[0-9;]*)?")
"""All that may still become a sequence."""

_NUMBERED: Final = re.compile(
    rb"\x1b\[(?:"
    rb"(?P<code>\d+)(?::\d*)*(?:;(?P<held>\d*)(?::(?P<kind>\d+))?(?:;[\d:]*)?)?u"  # kitty keyboard protocol
    rb"|27;(?P<xterm_held>\d+);(?P<xterm_code>\d+)~)"  # xterm, modifyOtherKeys
)
_MODIFIERS: Final = 0b111111
"""Shift, Alt, Ctrl, Super, Hyper, Meta; beyond them the locks, which change nothing."""
_CTRL: Final = 0b100
_RELEASED: Final = 3


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, in whole keys, in order."""

    keys: tuple[bytes, ...]
    rest: bytes
    """May go on; empty if `quiet` was said."""


class Key(msgspec.Struct, frozen=True):
    """A whole key, or a piece of pasted text in whole characters."""

    data: bytes
    pasted: bool = False

    @property
    def cancels(self) -> bool:
        return not self.pasted and cancels(self.data)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Where the reading of a terminal stands (rule 6)."""

    rest: bytes = b""
    pasting: bool = False

    @property
    def wait_s(self) -> float | None:
        """How long to wait for more before `read` is told that nothing came; None: nothing is open."""
        if self.pasting:
            return PASTE_WAIT_S
        return ESC_WAIT_S if self.rest else None


def read(reading: Reading, data: bytes, *, quiet: bool) -> tuple[Reading, tuple[Key, ...]]:
    """What `data` adds. `quiet`: nothing has followed for `reading.wait_s`."""
    data = reading.rest + data
    found: list[Key] = []
    pasting = reading.pasting
    while True:
        if pasting:
            text, end, after = data.partition(_PASTE_ENDS)
            whole = len(text) if end or quiet else _whole_text(text)
            if whole:
                found.append(Key(text[:whole], pasted=True))
            if not end:
                return Reading(rest=text[whole:], pasting=not quiet), tuple(found)
            data = after
        cut = split(data, quiet=quiet)
        at = cut.keys.index(_PASTE_BEGINS) if _PASTE_BEGINS in cut.keys else len(cut.keys)
        found += map(Key, cut.keys[:at])
        pasting = at < len(cut.keys)
        if not pasting:
            return Reading(rest=cut.rest), tuple(found)
        data = b"".join(cut.keys[at + 1 :]) + cut.rest


def _whole_text(text: bytes) -> int:
    """Bytes of `text` before what may be the begin of the end mark, or of a character."""
    begun = next(n for n in range(len(_PASTE_ENDS) - 1, -1, -1) if text.endswith(_PASTE_ENDS[:n]))
    whole = len(text) - begun
    for at in range(max(0, whole - 3), whole):
        if _character(text[:whole], at, quiet=False) == 0:
            return at
    return whole


def cancels(key: bytes) -> bool:
    """Whether this whole key stops a run: Esc and Ctrl+C do; letters, Alt+anything, arrows and function keys do not."""
    if key in (b"\x1b", b"\x03"):
        return True
    numbered = _NUMBERED.fullmatch(key)
    if numbered is None or int(numbered["kind"] or 1) == _RELEASED:
        return False
    code = int(numbered["code"] or numbered["xterm_code"])
    held = (int(numbered["held"] or numbered["xterm_held"] or 1) - 1) & _MODIFIERS
    return (code == _ESC and held == 0) or (code == ord("c") and held == _CTRL)


def split(data: bytes, *, quiet: bool) -> Keys:
    """Rules 1 and 2. Every byte of `data` is in one key or in the rest."""
    keys: list[bytes] = []
    at = 0
    while at < len(data):
        length = _length(data, at, quiet=quiet)
        if length == 0:
            break
        keys.append(data[at : at + length])
        at += length
    return Keys(keys=tuple(keys), rest=data[at:])


def _length(data: bytes, at: int, *, quiet: bool) -> int:
    """Bytes of the key that begins at `at`; 0: not decided yet."""
    if data[at] != _ESC:
        return _character(data, at, quiet=quiet)
    sequence = _SEQUENCE.match(data, at)
    if sequence is not None:
        return len(sequence[0])
    begun = _BEGUN.match(data, at)
    assert begun is not None, "it begins with ESC"
    if begun.end() == len(data) and not quiet:
        return 0
    if data[at + 1 : at + 2] in (b"", b"\x1b", b"\x03"):  # rules 2 and 4
        return 1
    if len(begun[0]) > 1:  # Alt+[, Alt+O, or a sequence that broke off
        return len(begun[0])
    character = _character(data, at + 1, quiet=quiet)
    return 1 + character if character else 0  # Alt and a character


def _character(data: bytes, at: int, *, quiet: bool) -> int:
    """Bytes of the UTF-8 character at `at`; 1 for what is none; 0: the rest has not come."""
    first = data[at]
    length = 1 if first < 0xC2 or first > 0xF4 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    found = data[at + 1 : at + length]
    continued = next((n for n, byte in enumerate(found) if byte & 0xC0 != 0x80), len(found))
    if continued + 1 == length:
        return length
    if continued == len(found) and not quiet:
        return 0
    return 1
