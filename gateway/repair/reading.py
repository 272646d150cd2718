"""Reads what the tools answered. Tolerant: whatever is not plainly good is a failure."""

import re

import msgspec

_NUMBERED = re.compile(r"\s*(\d+)\t(.*)", re.DOTALL)
_EXIT_CODE = re.compile(r"\[exit code (-?\d+)\]")
_KILLED = re.compile(r"\[killed by \w+")
_TIMED_OUT = re.compile(r"\[(?:timed out|stopped) after\b")
_RUN_STOPPED = re.compile(r"because the run was stopped")
_CLOSING_LINES = 4
"""The verdict of a shell result stands in one of its last lines."""


KILLED = -1


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """What read_file showed of a file."""

    first: int
    """Number of the first line, from 1."""
    lines: tuple[str, ...]
    more: bool
    """The file goes on after this."""


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int | None
    """KILLED: ended by a signal. None: it did not end by itself, or was not run."""
    timed_out: bool
    output: str


def excerpt(text: str) -> Excerpt | None:
    """The numbered lines of a read_file result; None: it shows none."""
    numbers: list[int] = []
    lines: list[str] = []
    rest: list[str] = []
    for line in text.split("\n"):
        numbered = _NUMBERED.fullmatch(line) if not rest else None
        if numbered is None:
            rest.append(line)
            continue
        numbers.append(int(numbered[1]))
        lines.append(numbered[2].removesuffix("\r"))
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    return Excerpt(first=numbers[0], lines=tuple(lines), more=any(line.startswith("[") for line in rest))


def shell_result(text: str) -> ShellResult:
    closing = "\n".join(text.rstrip().split("\n")[-_CLOSING_LINES:])
    codes = [int(code) for code in _EXIT_CODE.findall(closing)] or [KILLED for _ in _KILLED.findall(closing)]
    return ShellResult(
        exit_code=codes[-1] if codes else None,
        timed_out=_TIMED_OUT.search(closing) is not None,
        output=text,
    )


def is_interrupted(text: str) -> bool:
    """The call was cut short, or not begun, since somebody stopped the run: it says nothing about what it was for."""
    return _RUN_STOPPED.search(text) is not None


def is_edited(text: str) -> bool:
    """The result of edit_file says that the edit was made."""
    return text.lstrip().startswith("edited")


def python_paths(text: str) -> tuple[str, ...]:
    """The Python files that a glob result lists, in its order."""
    paths = (line.strip().removeprefix("./") for line in text.split("\n"))
    return tuple(path for path in paths if path.endswith(".py") and not path.startswith(("[", "error:")))
