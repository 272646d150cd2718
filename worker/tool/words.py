"""Every text of the tool worker that a model reads (B1 to B6).

1. The result of a call that did not succeed begins with `error:`, says whether anything changed, and gives the next
   action.
2. The same cause gets the same words: models and tests may rely on them.
3. It holds no stack trace, errno or path of ours; what the tool itself printed is kept whole, within the bound.
"""

import signal

PARTLY = "it may have partly run"
NOTHING = "nothing was changed"


# Any tool


def internal_failure(name: str) -> str:
    return (
        f"error: {name} failed because of a fault in the harness, not because of your arguments; "
        "it may have partly run. Check the state first, then try another way."
    )


def unreadable_arguments(name: str, why: str) -> str:
    return f"error: the arguments of {name} could not be read ({why}); {NOTHING}. Correct them and call again."


def not_started() -> str:
    return f"error: not started, because the run was stopped before; {NOTHING}. Send it again if it is still wanted."


def no_place(path: str) -> str:
    shown = path.replace("\0", "\\0")
    return f"error: {shown} names no file, it holds a NUL character; {NOTHING}. Correct the path and call again."


def file_tool_cancelled() -> str:
    return (
        f"error: stopped before it ended, because the run was stopped; {NOTHING}. Send it again if it is still wanted."
    )


def file_tool_timed_out(limit_s: float) -> str:
    return f"error: stopped after {limit_s:g} s, its limit; {NOTHING}. Ask for less at once."


def file_tool_stuck() -> str:
    return (
        "error: stopped waiting for the disk; whether anything was changed is unknown. "
        "Look at the file before you go on."
    )


def injected_failure(path: str) -> str:
    return f"error: {path} could not be written, the disk did not answer; {NOTHING}. Try the same call again."


# Shell


def shell_ended(output: str, exit_code: int, survivors: int) -> str:
    """`exit_code`: as subprocess gives it, minus the number for a signal."""
    end = _end(exit_code)
    last = f"[{end}]{_left(survivors)}"
    if exit_code == 0:
        return _with_output("", output, last)
    how = f"ended with {end}" if exit_code > 0 else f"was {end}"
    head = f"error: the command {how} and may have changed something. Read its output before you try again:\n"
    return _with_output(head, output, last)


def shell_timed_out(output: str, limit_s: float, longest_s: float, survivors: int) -> str:
    head = (
        f"error: the command was stopped after {limit_s:g} s, its limit; {PARTLY}, and all that it had started "
        f"was ended. Split it into smaller commands, or raise timeout_s (at most {longest_s:g}). "
        f"Output so far:\n"
    )
    return _with_output(head, output, f"[stopped after {limit_s:g} s]" + _left(survivors))


def shell_cancelled(output: str, after_s: float, survivors: int) -> str:
    head = (
        f"error: the command was stopped after {after_s:.1f} s, because the run was stopped; {PARTLY}, and all that "
        "it had started was ended. Check the state before you run it again. Output so far:\n"
    )
    return _with_output(head, output, f"[stopped after {after_s:.1f} s]" + _left(survivors))


def background_started(pid: int, path: str, output: str) -> str:
    last = (
        f"[goes on in the background, as process {pid}. It ends with the session, or when the run is stopped; "
        f"to end it earlier: kill -- -{pid}. What it prints is kept in {path}; read it with a shell command.]"
    )
    return _with_output("", output, last)


def background_daemon(keeper_pid: int, path: str, output: str, exit_code: int) -> str:
    """The first process has ended and left others behind."""
    last = (
        f"[its first process has ended ({_end(exit_code)}); what that started goes on in the background, below process "
        f"{keeper_pid}. It ends with the session, or when the run is stopped. What it prints is kept in {path}; read "
        "it with a shell command.]"
    )
    return _with_output("", output, last)


def background_ended_already(output: str, exit_code: int) -> str:
    return shell_ended(output, exit_code, 0) + "\n[it has ended already: nothing goes on in the background]"


def background_last_line(exit_code: int | None) -> str:
    """Of the file that holds its output. None: nobody knows."""
    return "\n[it has ended]\n" if exit_code is None else f"\n[it has ended: {_end(exit_code)}]\n"


def too_many_in_background(most: int, pids: tuple[int, ...]) -> str:
    numbers = ", ".join(map(str, pids))
    return (
        f"error: {most} commands go on in the background, and there may be no more; {NOTHING}. "
        f"Use kill -- -NUMBER to end one of them first; their numbers are {numbers}."
    )


def shell_not_started(why: str) -> str:
    return f"error: the command could not be started: {why}; {NOTHING}. Try a shorter or simpler command."


def _end(exit_code: int) -> str:
    return f"exit code {exit_code}" if exit_code >= 0 else f"killed by {_signal_name(-exit_code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _left(survivors: int) -> str:
    return f"\n[{survivors} of its processes could not be ended]" if survivors else ""


def _with_output(head: str, output: str, last: str) -> str:
    if output and not output.endswith("\n"):
        output += "\n"
    return f"{head}{output}{last}"


# Files


def cannot_read(path: str, why: str) -> str:
    return f"error: {path} could not be read: {why}; {NOTHING}. Look for the right path with glob."


def binary(path: str, size: int) -> str:
    return f"error: {path} is a binary file of {size} bytes; {NOTHING}. Look at it with a shell command if you must."


def beyond_end(path: str, lines: int, offset: int) -> str:
    return f"error: {path} has {lines} lines, so none from {offset} on; {NOTHING}. Use a smaller offset."


def empty_file() -> str:
    return "[the file is empty]"


def line_cut(characters: int) -> str:
    return f" [... {characters} characters not shown ...]"


def more_lines(first: int, last: int) -> str:
    return f"[lines {first} to {last}; more follow, go on with offset {last + 1}]"


def wrote(path: str, size: int) -> str:
    return f"wrote {path} ({size} bytes)"


def same_content(path: str, size: int) -> str:
    return f"{path} already had exactly this content ({size} bytes); {NOTHING}"


def cannot_write(path: str, why: str) -> str:
    return f"error: {path} could not be written: {why}; {NOTHING}. Correct the path or make room, then call again."


def edited(path: str) -> str:
    return f"edited {path} (1 place)"


def edit_changes_nothing(path: str) -> str:
    return f"error: old and new are the same text, so {path} would stay as it is; {NOTHING}. Say what should differ."


def edit_not_found(path: str, hint: str) -> str:
    return f"error: old does not occur in {path}; {NOTHING}. {hint} Read the file and copy the text exactly."


def edit_ambiguous(path: str, count: int, at_least: bool, lines: list[int]) -> str:
    where = ", ".join(map(str, lines)) + (", ..." if count > len(lines) else "")
    return (
        f"error: old occurs {'at least ' if at_least else ''}{count} times in {path} (lines {where}); {NOTHING}. "
        "Add lines before or after it until it occurs once."
    )


def hint_whitespace(first: int, last: int) -> str:
    return f"Lines {first} to {last} differ from it only in white space."


def hint_first_line(line: int) -> str:
    return f"Its first line occurs at line {line}; what follows there differs."


def hint_nothing_near() -> str:
    return "Not even its first line occurs."


def too_large(path: str, size: int, limit: int) -> str:
    return (
        f"error: {path} has {size} bytes, more than the {limit} that this tool handles; {NOTHING}. "
        "Use a shell command for it."
    )


# Finding


def no_files(pattern: str, path: str) -> str:
    return f"[no file below {path} matches {pattern}]"


def no_matches(pattern: str, files: int) -> str:
    return f"[no match for {pattern} in {files} files]"


def more_files(shown: int) -> str:
    return f"[{shown} files shown, there are more; use a narrower pattern or path]"


def more_matches(shown: int) -> str:
    return f"[{shown} matches shown, there are more; use a narrower pattern, glob or path]"


def bad_pattern(pattern: str, why: str) -> str:
    return f"error: {pattern} is no regular expression ({why}); {NOTHING}. Correct it and call again."


def find_timed_out(limit_s: float, found: str) -> str:
    head = f"error: stopped after {limit_s:g} s, its limit; {NOTHING}. Use a narrower pattern or path."
    return f"{head} Found so far:\n{found}" if found else head


def find_cancelled(found: str) -> str:
    head = (
        f"error: stopped before it ended, because the run was stopped; {NOTHING}. Send it again if it is still wanted."
    )
    return f"{head} Found so far:\n{found}" if found else head
