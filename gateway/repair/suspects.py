"""Where the mistake may be, and what to try: evidence of the failing test first, likeliest mistakes first.

Distance of a line from the evidence:
    0   a line of the failing test's traceback, outside the tests, or one of the CONTEXT lines before it: a line that
        raises stands below the condition that led there
    1   the line's function is mentioned by the innermost such lines, which may be the failing lines of the test
    2   its function stands in the traceback, or is mentioned by its other lines, elsewhere in the failing test, or by a
        function of distance 1
    n   its function is mentioned by one of distance n - 1
    FAR everything else in the files that the test reaches by imports

Candidates go through one file at a time, near distances of all files before far ones, so that a file is left (and put
back as it was) at most once a round.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator

import msgspec

from haltline.gateway.mutations import KINDS, code_lines, mutations
from haltline.gateway.repair.commands import is_test
from haltline.gateway.repair.facts import Definition, Facts, Import, facts
from haltline.gateway.repair.knowledge import Change, Knowledge
from haltline.gateway.repair.report import Failure, Frame

CONTEXT = 2
"""Lines before a line of the traceback that count as part of it."""
NEAR = 4
"""Distances up to this belong to the first round."""
FAR = 9
DISTANCE_WEIGHT = 3
"""One step away from the evidence weighs as much as three kinds of mistakes (mutations.KINDS) further down the list."""
MOST_FILES = 24
"""Files read for one failure."""
SET_UP = frozenset({"setUp", "setUpClass", "setUpModule", "asyncSetUp", "setup_method", "setup_class", "setup_module"})

_WORD = re.compile(r"[^\W\d]\w*")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One mutation of one line as it was first read."""

    change: Change
    before: str
    description: str


def files_to_read(knowledge: Knowledge, failures: Iterable[Failure]) -> list[str]:
    """The files that the evidence leads to and that have not been read: of the tracebacks, then what those import."""
    wanted = [path for failure in failures for path in _evidence_files(knowledge, failure)]
    reached = list(dict.fromkeys(wanted))
    for path in reached:  # grows while it is walked
        known = _facts(knowledge, path)
        for found in known.imports if known is not None else ():
            reached.extend(imported for imported in _imported(knowledge, path, found) if imported not in reached)
    return [path for path in reached[:MOST_FILES] if path not in knowledge.current and path not in knowledge.unreadable]


def candidates(knowledge: Knowledge, failure: Failure) -> list[Candidate]:
    """All that can be tried for a failing test, in order. Not checked for being Python."""
    modules = [path for path in knowledge.original if not is_test(path)]
    distances = _distances(knowledge, failure, modules)
    ranked: list[tuple[int, str, int, Candidate]] = []
    for path in modules:
        for number, line in _code(knowledge, path):
            distance = distances.get((path, number), FAR)
            for mutation in mutations(line):
                candidate = Candidate(
                    change=Change(path=path, line_no=number, text=mutation.line),
                    before=line,
                    description=mutation.description,
                )
                score = DISTANCE_WEIGHT * distance + KINDS.index(mutation.kind)
                ranked.append((0 if distance <= NEAR else 1, path, score, candidate))
    best = {path: min(score for _, of, score, _ in ranked if of == path) for _, path, _, _ in ranked}
    ranked.sort(key=lambda row: (row[0], best[row[1]], row[1], row[2], row[3].change.line_no))
    return [candidate for _, _, _, candidate in ranked]


def known_path(knowledge: Knowledge, frame: Frame) -> str | None:
    """The repository's file that a traceback names; None: it belongs to somebody else."""
    fitting = [path for path in knowledge.paths or () if frame.path == path or frame.path.endswith(f"/{path}")]
    return max(fitting, key=len, default=None)


def _evidence_files(knowledge: Knowledge, failure: Failure) -> list[str]:
    """Files of the traceback, the innermost first; where it names none of ours, all test files."""
    found = [path for frame in reversed(failure.frames) if (path := known_path(knowledge, frame)) is not None]
    return found or list(knowledge.place.tests)


def _source(knowledge: Knowledge, path: str) -> str:
    return "\n".join(knowledge.original.get(path, ()))


def _facts(knowledge: Knowledge, path: str) -> Facts | None:
    return facts(_source(knowledge, path)) if path in knowledge.original else None


def _code(knowledge: Knowledge, path: str) -> Iterator[tuple[int, str]]:
    """Numbered lines of a module that may be changed; none of a file that is not Python."""
    try:
        numbers = code_lines(_source(knowledge, path))
    except (SyntaxError, ValueError):
        return
    for number, line in enumerate(knowledge.original[path], start=1):
        if number in numbers:
            yield number, line


def _distances(knowledge: Knowledge, failure: Failure, modules: list[str]) -> dict[tuple[str, int], int]:
    """Distance of each line (path, number) that is nearer than FAR."""
    by_name: dict[str, list[tuple[str, Definition]]] = {}
    for path in modules:
        known = _facts(knowledge, path)
        for definition in known.definitions if known is not None else ():
            names = {definition.qualified} if definition.is_special else {definition.qualified, definition.name}
            for name in names:
                by_name.setdefault(name, []).append((path, definition))

    distances: dict[tuple[str, int], int] = {}
    mentioned: set[str] = set()
    mentioned_later = set(_mentioned_by_test(knowledge, failure))
    for frame in reversed(failure.frames):
        framed = known_path(knowledge, frame)
        if framed is None or framed not in knowledge.original:
            continue
        words: set[str] = set()
        for number in range(max(1, frame.line - CONTEXT), frame.line + 1):
            words.update(_WORD.findall(knowledge.original[framed][number - 1]))
            if framed in modules:
                distances[framed, number] = 0
        mentioned_later |= {frame.function} | words
        mentioned = mentioned or words
    for distance in range(1, FAR):
        reached = [found for name in sorted(mentioned) for found in by_name.pop(name, ())]
        mentioned = mentioned_later.union(*(definition.mentions for _, definition in reached))
        mentioned_later = set[str]()
        if not reached and not mentioned:
            break
        for path, definition in reached:
            for number in range(definition.first, definition.last + 1):
                distances.setdefault((path, number), distance)
    return distances


def _mentioned_by_test(knowledge: Knowledge, failure: Failure) -> frozenset[str]:
    """Names that the failing test, its preparation, and its helpers in test files mention."""
    helpers: dict[str, list[Definition]] = {}
    for path in knowledge.original:
        known = _facts(knowledge, path) if is_test(path) else None
        for definition in known.definitions if known is not None else ():
            helpers.setdefault(definition.name, []).append(definition)
    mentioned: set[str] = set()
    open_names = {failure.function, *SET_UP}
    while open_names:
        for definition in helpers.pop(open_names.pop(), ()):
            open_names |= {name for name in definition.mentions if name in helpers}
            mentioned |= definition.mentions
    return frozenset(mentioned)


def _imported(knowledge: Knowledge, importer: str, found: Import) -> list[str]:
    """The repository's files that an import may load."""
    folder = posixpath.dirname(importer)
    if found.level:
        for _ in range(found.level - 1):
            folder = posixpath.dirname(folder)
        roots = [folder]
    else:
        roots = ["", "src", folder]
    inner = found.module.replace(".", "/")
    names = [inner, posixpath.join(inner, found.name)] if found.name else [inner]
    wanted = {
        posixpath.join(root, name + end).lstrip("/")
        for root in roots
        for name in names
        for end in (".py", "/__init__.py")
    }
    return [path for path in knowledge.paths or () if path in wanted]
