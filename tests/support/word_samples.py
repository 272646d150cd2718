"""A sample of each text that a model reads from haltline, several where it has several shapes.

docs/words.md shows them; tests/core/test_feedback.py and tests/core/test_tool_words.py hold each text whole.
"""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import ParamSpec

from haltline.protocol.conversation import UserMessage
from haltline.protocol.tools import TOOLS
from haltline.supervisor import arguments, feedback
from haltline.supervisor.arguments import FieldProblem, NotJson
from haltline.supervisor.budget import Trip
from haltline.worker.tool import words

P = ParamSpec("P")


@dataclass(frozen=True)
class Sample:
    situation: str
    function: str
    """The name of the function that says it."""
    said: str | UserMessage
    """A message where it is not the result of a call, or the system prompt."""

    @property
    def text(self) -> str:
        return self.said.text if isinstance(self.said, UserMessage) else self.said


def sample(situation: str, function: Callable[P, str | UserMessage], *arguments: P.args, **named: P.kwargs) -> Sample:
    return Sample(situation, function.__name__, function(*arguments, **named))


def problem_of(raw: str) -> NotJson:
    problem = arguments.parse(raw)
    assert isinstance(problem, NotJson)
    return problem


def problems_of(tool: str, raw: str) -> tuple[FieldProblem, ...]:
    parsed = arguments.parse(raw)
    assert not isinstance(parsed, NotJson)
    return arguments.check(TOOLS[tool], parsed)


BROKEN_OFF = '{"command": "make te'
GLUED = '{"path": "a"}{"path": "b"}'

FEEDBACK = (
    sample("the beginning of a conversation", feedback.system_prompt, "/home/ada/project"),
    sample("arguments that break off", feedback.not_json, BROKEN_OFF, problem_of(BROKEN_OFF)),
    sample("two JSON texts as the arguments of one call", feedback.not_json, GLUED, problem_of(GLUED)),
    sample(
        "arguments that do not fit the tool",
        feedback.breaks_schema,
        "shell",
        problems_of("shell", '{"command": 7, "cwd": "a"}'),
    ),
    sample("a tool that does not exist", feedback.unknown_tool, "run_in_terminal", tuple(TOOLS)),
    sample("a call of a response that the output limit has cut", feedback.incomplete),
    sample("after a response that the output limit has cut", feedback.go_on),
    sample("after an empty response", feedback.nudge),
    sample(
        "after the provider has refused what its own model wrote",
        feedback.invalid_generation,
        "tool call validation failed: no tool 'grep'",
    ),
    sample("the third identical call in a row", feedback.repeated, "shell", 3),
    sample("the fourth", feedback.repeated_deducted, "shell", 4, 5),
    sample("the fifth", feedback.repeated_stopped, "shell", 5),
    sample("ten identical calls with long pauses", feedback.waits_by_calling, "shell"),
    sample("a change in plan mode", feedback.denied, "plan"),
    sample("a call that needs approval, with nobody there", feedback.denied, "nobody"),
    sample("a path outside the workspace, with nobody there", feedback.denied, "nobody_outside"),
    sample("a call that the user refused", feedback.denied_by_user, ""),
    sample("a call that the user refused with words", feedback.denied_by_user, "Use the copy of the database."),
    sample("a stop before the call was started", feedback.not_started),
    sample("the end of the run before the call was started", feedback.run_ended_before),
    sample("the death of the tool worker during the call", feedback.outcome_unknown),
    sample("after a stop while tools were at work", feedback.interrupted, "key", had_text=True, had_calls=True),
    sample("after a stop in the middle of the answer", feedback.interrupted, "key", had_text=True, had_calls=False),
    sample("after a stop before any answer", feedback.interrupted, "key", had_text=False, had_calls=False),
    sample("after a stop by a signal", feedback.interrupted, "signal", had_text=True, had_calls=False),
    sample("after `haltline cancel`", feedback.interrupted, "client", had_text=True, had_calls=False),
    sample("after `haltline kill`", feedback.interrupted, "killed", had_text=True, had_calls=True),
    sample("after a stop by a limit", feedback.interrupted, "limit", had_text=False, had_calls=True),
    sample("after the loss of the terminal", feedback.interrupted, "lost_client", had_text=False, had_calls=True),
    sample(
        "a result of an older call, in a conversation that was too long",
        feedback.folded,
        "read_file",
        '{"path": "src/main.py"}',
        "done",
        None,
        12_400,
    ),
    sample(
        "the same of a call that failed",
        feedback.folded,
        "shell",
        '{"command": "make"}',
        "failed",
        "error: it exited:\nmain.c: no such file\n",
        900,
    ),
    sample("a result of the last call, where nothing else makes it fit", feedback.shortened, "a" * 12 + "b" * 12, 8),
    sample("the beginning of a request for a summary", feedback.summary_system),
    sample("a request for a summary", feedback.summarise, "The user: mend it"),
    sample("older turns that were summarised", feedback.summary, "main.c was mended; the tests were not run yet."),
    sample("after a limit of the run", feedback.limit, Trip(scope="run", which="turns", allowed=100.0, used=100.0)),
    sample(
        "after a limit of the session", feedback.limit, Trip(scope="session", which="seconds", allowed=60.0, used=60.04)
    ),
)
"""What the supervisor says."""

