"""What the model knows, rebuilt from the conversation at every request: calls it made, and what they really answered.

Rules:
1. Nothing is remembered between requests. What is not in the messages has not happened.
2. A call that was not answered, was refused, or answered something unknown has failed; but a run of tests that was
   interrupted has not happened.
3. A file's `original` is its content when it was first read; `current` is that after the edits that succeeded.
4. A conclusion ends a run; what follows it starts with what is in the files then.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from haltline.gateway.conversation import Call, Message
from haltline.gateway.repair.commands import Framework, Layout, Purpose, layout, purpose
from haltline.gateway.repair.editing import Lines, apply
from haltline.gateway.repair.reading import (
    Excerpt,
    ShellResult,
    excerpt,
    is_edited,
    is_interrupted,
    python_paths,
    shell_result,
)
from haltline.gateway.repair.report import Report, read_report

CONCLUSIONS = ("Mended:", "I could not mend", "Nothing to mend:")
"""How the model's last texts begin."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a file that is not as it was."""

    path: str
    line_no: int
    """From 1."""
    text: str


Changes = frozenset[Change]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of tests, and what the files differed in then."""

    purpose: Purpose
    framework: Framework
    result: ShellResult
    report: Report
    changes: Changes

    @property
    def passed(self) -> bool:
        return self.result.exit_code == 0 and self.report.ran != 0

    @property
    def told_nothing(self) -> bool:
        """No test ran: the framework is not there, finds none, or stumbles over something else."""
        return not (self.passed or self.report.failures or self.hung)

    @property
    def hung(self) -> bool:
        return self.result.timed_out or self.report.hung


class _Arguments(msgspec.Struct):
    """Arguments of any of the tools."""

    command: str = ""
    path: str = ""
    pattern: str = ""
    old: str = ""
    new: str = ""


class Knowledge:
    """All that the messages of the current run say."""

    def __init__(self) -> None:
        self.paths: tuple[str, ...] | None = None
        """Python files; None: not asked yet."""
        self.imports_of_frameworks: str | None = None
        """Where unittest and pytest are imported; None: not asked yet."""
        self.original: dict[str, Lines] = {}
        self.current: dict[str, Lines] = {}
        self.unfinished: dict[str, int] = {}
        """Files of which only a part was read: the number of the next line."""
        self.unreadable: set[str] = set()
        self.runs: list[Run] = []
        self.stale: set[str] = set()
        """Files that may not be as believed, since an edit of them was refused."""
        self.refused: Counter[Change] = Counter()
        """How often edit_file did not make a change."""
        self.refusals_in_a_row = 0
        """Responses in a row of which an edit was refused and none made."""
        self.turn_refused = 0
        """Number of the last response with a refusal."""
        self.last_refusal = ""
        self.turns = 0

    @property
    def place(self) -> Layout:
        return layout(self.paths or ())

    @property
    def changes(self) -> Changes:
        """In what the files differ now."""
        return frozenset(
            Change(path=path, line_no=number, text=now)
            for path, lines in self.current.items()
            for number, (now, before) in enumerate(zip(lines, self.original[path], strict=True), start=1)
            if now != before
        )

    def suite_runs(self) -> list[Run]:
        return [run for run in self.runs if run.purpose == "suite"]

    def observe(self, call: Call, answer: str | None) -> None:
        """Take in one call and its result; None: there is none."""
        try:
            arguments = msgspec.json.decode(call.arguments, type=_Arguments)
        except (msgspec.DecodeError, UnicodeError):
            return
        answer = answer if answer is not None else ""
        match call.name:
            case "glob":
                self.paths = python_paths(answer)
            case "search":
                self.imports_of_frameworks = answer
            case "shell":
                self._observe_run(arguments.command, answer)
            case "read_file":
                self._observe_file(arguments.path, excerpt(answer))
            case "edit_file":
                self._observe_edit(arguments, answer)
            case _:
                pass

    def _observe_run(self, command: str, answer: str) -> None:
        recognised = purpose(command)
        if recognised is None or is_interrupted(answer):
            return
        result = shell_result(answer)
        self.runs.append(
            Run(
                purpose=recognised[0],
                framework=recognised[1],
                result=result,
                report=read_report(result.output),
                changes=self.changes,
            )
        )

    def _observe_file(self, path: str, part: Excerpt | None) -> None:
        known = self.current.get(path, ())
        if part is None or part.first > len(known) + 1:
            self.unfinished.pop(path, None)
            self.stale.discard(path)
            if path not in self.current:
                self.unreadable.add(path)
            return
        self.stale.discard(path)
        lines = known[: part.first - 1] + part.lines
        if path not in self.original or path in self.unfinished or len(lines) != len(self.original[path]):
            self.original[path] = lines
        self.current[path] = lines
        if part.more:
            self.unfinished[path] = len(lines) + 1
        else:
            self.unfinished.pop(path, None)

    def _observe_edit(self, arguments: _Arguments, answer: str) -> None:
        path = arguments.path
        before = self.current.get(path)
        if before is None:
            return
        after = apply(before, arguments.old, arguments.new)
        if is_edited(answer) and len(after) == len(before):
            self.current[path] = after
            self.refusals_in_a_row = 0
            return
        self.stale.add(path)
        if self.turn_refused == self.turns:
            return  # a later edit of a response may fail only because an earlier one did
        self.turn_refused = self.turns
        self.refusals_in_a_row += 1
        self.last_refusal = answer.strip().partition("\n")[0]
        for number, (now, then) in enumerate(zip(before, after, strict=False), start=1):
            if now != then and then != self.original[path][number - 1]:
                self.refused[Change(path=path, line_no=number, text=then)] += 1


def learn(messages: Sequence[Message]) -> Knowledge:
    """What the messages say (rules 1 to 4)."""
    answers = {message.call_id: message.text for message in messages if message.role == "tool"}
    knowledge = Knowledge()
    for message in messages:
        if message.role != "assistant":
            continue
        if not message.calls:
            if message.text.startswith(CONCLUSIONS):
                knowledge = Knowledge()
            continue
        knowledge.turns += 1
        for call in message.calls:
            knowledge.observe(call, answers.get(call.call_id))
    return knowledge
