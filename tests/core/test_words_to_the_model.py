"""What a model reads of a call that failed: the rules that hold for every such text of supervisor and tool worker (B1).

The texts are found by looking at both modules, so that a new one cannot be left out.
"""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import get_args

import pytest

from haltline.protocol.tools import TOOLS
from haltline.supervisor import feedback
from haltline.supervisor.approval import DenyReason
from haltline.supervisor.arguments import FieldProblem, NotJson
from haltline.worker.tool import words

WHAT_CHANGED = re.compile(
    r"nothing was changed|may have partly run|may have changed something|whether anything was changed is unknown"
)
NEXT_ACTION = re.compile(
    r"(?:^|\. )(?:Add|Answer|Ask|Change|Check|Correct|Do not|Go on|Look|Read|Say|Send|Split|Try|Use|Wait)\b",
    re.MULTILINE,
)
"""A sentence that tells what to do."""

FAILED: dict[str, tuple[str, ...]] = {
    "feedback.not_json": (
        feedback.not_json("{", NotJson(problem="it ends too early")),
        feedback.not_json("{}{}", NotJson(problem="more follows", glued=2)),
    ),
    "feedback.breaks_schema": (
        feedback.breaks_schema("shell", [FieldProblem(field="command", expected="str", came="a number 1")]),
    ),
    "feedback.unknown_tool": (feedback.unknown_tool("grep", tuple(TOOLS)),),
    "feedback.incomplete": (feedback.incomplete(),),
    "feedback.repeated": (feedback.repeated("shell", 3),),
    "feedback.repeated_deducted": (feedback.repeated_deducted("shell", 4, 5),),
    "feedback.repeated_stopped": (feedback.repeated_stopped("shell", 5),),
    "feedback.denied": tuple(feedback.denied(why) for why in get_args(DenyReason)),
    "feedback.denied_by_user": (feedback.denied_by_user(""), feedback.denied_by_user("not that file")),
    "feedback.not_started": (feedback.not_started(),),
    "feedback.run_ended_before": (feedback.run_ended_before(),),
    "feedback.outcome_unknown": (feedback.outcome_unknown(),),
    "words.internal_failure": (words.internal_failure("shell"),),
    "words.unreadable_arguments": (words.unreadable_arguments("shell", "it is no object"),),
    "words.not_started": (words.not_started(),),
    "words.no_place": (words.no_place("a\0b"),),
    "words.file_tool_cancelled": (words.file_tool_cancelled(),),
    "words.file_tool_timed_out": (words.file_tool_timed_out(30.0),),
    "words.file_tool_stuck": (words.file_tool_stuck(),),
    "words.injected_failure": (words.injected_failure("a"),),
    "words.shell_ended": tuple(words.shell_ended("out", code, 1) for code in (1, -9, -200)),
    "words.shell_timed_out": (words.shell_timed_out("out", 30.0, 600.0, 0),),
    "words.shell_cancelled": (words.shell_cancelled("out", 1.5, 2),),
    "words.background_ended_already": tuple(words.background_ended_already("out", code) for code in (1, -9)),
    "words.too_many_in_background": (words.too_many_in_background(2, (3, 4)),),
    "words.shell_not_started": (words.shell_not_started("the workspace folder is not there any more"),),
    "words.cannot_read": (words.cannot_read("a", "there is no such file"),),
    "words.binary": (words.binary("a", 10),),
    "words.beyond_end": (words.beyond_end("a", 3, 4),),
    "words.cannot_write": (words.cannot_write("a", "no space is left"),),
    "words.edit_changes_nothing": (words.edit_changes_nothing("a"),),
    "words.edit_not_found": tuple(
        words.edit_not_found("a", hint)
        for hint in (words.hint_whitespace(1, 2), words.hint_first_line(1), words.hint_nothing_near())
    ),
    "words.edit_ambiguous": (words.edit_ambiguous("a", 3, True, [1, 2]),),
    "words.too_large": (words.too_large("a", 10, 5),),
    "words.bad_pattern": (words.bad_pattern("(", "a parenthesis is missing"),),
    "words.find_timed_out": (words.find_timed_out(30.0, ""), words.find_timed_out(30.0, "a.py")),
    "words.find_cancelled": (words.find_cancelled(""), words.find_cancelled("a.py")),
}

NO_FAILED_RESULT = {
    "feedback": {
        "system_prompt",
        "go_on",
        "nudge",
        "invalid_generation",
        "waits_by_calling",
        "interrupted",
        "limit",
        "folded",
        "shortened",
        "summary_system",
        "summarise",
        "summary",
        "is_folded",
        "head_and_tail",
        "amount",
    },
    "words": {
        "background_started",
        "background_daemon",
        "background_last_line",
        "empty_file",
        "line_cut",
        "more_lines",
        "wrote",
        "same_content",
        "edited",
        "hint_whitespace",
        "hint_first_line",
        "hint_nothing_near",
        "no_files",
        "no_matches",
        "more_files",
        "more_matches",
    },
}
"""Messages, texts of calls that succeeded, and parts of texts."""


@pytest.mark.parametrize("module", [feedback, words])
def test_every_text_is_known_here_as_a_failed_result_or_as_something_else(module: ModuleType) -> None:
    name = module.__name__.rpartition(".")[2]
    failed = {text.partition(".")[2] for text in FAILED if text.startswith(f"{name}.")}
    functions = {
        function.__name__
        for _, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not function.__name__.startswith("_")
    }
    assert functions == failed | NO_FAILED_RESULT[name]


@pytest.mark.parametrize("text", [text for texts in FAILED.values() for text in texts])
def test_a_failed_result_says_that_it_failed_what_was_changed_and_what_to_do_next(text: str) -> None:
    """B1."""
    assert text.startswith("error: ")
    assert WHAT_CHANGED.search(text.lower())
    assert NEXT_ACTION.search(text)
    assert "Errno" not in text
    assert "Traceback" not in text
    assert "\0" not in text


def test_a_command_that_ended_well_is_no_error() -> None:
    assert words.shell_ended("out\n", 0, 0) == "out\n[exit code 0]"
