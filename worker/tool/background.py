"""Background commands of the shell tool: they go on after their call, and end with the session or with a stop (G1).

1. Each has a keeper (keeper.py), below which all of it hangs. It lives until nothing of the command does; until then
   what other calls leave behind is ended beside it, and its own processes are spared (tree.py, rule 4).
2. A stop ends every one that was begun before it, a session's end all of them; both give SIGTERM and a grace first.
3. The call returns when the command's first process has ended, or after FIRST_LOOK_S. What ends that fast has most
   likely failed, and its outcome is that of an ordinary call.
4. What a command prints is kept in a file of the session's own folder, which goes with the session. The model reads it
   with the shell: whoever may start a background command may do that, and no path outside has to be allowed (J1).
5. A keeper that somebody kills leaves what it kept to the worker, which ends it with the next shell call, or with the
   session: it cannot be told from what that call has started.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections.abc import Collection

import msgspec

from haltline.worker.tool import words
from haltline.worker.tool.child import Child
from haltline.worker.tool.nameless import nameless_file
from haltline.worker.tool.output import Output
from haltline.worker.tool.tree import Tree

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")
MOST = 8
"""Alive at once: a keeper is a process of 9 MiB, and a model that starts more has lost sight of them."""
ENDED_KEPT = 8
"""Files of commands that have ended: their last words may be why."""
FIRST_LOOK_S = 0.5
"""Rule 3: a port in use or a missing module shows within it; the result of a call may take as long (R02)."""
_REPORT_BYTES = 4_096
"""Of one line of a keeper; a longer one is none."""

log = logging.getLogger(__name__)


class _Report(msgspec.Struct, frozen=True):
    """One line of a keeper (keeper.py, rule 2)."""

    pid: int | None = None
    failed: str | None = None
    ended: int | None = None
    over: bool = False


class TooMany(Exception):
    """MOST of them are alive."""

    def __init__(self, most: int, pids: tuple[int, ...]) -> None:
        super().__init__(most, pids)
        self.most = most
        self.pids = pids


class Command:
    """One background command; its keeper's reports are added to it as they come."""

    def __init__(self, path: str, generation: int) -> None:
        self.path = path
        self.generation = generation
        """Of the call that began it."""
        loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[None] = loop.create_future()
        """`pid` or `failed` is known; or it never will be, because the keeper is gone."""
        self.ended: asyncio.Future[None] = loop.create_future()
        """Its first process has ended, with `code`; or the keeper has."""
        self.over: asyncio.Future[None] = loop.create_future()
        """Nothing of the command is left."""
        self.gone: asyncio.Future[None] = loop.create_future()
        """The keeper has ended."""
        self.pid: int | None = None
        """Leader of the command's session and group, as tools call it."""
        self.failed: str | None = None
        self.code: int | None = None
        self.keeper_pid = 0
        self.outer_pid: int | None = None
        """Of the keeper (outer_pids.py)."""
        self.goes_on = False
        """The model was told that it does, and where its output is."""
        self._line = b""

    @property
    def full(self) -> bool:
        """For Child: a keeper says little."""
        return False

    def add(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        self._line = self._line[-_REPORT_BYTES:]
        for line in lines:
            self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=_Report)
        except msgspec.DecodeError:
            log.warning("a keeper said: %r", line)
            return
        if report.pid is not None or report.failed is not None:
            self.pid, self.failed = report.pid, report.failed
            _set(self.answered)
        if report.ended is not None:
            self.code = report.ended
            _set(self.ended)
        if report.over:
            _set(self.over)

    def has_gone(self) -> None:
        for future in (self.answered, self.ended, self.over, self.gone):
            _set(future)

    def output(self, limit_bytes: int) -> str:
        """What it has printed so far, bounded. Reads a file: not for the loop."""
        printed = Output(limit_bytes)
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            printed.add(file.read())
        return printed.text()


class Background:
    """All background commands of one worker."""

    def __init__(self, tree: Tree, folder: str, *, adopts: bool) -> None:
        """`folder`: for the files; made with the first of them. `adopts`: the worker is a subreaper, keepers too."""
        self._tree = tree
        self._folder = folder
        self._adopts = adopts
        self._number = 0
        """Of the newest file."""
        self._commands: dict[Command, Child] = {}
        """Those alive, and their keepers."""
        self._ended: list[str] = []
        """Files of those that have ended, oldest first."""

    def begin(
        self,
        arguments: list[str],
        *,
        generation: int,
        cwd: str,
        environment: dict[str, str],
        descriptors: tuple[int, ...] = (),
    ) -> Command:
        """Start one. Raises TooMany; OSError where not even its keeper could be started."""
        if len(self._commands) >= MOST:
            raise TooMany(MOST, tuple(command.pid for command in self._commands if command.pid is not None))
        path = self._new_path()
        command = Command(path, generation)
        request = {
            "arguments": arguments,
            "cwd": cwd,
            "descriptors": descriptors,
            "path": path,
            "adopts": self._adopts,
            "locale": environment.get("LC_CTYPE"),
        }
        with nameless_file(msgspec.json.encode(request)) as stdin:
            keeper = Child(
                self._tree,
                [sys.executable, "-I", "-S", PROGRAM],
                output=command,
                cwd="/",
                environment=self._tree.environment_of_kept(environment),
                stdin=stdin,
                descriptors=descriptors,
                kept=True,
            )
        command.keeper_pid, command.outer_pid = keeper.pid, keeper.outer_pid
        command.answered.add_done_callback(lambda _answered: self._answered(command))
        keeper.ended.add_done_callback(lambda _ended: self._gone(command))
        self._commands[command] = keeper
        return command

    def give_up(self, command: Command) -> None:
        """Its keeper does not answer: end it."""
        if command in self._commands:
            self._commands[command].signal(signal.SIGKILL)

    def forget(self, command: Command) -> None:
        """Its output is told and nothing of it goes on."""
        _remove(command.path)

    def not_before(self, generation: int) -> Collection[int]:
        """Keepers of what was begun in this generation or later (rule 2)."""
        return {command.keeper_pid for command in self._commands if command.generation >= generation}

    def clear_away(self) -> None:
        """The session is over: the folder goes."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _new_path(self) -> str:
        """Numbers rise, also past those of a worker before this one."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        while True:
            self._number += 1
            path = os.path.join(self._folder, f"{self._number}.txt")
            if not os.path.lexists(path):
                return path

    def _answered(self, command: Command) -> None:
        if command.pid is not None:
            self._tree.kept_started(command.keeper_pid, command.pid)

    def _gone(self, command: Command) -> None:
        keeper = self._commands.pop(command)
        keeper.drain()
        keeper.close()
        command.has_gone()
        if not command.goes_on:  # its call looks at the output, and forgets it
            return
        with contextlib.suppress(OSError), open(command.path, "a") as file:
            file.write(words.background_last_line(command.code))
        self._ended.append(command.path)
        while len(self._ended) > ENDED_KEPT:
            _remove(self._ended.pop(0))


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
