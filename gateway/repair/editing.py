"""Turns a change of lines into calls of edit_file whose `old` occurs exactly once.

Rules:
1. Files keep their number of lines: an edit replaces lines by as many.
2. New changes are made before earlier ones are taken back, so that a file never returns to an earlier content on the
   way from one trial to the next; a harness that watches for see-saws would rightly take that for one.
"""

from collections.abc import Iterator, Sequence

import msgspec

Lines = tuple[str, ...]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    old: str
    new: str


def edits(path: str, current: Lines, target: Lines, original: Lines, *, context: int = 0) -> Iterator[Edit]:
    """The edits that lead from `current` to `target`, which has as many lines, in the order of rule 2.

    `context`: lines that each edit takes along on both sides beyond what makes it unique; another way to say the same
    edit, after the first one was refused."""
    changed = [at for at, (now, then) in enumerate(zip(current, target, strict=True)) if now != then]
    changed.sort(key=lambda at: target[at] == original[at])
    lines = list(current)
    for at in changed:
        first, last = _unique_window(lines, at)
        first, last = max(0, first - context), min(len(lines) - 1, last + context)
        old = "\n".join(lines[first : last + 1])
        lines[at] = target[at]
        yield Edit(path=path, old=old, new="\n".join(lines[first : last + 1]))


def apply(lines: Lines, old: str, new: str) -> Lines:
    """What edit_file makes of a file."""
    return tuple("\n".join(lines).replace(old, new, 1).split("\n"))


def _unique_window(lines: Sequence[str], at: int) -> tuple[int, int]:
    """The smallest run of whole lines around `at` whose text occurs once in the file: first and last index."""
    text = "\n".join(lines)
    first = last = at
    while _occurrences(text, "\n".join(lines[first : last + 1])) > 1 and last - first + 1 < len(lines):
        grow_up = first > 0 and (last - at >= at - first or last == len(lines) - 1)
        if grow_up:
            first -= 1
        else:
            last += 1
    return first, last


def _occurrences(text: str, piece: str) -> int:
    """How often a piece occurs, overlaps counted."""
    count, start = 0, text.find(piece)
    while start != -1:
        count += 1
        start = text.find(piece, start + 1)
    return count
