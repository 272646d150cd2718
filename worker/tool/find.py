"""Walks folders for `glob` and `search`: a program of its own, standard library only.

It runs as `python -I -S find.py`, its request as JSON on stdin, findings as JSON lines on stdout. A process of its own
because a regular expression may never end, holds the interpreter while it runs, and can be ended only with the process;
and because a walk over a slow disk cannot be interrupted in a thread.

1. `.git` is skipped, and so are symbolic links to folders: a walk ends, and stays below where it began.
2. `search` reads regular files only, no links (they may lead out of the workspace), nothing binary or huge.
3. Matches are bounded in number and in length; the last line says what was left out.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence

MATCHES = 500
LINE_CHARACTERS = 300
FILE_BYTES = 8_388_608
BINARY_PROBE_BYTES = 8_192
SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn"})

Emit = Callable[[dict[str, object]], None]


def main() -> None:
    request = json.load(sys.stdin.buffer)
    run(request, lambda finding: print(json.dumps(finding), flush=True))


def run(request: dict[str, str], emit: Emit) -> None:
    """`request`: tool (glob or search), root, pattern, glob. Emits {path} or {path, line, text}, then {end}."""
    root = request["root"]
    if not os.path.exists(root):
        emit({"end": {"missing": True}})
        return
    if request["tool"] == "glob":
        paths = list(_first(matching(root, request["pattern"]), MATCHES + 1))
        for path in paths[:MATCHES]:
            emit({"path": path})
        emit({"end": {"more": len(paths) > MATCHES}})
        return
    try:
        expression = re.compile(request["pattern"])
    except re.error as error:
        emit({"end": {"bad_pattern": str(error)}})
        return
    _search(root, expression, request["glob"], emit)


def matching(root: str, pattern: str) -> Iterator[str]:
    """Paths below `root`, relative to it, sorted within each folder, that match `pattern`; files and links, no folders.

    `*`, `?`, `[...]` stay within a name, `**` stands for any number of folders, `{a,b}` for either.
    """
    if os.path.isfile(root):
        yield os.path.basename(root)
        return
    patterns = [_compiled(alternative) for alternative in _alternatives(pattern)]

    def may_hold(folder: str) -> bool:
        return any(_reached(compiled, folder.split("/")) for compiled in patterns)

    for path in _walk(root, may_hold):
        if any(len(compiled) in _reached(compiled, path.split("/")) for compiled in patterns):
            yield path


def _search(root: str, expression: re.Pattern[str], glob: str, emit: Emit) -> None:
    folder = os.path.dirname(root) if os.path.isfile(root) else root
    found = files = skipped = 0
    for path in matching(root, glob):
        data = _searchable(os.path.join(folder, path))
        if data is None:
            skipped += 1
            continue
        files += 1
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), start=1):
            if expression.search(line) is None:
                continue
            found += 1
            if found > MATCHES:
                emit({"end": {"more": True, "files": files, "skipped": skipped}})
                return
            emit({"path": path, "line": number, "text": _shortened(line.rstrip("\r"))})
    emit({"end": {"more": False, "files": files, "skipped": skipped}})


def _searchable(path: str) -> bytes | None:
    """Rule 2."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # a link, gone, or not readable
        return None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_BYTES:
            return None
        data = file.read(FILE_BYTES)
    return None if b"\0" in data[:BINARY_PROBE_BYTES] else data


def _walk(root: str, enter: Callable[[str], bool]) -> Iterator[str]:
    """Every file below `root`, relative, folder by folder, names in order; folders only where `enter` (rule 1)."""
    folders = [""]
    while folders:
        folder = folders.pop()
        below: list[str] = []
        try:
            with os.scandir(os.path.join(root, folder)) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:  # gone meanwhile, or not ours to read
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield path
            elif entry.name not in SKIPPED_FOLDERS and enter(path):
                below.append(path)
        folders.extend(reversed(below))


Compiled = Sequence["re.Pattern[str] | None"]
"""One expression per name of a path; None stands for `**`."""


def _compiled(pattern: str) -> Compiled:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _reached(compiled: Compiled, parts: Sequence[str]) -> set[int]:
    """How far into the pattern the names of a path lead: its length if they fit, empty if nothing below can fit.

    At most len(compiled) * len(parts) steps, whatever the pattern.
    """
    reached = _skip_any(compiled, {0})
    for part in parts:
        following: set[int] = set()
        for at in reached:
            if at == len(compiled):
                continue
            expression = compiled[at]
            if expression is None:
                following.add(at)
            elif expression.match(part):
                following.add(at + 1)
        reached = _skip_any(compiled, following)
    return reached


def _skip_any(compiled: Compiled, reached: set[int]) -> set[int]:
    """`**` may also stand for no folder at all."""
    result = set(reached)
    for at in reached:
        following = at
        while following < len(compiled) and compiled[following] is None:
            following += 1
            result.add(following)
    return result


def _alternatives(pattern: str, limit: int = 64) -> list[str]:
    """`a{b,c}` as `ab`, `ac`; at most `limit` of them, unbalanced braces stand for themselves."""
    done: list[str] = []
    waiting = [pattern]
    while waiting and len(done) + len(waiting) <= limit:
        current = waiting.pop(0)
        found = re.search(r"\{([^{}]*,[^{}]*)\}", current)
        if found is None:
            done.append(current)
            continue
        before, after = current[: found.start()], current[found.end() :]
        waiting.extend(before + choice + after for choice in found.group(1).split(","))
    return done + waiting


def _shortened(line: str) -> str:
    return line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + " [...]"


def _first(paths: Iterator[str], count: int) -> Iterator[str]:
    for _ in range(count):
        path = next(paths, None)
        if path is None:
            return
        yield path


if __name__ == "__main__":
    main()
