"""The shell tool: one command line, its whole process tree, one outcome.

1. Only one shell call runs at a time: it is no read-only tool, and only those run side by side. So whatever lives
   below the worker while it runs is its own.
2. It is over when its foreground process has ended. Leftovers have LINGER_S to end by themselves: what is printed
   through `> >(tee log)` is still on its way. Then they get SIGTERM, LEFTOVER_GRACE_S, SIGKILL.
3. The outcome is made when the tree was seen empty and the pipe is drained, in this order: nobody writes any more.
4. Who ended before the stop or the limit counts as what it was. Whether it had is asked of the kernel at that very
   moment, before any signal: afterwards an end would look the same.
5. At the limit: SIGTERM to all, LIMIT_GRACE_S for clean-up traps (R06), SIGKILL.
"""

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager

from haltline.protocol.messages import Outcome
from haltline.protocol.times import LIMIT_GRACE_S
from haltline.protocol.tools import Shell
from haltline.protocol.trees import SweepResult
from haltline.worker.tool import words
from haltline.worker.tool.calls import Room, Stopwatch, Terms
from haltline.worker.tool.child import Child
from haltline.worker.tool.nameless import nameless_file
from haltline.worker.tool.output import Output

LINGER_S = 0.05
LEFTOVER_GRACE_S = 0.1
"""Rule 2. Enough for a server to remove its pid file; a result must be back in 0.5 s (R02)."""
ARGUMENT_BYTES = 100_000
"""A longer command line goes through a file: the kernel takes 131,072 bytes as one argument (R91)."""
SHELLS = ("bash", "sh")


class ShellCall:
    """One command line."""

    def __init__(self, room: Room, terms: Terms, arguments: Shell) -> None:
        self._room = room
        self._terms = terms
        self._command = arguments.command
        self._watch = Stopwatch(room.loop)
        self._stop: asyncio.Future[float] = room.loop.create_future()
        self._child: Child | None = None

    def stop(self, grace_s: float) -> None:
        """Rule 4."""
        if not self._stop.done() and (self._child is None or not self._child.has_ended()):
            self._stop.set_result(grace_s)

    async def run(self) -> Outcome:
        if self._stop.done():
            return self._watch.outcome("cancelled_not_started", words.not_started())
        output = Output(self._room.limits.output_bytes, self._room.output_came)
        try:
            child = self._child = self._start(output)
        except (OSError, ValueError) as error:
            return self._watch.outcome("failed", words.shell_not_started(why_not_started(self._room, error)))
        self._terms.started(child.outer_pid)
        try:
            await asyncio.wait(
                (child.ended, self._stop),
                timeout=self._terms.limit_s - self._watch.seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            return await self._end(child, output)
        finally:
            child.close()

    async def _end(self, child: Child, output: Output) -> Outcome:
        """Rules 2 to 5."""
        tree = self._room.tree
        if self._stop.done():
            after_s = self._watch.seconds
            swept = await tree.end(self._stop.result())
            child.drain()
            text = words.shell_cancelled(output.text(), after_s, len(swept.survivors))
            return self._watch.outcome("cancelled_killed", text, changed="maybe")
        if child.has_ended():
            swept = SweepResult(killed=0, survivors=(), rung="ack")
            if not await tree.until_empty(LINGER_S):
                swept = await tree.end_call(LEFTOVER_GRACE_S)
            child.drain()
            return self._ended(child.ended.result(), output, len(swept.survivors))
        swept = await tree.end_call(LIMIT_GRACE_S)
        child.drain()
        text = words.shell_timed_out(
            output.text(), self._terms.limit_s, self._room.limits.max_timeout_s, len(swept.survivors)
        )
        return self._watch.outcome("timed_out", text, changed="maybe")

    def _ended(self, code: int, output: Output, survivors: int) -> Outcome:
        return self._watch.outcome(
            "done" if code == 0 else "failed",
            words.shell_ended(output.text(), code, survivors),
            changed="maybe",
            exit_code=exit_code(code),
        )

    def _start(self, output: Output) -> Child:
        with command_line(self._room, self._command) as (arguments, descriptors):
            return Child(
                self._room.tree,
                arguments,
                output=output,
                cwd=self._room.workspace.root,
                environment=self._room.environment,
                descriptors=descriptors,
            )


@contextmanager
def command_line(room: Room, command: str) -> Generator[tuple[list[str], tuple[int, ...]]]:
    """Program and arguments, and descriptors that it inherits. Raises ValueError for a command with a NUL."""
    if "\0" in command:
        raise ValueError("a NUL character")
    shell = _shell(room.environment.get("PATH", os.defpath))
    if len(command.encode()) <= ARGUMENT_BYTES:
        yield [shell, "-c", command], ()
        return
    with nameless_file(command.encode()) as file:
        yield [shell, f"/dev/fd/{file.fileno()}"], (file.fileno(),)


def why_not_started(room: Room, error: OSError | ValueError) -> str:
    """In words for the model."""
    if not isinstance(error, OSError):
        return "it holds a NUL character"
    if not os.path.isdir(room.workspace.root):
        return "the workspace folder is not there any more"
    return (error.strerror or "the system refused").lower()


def exit_code(code: int) -> int:
    """As a shell reports it, from an exit code or minus the number of a signal."""
    return code if code >= 0 else 128 - code


def _shell(path: str) -> str:
    """The first of SHELLS on the search path; /bin/sh where none is."""
    for name in SHELLS:
        for folder in path.split(os.pathsep):
            candidate = os.path.join(folder, name)
            if os.path.isabs(folder) and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                return candidate
    return "/bin/sh"
