"""What a question is about, in full but bounded: the command, the change of a file, the new file. Pure.

The question itself names the tool and the head of its path or command (supervisor/approval.py); here is what a person
has to see beside it before saying yes. Nothing is left out without saying how much.
"""

import difflib
from typing import Final

import msgspec

from haltline.cli.printable import for_screen
from haltline.protocol.tools import TOOLS, EditFile, Glob, ReadFile, Search, Shell, WriteFile

LINES: Final = 20
"""A question and its keys fit a terminal of 24 lines."""
_HEAD_LINES: Final = 12
"""Of a text that is cut; the rest of LINES is its tail, where a command may hide its worst."""
_CHARACTERS: Final = 400
"""Of one line, five lines of a terminal; cut in the middle as well."""
_HEAD_CHARACTERS: Final = 300
_GOES_ON: Final = "(in the background: it goes on after the call, until the session ends or a run is stopped)"
_DIFFED_CHARACTERS: Final = 100_000
"""Both texts of an edit together; comparing more would take seconds."""


def in_full(name: str, arguments_raw: str) -> tuple[str, ...]:
    """Lines to stand below the question; none where it says everything. Works on whatever a model wrote."""
    tool = TOOLS.get(name)
    if tool is None:
        return ()
    try:
        arguments = msgspec.json.decode(arguments_raw, type=tool.arguments)
    except (msgspec.DecodeError, UnicodeError):  # repaired before it was asked about: shown as it came
        return bounded([arguments_raw])
    match arguments:
        case Shell(command=command, background=background):
            lines = command.rstrip("\n").split("\n")
            shown = () if len(lines) == 1 and len(command) <= _HEAD_CHARACTERS else bounded(lines)
            return (_GOES_ON, *shown) if background else shown
        case EditFile(old=old, new=new):
            return bounded(_diff(old, new))
        case WriteFile(content=content):
            lines = content.splitlines()
            size = len(content.encode("utf-8", "replace"))
            count = f"{len(lines):,} line{'' if len(lines) == 1 else 's'}"
            return (f"{size:,} bytes, {count}", *bounded([f"+{line}" for line in lines]))
        case ReadFile() | Glob() | Search():
            return ()
        case _:
            raise AssertionError(f"a tool without a form: {name}")


def _diff(old: str, new: str) -> list[str]:
    """What goes and what comes, with three lines around each change, as `diff -u` shows it."""
    before, after = old.splitlines(), new.splitlines()
    if len(old) + len(new) > _DIFFED_CHARACTERS:
        return [*(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    marked = difflib.unified_diff(before, after, lineterm="")
    return [line for line in list(marked)[2:] if not line.startswith("@@")] or ["(only line ends change)"]


def bounded(lines: list[str]) -> tuple[str, ...]:
    """At most LINES lines, harmless for a terminal."""
    if len(lines) > LINES:
        tail = LINES - _HEAD_LINES - 1
        left_out = len(lines) - _HEAD_LINES - tail
        lines = [*lines[:_HEAD_LINES], f"… {left_out:,} lines left out …", *lines[-tail:]]
    return tuple(for_screen(_cut(line)) for line in lines)


def _cut(line: str) -> str:
    if len(line) <= _CHARACTERS:
        return line
    tail = _CHARACTERS - _HEAD_CHARACTERS
    left_out = len(line) - _CHARACTERS
    return f"{line[:_HEAD_CHARACTERS]}… {left_out:,} characters left out …{line[-tail:]}"
