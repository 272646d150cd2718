"""Writes the pages of docs/ that follow from the code: `.venv/bin/python docs/generate.py`.

tests/packaging/test_docs.py fails when a page is not what this writes.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from pathlib import Path

import msgspec

from haltline.protocol import events, exits, kinds
from haltline.protocol.conversation import UserMessage
from haltline.protocol.events import AnyEvent
from haltline.supervisor import failures

DOCS = Path(__file__).resolve().parent
sys.path += [str(DOCS), str(DOCS.parent / "tests")]  # the samples are those of the tests

import configuration_page  # noqa: E402
from support.word_samples import FEEDBACK, TOOL_WORDS  # noqa: E402


def events_page() -> str:
    lines = [
        "# Events",
        "",
        "One JSON object per line of `-o stream-json`, and one row each in the journal. Every line has `v` (1),",
        "`type`, `seq` (from 1, strictly rising per session, gaps allowed), `ts` (RFC 3339 with milliseconds), ",
        "`session_id`, `run` (from 1) and `turn` (0 before the first request). Ignore fields and types that you do not",
        "know; absent is null.",
    ]
    for event in typing.get_args(AnyEvent):
        lines += ["", f"## `{event.__struct_config__.tag}`", "", *_fields(event)]
    lines += ["", "## Parts", ""]
    for part in (events.Limits, events.LimitTripped, events.Usage, events.Counters, events.CancelReceipt):
        names = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(part))
        lines.append(f"* **{part.__name__}**: {names}. {_words(part)}")
    lines += ["", "## Rungs", "", "How far a stop had to go, from mild to hard; a receipt names the hardest.", ""]
    lines += ["| rung | what it took |", "|---|---|"]
    lines += [f"| `{rung}` | {meaning} |" for rung, meaning in kinds.RUNG_MEANINGS.items()]
    codes = sorted((value, name) for name, value in vars(exits).items() if name.isupper() and isinstance(value, int))
    lines += ["", "## Exit codes", "", "| code | name |", "|---|---|"]
    lines += [f"| {value} | {name.lower().replace('_', ' ')} |" for value, name in codes]
    return "\n".join(lines) + "\n"


def failures_page() -> str:
    lines = [
        "# Failures",
        "",
        "What was seen, the kind that it becomes, who can do something about it, and what is done.",
        "",
        "| seen | kind | owner | handling |",
        "|---|---|---|---|",
    ]
    for row in failures.explain():
        kind = row.kind if row.subkind is None else f"{row.kind}/{row.subkind}"
        seen = row.seen.replace("|", "\\|")
        lines.append(f"| {seen} | {kind} | {row.owner} | {row.handling} |")
    return "\n".join(lines) + "\n"


def words_page() -> str:
    lines = [
        "# Words to the model",
        "",
        "Every text that haltline itself writes to a model, by situation, with sample values. A failed result begins",
        "with `error:`, says whether anything was changed, and gives the next action. A message stands in the history",
        "as one of the user's, tagged with why haltline wrote it; all other texts but the first are results of calls.",
    ]
    for title, samples in (("From the supervisor", FEEDBACK), ("From the tool worker", TOOL_WORDS)):
        lines += ["", f"## {title}", "", "| situation | what the model reads |", "|---|---|"]
        for sample in samples:
            tag = f"message `{sample.said.tag}`: " if isinstance(sample.said, UserMessage) else ""
            lines.append(f"| {sample.situation} | {tag}{_cell(sample.text)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text as it is, in one cell of a table."""
    for character in "\\|*[]<>`":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", "<br>")


PAGES = {
    "configuration.md": configuration_page.page,
    "events.md": events_page,
    "failures.md": failures_page,
    "words.md": words_page,
}


def _fields(struct: type[msgspec.Struct]) -> list[str]:
    words = _words(struct)
    lines = [words, ""] if words else []
    rows = [f"| `{field.name}` | {_type(field.type)} |" for field in msgspec.structs.fields(struct)]
    return [*lines, "| field | value |", "|---|---|", *rows] if rows else lines


def _words(struct: type[msgspec.Struct]) -> str:
    """The docstring in one line; "" where the class has none of its own."""
    return " ".join(inspect.cleandoc(struct.__doc__ or "").split()) if "__doc__" in vars(struct) else ""


def _type(kind: object) -> str:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(kind))
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if part is type(None) else _type(part) for part in typing.get_args(kind))
    if isinstance(kind, typing.NewType):
        return _type(kind.__supertype__)
    return {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}.get(
        getattr(kind, "__name__", ""), getattr(kind, "__name__", str(kind))
    )


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())


if __name__ == "__main__":
    main()
