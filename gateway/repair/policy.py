"""Decides the model's next response from what it knows. Pure.

The order of business, each step only when what comes before is known:
1. Look: list the Python files, find out which test framework they use.
2. Run the whole suite; if the framework is not there or finds nothing, the other one; if it hangs, again in a way that
   shows where.
3. Read the files of the failing test's traceback, and what they import.
4. Try candidates (suspects.py), one changed line at a time. After each run the failing test and, if it passes, the
   whole suite: a change that mends one test and breaks another is not the right one. One response carries several
   trials; they are executed in order.
5. When a trial has passed but others came after it, go back to its change and run the whole suite once more.
6. Conclude: mended, or honestly not, with every file as it was.
"""

import re
from collections.abc import Container, Iterator

import msgspec

from haltline.gateway.mutations import is_python
from haltline.gateway.repair.commands import Command, Framework, suite, trial
from haltline.gateway.repair.editing import Lines, edits
from haltline.gateway.repair.knowledge import Change, Changes, Knowledge, Run
from haltline.gateway.repair.report import Failure
from haltline.gateway.repair.suspects import Candidate, candidates, files_to_read, known_path

NEEDED_TOOLS = ("shell", "glob", "search", "read_file", "edit_file")
MOST_TRIALS_AT_ONCE = 4
"""Trials in one response. It begins with one and then two, as the first guess is often right."""
MOST_TURNS = 96
"""It gives up by then; agents commonly allow 100 turns, and two are needed to put things back."""
MOST_ATTEMPTS = 2
"""Edits, with different surroundings, by which one change is attempted."""
MOST_REFUSALS = 3
"""Responses in a row whose edits, or runs, come to nothing before it gives up."""
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
READ_AT_ONCE = 6
"""Files read by one response."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call."""

    tool: str
    arguments: dict[str, str | int]