OUTPUT = "/run/user/1000/haltline/8c1d22aa/5e551011.out/1.txt"

TOOL_WORDS = (
    sample("a fault of the harness in a tool", words.internal_failure, "edit_file"),
    sample(
        "arguments that the tool worker cannot read",
        words.unreadable_arguments,
        "glob",
        "Expected `str`, got `int` - at `$.pattern`",
    ),
    sample("a stop before the tool began", words.not_started),
    sample("a path with a NUL character", words.no_place, "src/\0main.py"),
    sample("a stop during a file tool", words.file_tool_cancelled),
    sample("a file tool at its limit", words.file_tool_timed_out, 30.0),
    sample("a disk that does not answer", words.file_tool_stuck),
    sample("the injected fault tool_error", words.injected_failure, "notes.txt"),
    sample("a command that ended well", words.shell_ended, "3 passed\n", 0, 0),
    sample("a command that ended well, and processes that did not", words.shell_ended, "", 0, 2),
    sample("a command that failed", words.shell_ended, "1 failed, 2 passed", 1, 0),
    sample("a command that was killed", words.shell_ended, "", -signal.SIGKILL, 0),
    sample("a command that a signal without a name ended", words.shell_ended, "", -40, 0),
    sample("a command at its limit", words.shell_timed_out, "begun\n", 30.0, 600.0, 0),
    sample("a stop during a command", words.shell_cancelled, "begun\n", 2.34, 0),
    sample("a command that goes on in the background", words.background_started, 4711, OUTPUT, "listening on 8080\n"),
    sample("a background command that leaves a daemon", words.background_daemon, 4710, OUTPUT, "", 0),
    sample("a background command that fails at once", words.background_ended_already, "the port is in use", 1),
    sample("the end of a background command, in its file", words.background_last_line, -signal.SIGTERM),
    sample("the end of a background command of which nobody knows how", words.background_last_line, None),
    sample("too many background commands", words.too_many_in_background, 2, (4711, 4720)),
    sample("a command that the system cannot start", words.shell_not_started, "cannot allocate memory"),
    sample("a file that cannot be read", words.cannot_read, "src/mian.py", "there is no such file"),
    sample("a binary file", words.binary, "logo.png", 48_213),
    sample("lines beyond the end of a file", words.beyond_end, "src/main.py", 120, 400),
    sample("an empty file", words.empty_file),
    sample("the end of a line that is too long", words.line_cut, 12_000),
    sample("more lines than are shown", words.more_lines, 1, 2000),
    sample("a file that was written", words.wrote, "notes.txt", 35),
    sample("a write that changes nothing", words.same_content, "notes.txt", 35),
    sample("a file that cannot be written", words.cannot_write, "notes.txt", "the disk is full"),
    sample("a file that was edited", words.edited, "src/main.py"),
    sample("an edit that changes nothing", words.edit_changes_nothing, "src/main.py"),
    sample(
        "an edit of text with other white space", words.edit_not_found, "src/main.py", words.hint_whitespace(12, 14)
    ),
    sample(
        "an edit of text of which the first line is there",
        words.edit_not_found,
        "src/main.py",
        words.hint_first_line(12),
    ),
    sample("an edit of text that is not there", words.edit_not_found, "src/main.py", words.hint_nothing_near()),
    sample(
        "an edit of text that is there twice", words.edit_ambiguous, "src/main.py", 2, at_least=False, lines=[12, 40]
    ),
    sample(
        "an edit of text that is there very often",
        words.edit_ambiguous,
        "src/main.py",
        100,
        at_least=True,
        lines=[1, 2, 3],
    ),
    sample("a file that is too large", words.too_large, "data.csv", 20_000_000, 10_000_000),
    sample("a pattern that no file matches", words.no_files, "**/*.rs", "src"),
    sample("a search that finds nothing", words.no_matches, "TODO", 42),
    sample("more files than are shown", words.more_files, 1000),
    sample("more matches than are shown", words.more_matches, 200),
    sample(
        "a search with a wrong pattern", words.bad_pattern, "f(", "missing ), unterminated subpattern at position 1"
    ),
    sample("a search at its limit", words.find_timed_out, 30.0, "src/main.py:3:found"),
    sample("a search at its limit that has found nothing", words.find_timed_out, 30.0, ""),
    sample("a stop during a search", words.find_cancelled, "src/main.py:3:found"),
    sample("a stop during a search that has found nothing", words.find_cancelled, ""),
)
"""What the tool worker says."""

PARTS = frozenset({"head_and_tail", "is_folded", "amount", "hint_whitespace", "hint_first_line", "hint_nothing_near"})
"""Functions whose words stand only inside other texts."""


def texts_of(module: ModuleType) -> set[str]:
    """The names of the functions of a module of words."""
    return {
        name
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }
