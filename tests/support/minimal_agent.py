"""The smallest agent that there can be: sends the conversation, runs the calls it gets, sends the results.

Plays the harness for tests of `repair`, with the tools' real effects in a folder and the result formats of the tool
worker. Knows nothing of how the model decides.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from haltline.gateway.conversation import Call, Message, Request
from haltline.gateway.repair import respond
from haltline.gateway.steps import Piece, ToolCall

TOOLS = ("shell", "read_file", "write_file", "edit_file", "glob", "search")
TOOL_LIMIT_S = 20.0
"""The default limit of a shell call; far above what any honest run here takes."""


class Arguments(msgspec.Struct):
    command: str = ""
    timeout_s: float | None = None
    path: str = "."
    pattern: str = ""
    glob: str = "**/*"
    old: str = ""
    new: str = ""
    offset: int = 1
    limit: int = 2_000


class Said(msgspec.Struct, frozen=True):
    """One response of the model."""

    text: str
    calls: tuple[Call, ...]


Model = Callable[[tuple[Message, ...]], Said]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    turns: int
    """Responses, the last one without calls included."""
    text: str
    """The last response."""
    messages: tuple[Message, ...]
    contents: tuple[tuple[str, str], ...]
    """(path, text) after each edit, in order: what a see-saw detector would look at."""

    @property
    def mended(self) -> bool:
        return self.text.startswith("Mended:")

    @property
    def commands(self) -> list[str]:
        return [
            json.loads(call.arguments)["command"]
            for message in self.messages
            for call in message.calls
            if call.name == "shell"
        ]


class Tools:
    """The six tools, in a folder."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self.folder = folder
        self._limit_s = limit_s
        self.contents: list[tuple[str, str]] = []

    def run(self, call: Call) -> str:
        arguments = msgspec.json.decode(call.arguments, type=Arguments)
        match call.name:
            case "shell":
                return self._shell(arguments)
            case "read_file":
                return self._read(arguments)
            case "edit_file":
                return self._edit(arguments)
            case "glob":
                return "\n".join(sorted(self._relative(path) for path in self.folder.glob(arguments.pattern)))
            case "search":
                return self._search(arguments)
            case _:
                return f"error: there is no tool {call.name}"

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _shell(self, arguments: Arguments) -> str:
        """In a session of its own, which ends with the call: an endless loop must not outlive it."""
        limit = arguments.timeout_s or self._limit_s
        process = subprocess.Popen(
            ["/bin/sh", "-c", arguments.command],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as expired:
            head = (
                f"error: the command was stopped after {limit:g} s, its limit; it may have partly run. Output so far:\n"
            )
            return f"{head}{(expired.output or b'').decode(errors='replace')}\n[stopped after {limit:g} s]"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        code = process.returncode
        head = f"error: the command ended with exit code {code} and may have changed something.\n" if code else ""
        last = f"[exit code {code}]" if code >= 0 else f"[killed by {signal.Signals(-code).name}]"
        return f"{head}{output.decode(errors='replace')}\n{last}"

    def _read(self, arguments: Arguments) -> str:
        try:
            lines = (self.folder / arguments.path).read_text().splitlines()
        except OSError:
            return f"error: there is no file {arguments.path}"
        last = arguments.offset - 1 + arguments.limit
        shown = [
            f"{number:>6}\t{line}"
            for number, line in enumerate(lines[arguments.offset - 1 : last], start=arguments.offset)
        ]
        if last < len(lines):
            shown.append(f"[lines {arguments.offset} to {last}; more follow, go on with offset {last + 1}]")
        return "\n".join(shown)

    def _edit(self, arguments: Arguments) -> str:
        file = self.folder / arguments.path
        text = file.read_text()
        if text.count(arguments.old) != 1:
            return f"error: `old` occurs {text.count(arguments.old)} times in {arguments.path}. Nothing was changed."
        file.write_text(text.replace(arguments.old, arguments.new))
        self.contents.append((arguments.path, file.read_text()))
        return f"edited {arguments.path} (1 place)"

    def _search(self, arguments: Arguments) -> str:
        found = [
            f"{self._relative(path)}:{number}: {line}"
            for path in sorted(self.folder.glob(arguments.glob))
            if path.is_file()
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
            if re.search(arguments.pattern, line)
        ]
        return "\n".join(found) or f"[no match for {arguments.pattern}]"


def in_process(messages: tuple[Message, ...]) -> Said:
    """The model `repair` without a server in between. It is given the messages and nothing else."""
    request = Request(model="repair", stream=True, include_usage=False, messages=messages, tools=TOOLS, body_bytes=0)
    text = ""
    calls: list[Call] = []
    for step in respond(request):
        match step:
            case Piece():
                text += step.text
            case ToolCall():
                call_id = f"call-{len(messages)}-{len(calls)}"
                calls.append(Call(call_id=call_id, name=step.name, arguments=step.arguments))
            case _:
                pass
    return Said(text, tuple(calls))


def drive(
    folder: Path,
    *,
    model: Model = in_process,
    prompt: str = "A test fails. Mend it.",
    most_turns: int = 100,
    limit_s: float = TOOL_LIMIT_S,
    answer: Callable[[Tools, Call], str] = Tools.run,
) -> Outcome:
    """Work on a prompt until the model stops asking for tools. `answer` stands between a call and its effect."""
    tools = Tools(folder, limit_s)
    messages: tuple[Message, ...] = (Message(role="user", text=prompt),)
    for turn in range(1, most_turns + 1):
        said = model(messages)
        messages += (Message(role="assistant", text=said.text, calls=said.calls),)
        if not said.calls:
            return Outcome(turns=turn, text=said.text, messages=messages, contents=tuple(tools.contents))
        messages += tuple(Message(role="tool", text=answer(tools, call), call_id=call.call_id) for call in said.calls)
    raise AssertionError(f"the model did not conclude within {most_turns} turns")