class Response(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    asks: tuple[Ask, ...] = ()
    """Empty: this ends the run."""


def decide(knowledge: Knowledge, tools: tuple[str, ...]) -> Response:
    """The next response."""
    missing = [name for name in NEEDED_TOOLS if name not in tools]
    if missing:
        return _give_up(knowledge, f"I was not given the tools that this needs: {', '.join(missing)}.")
    if knowledge.paths is None:
        return _look()
    if not knowledge.paths:
        return _give_up(knowledge, "I found no Python files here.")
    runs = knowledge.suite_runs()
    if not runs:
        return _first_run(knowledge)
    if len(runs) < 4 and (again := _better_first_run(knowledge, runs[-1])) is not None:
        return again
    return _after_first_runs(knowledge, runs)


def _look() -> Response:
    return Response(
        text="I will look at what is here and how it is tested.",
        asks=(
            Ask(tool="glob", arguments={"pattern": "**/*.py"}),
            Ask(
                tool="search",
                arguments={"pattern": r"^\s*(import|from) (unittest|pytest)\b", "glob": "**/*.py"},
            ),
        ),
    )


def _first_run(knowledge: Knowledge) -> Response:
    imports = knowledge.imports_of_frameworks or ""
    files = [path for path in knowledge.place.tests if not path.endswith(("__init__.py", "conftest.py"))]
    plain = all(path in imports for path in files) and "import pytest" not in imports
    framework: Framework = "unittest" if files and plain else "pytest"
    return Response(
        text=f"I run all tests with {framework}.",
        asks=(_shell(suite(framework, knowledge.place, "as it is", first=True)),),
    )


def _better_first_run(knowledge: Knowledge, run: Run) -> Response | None:
    """Another first run, where the last one told nothing; None: it told enough."""
    if run.changes:
        return None
    if run.hung and not run.report.failures:
        if sum(each.hung for each in knowledge.suite_runs()) > 1:
            return None
        return Response(
            text="The tests do not end. I run them again so that they show where they hang.",
            asks=(_shell(suite(run.framework, knowledge.place, "to see where it hangs", hangs=True)),),
        )
    tried = {each.framework for each in knowledge.suite_runs()}
    if run.told_nothing and len(tried) == 1:
        other: Framework = "unittest" if run.framework == "pytest" else "pytest"
        return Response(
            text=f"{run.framework} does not run here, so I try {other}.",
            asks=(_shell(suite(other, knowledge.place, "as it is", first=True)),),
        )
    return None


def _after_first_runs(knowledge: Knowledge, runs: list[Run]) -> Response:
    first = next((run for run in runs if run.report.failures), runs[-1])
    if first.passed:
        return Response(text=f"Nothing to mend: {_count(first)} pass.")
    if not first.report.failures:
        return _give_up(knowledge, f"The tests cannot be run: {_last_line(first)}")
    failure = _chosen(knowledge, first)
    if (absent := _absent_module(failure)) is not None and not knowledge.place.has_module(absent):
        return _give_up(knowledge, f"The tests cannot be run: {failure.message}.")
    if knowledge.unfinished:
        return _read_on(knowledge)
    if wanted := files_to_read(knowledge, (failure,)):
        names = ", ".join(wanted[:READ_AT_ONCE])
        return Response(
            text=f"{_named(failure)} fails: {failure.message or 'no message'}. I read {names}.",
            asks=tuple(_read(path) for path in wanted[:READ_AT_ONCE]),
        )
    if knowledge.stale and knowledge.refusals_in_a_row < MOST_REFUSALS:
        return Response(
            text=f"The edit was not made ({knowledge.last_refusal}). I read the file again and go on from there.",
            asks=tuple(_read(path) for path in sorted(knowledge.stale)),
        )
    return _search(knowledge, first, failure)


def _absent_module(failure: Failure) -> str | None:
    """The package that an import did not find; no edit of a line brings it here unless it is one of the place's own."""
    found = _NO_MODULE.search(failure.message or "")
    return None if found is None else found[1]


def _search(knowledge: Knowledge, first: Run, failure: Failure) -> Response:
    """Steps 4 to 6."""
    trials = knowledge.runs[knowledge.runs.index(first) + 1 :]
    tried = {run.changes: run for run in trials}
    for changes, run in tried.items():
        if not run.passed or not changes:
            continue
        if changes == knowledge.changes:
            return _mended(knowledge, failure, run)
        return Response(
            text=f"With {_told(knowledge, changes)} all tests pass. I go back to that and run them once more.",
            asks=(
                *_edits(knowledge, changes),
                _shell(suite(first.framework, knowledge.place, f"with {_places(changes)}")),
            ),
        )
    if knowledge.refusals_in_a_row >= MOST_REFUSALS:
        return _give_up(knowledge, f"My edits are not made: {knowledge.last_refusal}")
    if len(trials) >= MOST_REFUSALS and not any(map(_was_run, trials[-MOST_REFUSALS:])):
        return _give_up(knowledge, f"The tests are not run any more: {_last_line(trials[-1])}")
    chosen = _next_candidates(knowledge, failure, tried, min(len(tried) + 1, MOST_TRIALS_AT_ONCE))
    if chosen and knowledge.turns < MOST_TURNS:
        return _try(knowledge, first, failure, chosen)
    reason = "I tried every small change that I know" if not chosen else "I ran out of turns"
    return _give_up(knowledge, f"{_named(failure)} fails: {failure.message}. {reason}; {len(tried)} did not help.")


def _was_run(run: Run) -> bool:
    return run.result.exit_code is not None or run.hung


def _next_candidates(knowledge: Knowledge, failure: Failure, tried: Container[Changes], size: int) -> list[Candidate]:
    chosen: list[Candidate] = []
    for candidate in candidates(knowledge, failure):
        if len(chosen) == size:
            break
        change = candidate.change
        if frozenset((change,)) in tried or knowledge.refused[change] >= MOST_ATTEMPTS:
            continue
        if is_python("\n".join(_with(knowledge.original[change.path], change))):
            chosen.append(candidate)
    return chosen


def _try(knowledge: Knowledge, first: Run, failure: Failure, chosen: list[Candidate]) -> Response:
    asks: list[Ask] = []
    files = dict(knowledge.current)
    for candidate in chosen:
        wanted = frozenset((candidate.change,))
        asks += _edits_from(files, knowledge.original, wanted, context=knowledge.refused[candidate.change])
        files = _files_with(knowledge.original, wanted)
        about = f"{candidate.change.path} line {candidate.change.line_no}, {_plain(candidate.description)}"
        asks.append(_shell(trial(first.framework, knowledge.place, failure.test, about, first.report.seconds)))
    told = "; ".join(f"{each.change.path} line {each.change.line_no}, {each.description}" for each in chosen)
    return Response(text=f"I try: {told}.", asks=tuple(asks))


def _mended(knowledge: Knowledge, failure: Failure, run: Run) -> Response:
    return Response(
        text=f"Mended: {_named(failure)} failed ({failure.message or 'no message'}). The mistake was in "
        f"{_told(knowledge, run.changes)}. Now {_count(run)} pass."
    )


def _give_up(knowledge: Knowledge, reason: str) -> Response:
    """First put everything back, then say so."""
    back = _edits(knowledge, frozenset())
    if back and knowledge.refusals_in_a_row < MOST_REFUSALS:
        return Response(text="This leads nowhere. I put back what I changed.", asks=back)
    left = " One of my changes could not be taken back." if back else " All files are as they were."
    return Response(text=f"I could not mend this. {reason}{left}")


def _edits(knowledge: Knowledge, wanted: Changes) -> tuple[Ask, ...]:
    return tuple(_edits_from(knowledge.current, knowledge.original, wanted))


def _edits_from(
    files: dict[str, Lines], original: dict[str, Lines], wanted: Changes, *, context: int = 0
) -> Iterator[Ask]:
    """The edits from the files' contents to the originals with the wanted changes; files that gain one come first."""
    target = _files_with(original, wanted)
    gaining = {change.path for change in wanted}
    for path in sorted(files, key=lambda path: (path not in gaining, path)):
        for edit in edits(path, files[path], target[path], original[path], context=context):
            yield Ask(tool="edit_file", arguments={"path": edit.path, "old": edit.old, "new": edit.new})


def _files_with(original: dict[str, Lines], wanted: Changes) -> dict[str, Lines]:
    files = dict(original)
    for change in wanted:
        files[change.path] = _with(files[change.path], change)
    return files


def _with(lines: Lines, change: Change) -> Lines:
    return (*lines[: change.line_no - 1], change.text, *lines[change.line_no :])


def _chosen(knowledge: Knowledge, run: Run) -> Failure:
    """The failure to work on: one whose traceback leads out of the tests says most."""
    tests = set(knowledge.place.tests)

    def leads_out(failure: Failure) -> bool:
        paths = (known_path(knowledge, frame) for frame in failure.frames)
        return any(path is not None and path not in tests for path in paths)

    return next(filter(leads_out, run.report.failures), run.report.failures[0])


def _read_on(knowledge: Knowledge) -> Response:
    asks = tuple(
        Ask(tool="read_file", arguments={"path": path, "offset": following})
        for path, following in sorted(knowledge.unfinished.items())
    )
    return Response(text="There is more in it. I read on.", asks=asks)


def _read(path: str) -> Ask:
    return Ask(tool="read_file", arguments={"path": path})


def _shell(command: Command) -> Ask:
    arguments: dict[str, str | int] = {"command": command.text}
    if command.timeout_s is not None:
        arguments["timeout_s"] = command.timeout_s
    return Ask(tool="shell", arguments=arguments)


def _named(failure: Failure) -> str:
    return failure.test or failure.function or "A test file"


def _count(run: Run) -> str:
    return f"all {run.report.ran} tests" if run.report.ran else "all tests"


def _last_line(run: Run) -> str:
    lines = [line for line in run.result.output.strip().split("\n") if line.strip()]
    return lines[-1] if lines else "no output"


def _told(knowledge: Knowledge, changes: Changes) -> str:
    return " and ".join(
        f"{change.path} line {change.line_no}: `{knowledge.original[change.path][change.line_no - 1].strip()}` "
        f"became `{change.text.strip()}`"
        for change in sorted(changes, key=lambda change: (change.path, change.line_no))
    )


def _places(changes: Changes) -> str:
    return ", ".join(sorted(f"{change.path} line {change.line_no} as {change.text.strip()}" for change in changes))


def _plain(description: str) -> str:
    return description.replace("`", "")
