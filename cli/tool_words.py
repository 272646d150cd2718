"""A tool call in one line of words: its name and the head of what matters among its arguments. Pure."""

import contextlib
import re
from typing import Final

import msgspec

from haltline.cli.printable import fit, one_line
from haltline.protocol.events import ToolResult

HEAD_COLUMNS: Final = 80
_RAW_LOOKED_AT: Final = 4096
"""Characters of raw arguments that are looked at where they are no JSON object; they may be megabytes long."""


class _Heads(msgspec.Struct, frozen=True):
    """The arguments that tell one call from another."""

    command: str | None = None
    pattern: str | None = None
    path: str | None = None


_BEGUN: Final = re.compile(r'"(?:command|pattern|path)"\s*:\s*"((?:[^"\\]|\\.)*)')
"""The first of them in a JSON object of which only the beginning is there."""
_LONGEST_ESCAPE: Final = len("\\ud83d\\ude0")
"""A pair of surrogates without its last character."""

_decoder: Final = msgspec.json.Decoder(_Heads)

_STATUS_WORDS: Final = {
    "timed_out": "timed out",
    "refused_loop": "not run: the same call again",
    "refused_unknown": "not run: no such tool",
    "refused_arguments": "not run: its arguments are not JSON",
    "refused_schema": "not run: its arguments do not fit",
    "refused_incomplete": "not run: the response was cut inside it",
    "denied": "denied",
    "cancelled_not_started": "not started",
    "cancelled_killed": "stopped",
    "outcome_unknown": "outcome unknown",
}


def head(name: str, arguments_raw: str) -> str:
    """`shell pytest -q`: one line, harmless, at most HEAD_COLUMNS wide."""
    try:
        heads = _decoder.decode(arguments_raw)
        said = heads.command or heads.pattern or heads.path or ""
    except (msgspec.DecodeError, UnicodeError):
        said = arguments_raw
    return fit(one_line(f"{name} {said[:_RAW_LOOKED_AT]}"), HEAD_COLUMNS)


def of_listing(tool: str) -> str:
    """As `head`, of what a supervisor lists: a name and the beginning of its arguments, which may end anywhere."""
    name, _, arguments_raw = tool.partition(" ")
    said = _BEGUN.search(arguments_raw)
    return head(name, arguments_raw) if said is None else fit(one_line(f"{name} {_text(said[1])}"), HEAD_COLUMNS)


def _text(begun: str) -> str:
    """What a JSON string that may be cut says, as far as it is whole; `begun`: what follows its first quote."""
    for cut in range(min(len(begun), _LONGEST_ESCAPE) + 1):
        with contextlib.suppress(msgspec.DecodeError, UnicodeError):
            return msgspec.json.decode(f'"{begun[: len(begun) - cut]}"', type=str)
    return begun


def outcome(result: ToolResult) -> str:
    """`done, 1.2 s` or why not."""
    words = _STATUS_WORDS.get(result.status)
    if words is None:
        words = "done" if result.ok else "failed" if result.exit_code is None else f"exit {result.exit_code}"
    return f"{words}, {seconds(result.ms)}" if result.ms else words


def seconds(ms: float) -> str:
    """`12 ms`, `1.2 s`, `3 min 20 s`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, rest = divmod(round(ms / 1000), 60)
    return f"{minutes} min {rest:02} s"
