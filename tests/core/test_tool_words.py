"""Every text of the tool worker that a model reads, whole (B1, B5, B6)."""

from __future__ import annotations

import pytest
from support.word_samples import PARTS, TOOL_WORDS, Sample, texts_of

from haltline.worker.tool import words

WHOLE = {
    "a fault of the harness in a tool": (
        "error: edit_file failed because of a fault in the harness, not because of your arguments; it may have "
        "partly run. Check the state first, then try another way."
    ),
    "arguments that the tool worker cannot read": (
        "error: the arguments of glob could not be read (Expected `str`, got `int` - at `$.pattern`); nothing "
        "was changed. Correct them and call again."
    ),
    "a stop before the tool began": (
        "error: not started, because the run was stopped before; nothing was changed. Send it again if it is "
        "still wanted."
    ),
    "a path with a NUL character": (
        "error: src/\\0main.py names no file, it holds a NUL character; nothing was changed. Correct the path and "
        "call again."
    ),
    "a stop during a file tool": (
        "error: stopped before it ended, because the run was stopped; nothing was changed. Send it again if it "
        "is still wanted."
    ),
    "a file tool at its limit": ("error: stopped after 30 s, its limit; nothing was changed. Ask for less at once."),
    "a disk that does not answer": (
        "error: stopped waiting for the disk; whether anything was changed is unknown. Look at the file before "
        "you go on."
    ),
    "the injected fault tool_error": (
        "error: notes.txt could not be written, the disk did not answer; nothing was changed. Try the same call again."
    ),
    "a command that ended well": ("3 passed\n[exit code 0]"),
    "a command that ended well, and processes that did not": ("[exit code 0]\n[2 of its processes could not be ended]"),
    "a command that failed": (
        "error: the command ended with exit code 1 and may have changed something. Read its output before you "
        "try again:\n"
        "1 failed, 2 passed\n"
        "[exit code 1]"
    ),
    "a command that was killed": (
        "error: the command was killed by SIGKILL and may have changed something. Read its output before you try "
        "again:\n"
        "[killed by SIGKILL]"
    ),
    "a command that a signal without a name ended": (
        "error: the command was killed by signal 40 and may have changed something. Read its output before you "
        "try again:\n"
        "[killed by signal 40]"
    ),
    "a command at its limit": (
        "error: the command was stopped after 30 s, its limit; it may have partly run, and all that it had "
        "started was ended. Split it into smaller commands, or raise timeout_s (at most 600). Output so far:\n"
        "begun\n"
        "[stopped after 30 s]"
    ),
    "a stop during a command": (
        "error: the command was stopped after 2.3 s, because the run was stopped; it may have partly run, and "
        "all that it had started was ended. Check the state before you run it again. Output so far:\n"
        "begun\n"
        "[stopped after 2.3 s]"
    ),
    "a command that goes on in the background": (
        "listening on 8080\n"
        "[goes on in the background, as process 4711. It ends with the session, or when the run is stopped; to end it "
        "earlier: kill -- -4711. What it prints is kept in /run/user/1000/haltline/8c1d22aa/5e551011.out/1.txt; read "
        "it with a shell command.]"
    ),
    "a background command that leaves a daemon": (
        "[its first process has ended (exit code 0); what that started goes on in the background, below process 4710. "
        "It ends with the session, or when the run is stopped. What it prints is kept in "
        "/run/user/1000/haltline/8c1d22aa/5e551011.out/1.txt; read it with a shell command.]"
    ),
    "a background command that fails at once": (
        "error: the command ended with exit code 1 and may have changed something. Read its output before you try "
        "again:\n"
        "the port is in use\n"
        "[exit code 1]\n"
        "[it has ended already: nothing goes on in the background]"
    ),
    "the end of a background command, in its file": "\n[it has ended: killed by SIGTERM]\n",
    "the end of a background command of which nobody knows how": "\n[it has ended]\n",
    "too many background commands": (
        "error: 2 commands go on in the background, and there may be no more; nothing was changed. Use kill -- -NUMBER "
        "to end one of them first; their numbers are 4711, 4720."
    ),
    "a command that the system cannot start": (
        "error: the command could not be started: cannot allocate memory; nothing was changed. Try a shorter or "
        "simpler command."
    ),
    "a file that cannot be read": (
        "error: src/mian.py could not be read: there is no such file; nothing was changed. Look for the right "
        "path with glob."
    ),
    "a binary file": (
        "error: logo.png is a binary file of 48213 bytes; nothing was changed. Look at it with a shell command "
        "if you must."
    ),
    "lines beyond the end of a file": (
        "error: src/main.py has 120 lines, so none from 400 on; nothing was changed. Use a smaller offset."
    ),
    "an empty file": "[the file is empty]",
    "the end of a line that is too long": " [... 12000 characters not shown ...]",
    "more lines than are shown": "[lines 1 to 2000; more follow, go on with offset 2001]",
    "a file that was written": "wrote notes.txt (35 bytes)",
    "a write that changes nothing": "notes.txt already had exactly this content (35 bytes); nothing was changed",
    "a file that cannot be written": (
        "error: notes.txt could not be written: the disk is full; nothing was changed. Correct the path or make "
        "room, then call again."
    ),
    "a file that was edited": "edited src/main.py (1 place)",
    "an edit that changes nothing": (
        "error: old and new are the same text, so src/main.py would stay as it is; nothing was changed. Say what "
        "should differ."
    ),
    "an edit of text with other white space": (
        "error: old does not occur in src/main.py; nothing was changed. Lines 12 to 14 differ from it only in "
        "white space. Read the file and copy the text exactly."
    ),
    "an edit of text of which the first line is there": (
        "error: old does not occur in src/main.py; nothing was changed. Its first line occurs at line 12; what "
        "follows there differs. Read the file and copy the text exactly."
    ),
    "an edit of text that is not there": (
        "error: old does not occur in src/main.py; nothing was changed. Not even its first line occurs. Read the "
        "file and copy the text exactly."
    ),
    "an edit of text that is there twice": (
        "error: old occurs 2 times in src/main.py (lines 12, 40); nothing was changed. Add lines before or after "
        "it until it occurs once."
    ),
    "an edit of text that is there very often": (
        "error: old occurs at least 100 times in src/main.py (lines 1, 2, 3, ...); nothing was changed. Add "
        "lines before or after it until it occurs once."
    ),
    "a file that is too large": (
        "error: data.csv has 20000000 bytes, more than the 10000000 that this tool handles; nothing was changed. "
        "Use a shell command for it."
    ),
    "a pattern that no file matches": "[no file below src matches **/*.rs]",
    "a search that finds nothing": "[no match for TODO in 42 files]",
    "more files than are shown": "[1000 files shown, there are more; use a narrower pattern or path]",
    "more matches than are shown": "[200 matches shown, there are more; use a narrower pattern, glob or path]",
    "a search with a wrong pattern": (
        "error: f( is no regular expression (missing ), unterminated subpattern at position 1); nothing was "
        "changed. Correct it and call again."
    ),
    "a search at its limit": (
        "error: stopped after 30 s, its limit; nothing was changed. Use a narrower pattern or path. Found so far:\n"
        "src/main.py:3:found"
    ),
    "a search at its limit that has found nothing": (
        "error: stopped after 30 s, its limit; nothing was changed. Use a narrower pattern or path."
    ),
    "a stop during a search": (
        "error: stopped before it ended, because the run was stopped; nothing was changed. Send it again if it "
        "is still wanted. Found so far:\n"
        "src/main.py:3:found"
    ),
    "a stop during a search that has found nothing": (
        "error: stopped before it ended, because the run was stopped; nothing was changed. Send it again if it "
        "is still wanted."
    ),
}
"""By situation, what the model reads."""


@pytest.mark.parametrize("sample", TOOL_WORDS, ids=lambda sample: sample.situation)
def test_a_text_is_exactly_this(sample: Sample) -> None:
    assert sample.text == WHOLE[sample.situation]


def test_every_text_is_shown_here() -> None:
    assert [sample.situation for sample in TOOL_WORDS] == list(WHOLE)
    assert {sample.function for sample in TOOL_WORDS} | PARTS >= texts_of(words)
