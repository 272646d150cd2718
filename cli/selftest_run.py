"""Real runs for the self-test: `haltline run` as a process, in a folder and an environment of the self-test's own.

1. Nothing of the user's reaches a run: no variable that haltline reads, no configuration, no workspace of theirs; and
   nothing of a run reaches the user's journal.
2. Retry policy and approval mode are pinned, so that the numbers do not depend on who runs it, or on a terminal.
3. A run that does not end in time is killed and is a failed check, not a self-test that hangs.
4. Whatever happens, a signal to the self-test included, the processes started here are ended before it goes on.
"""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from haltline.cli.gateway_process import GatewayProcess, serving
from haltline.cli.own_command import own_command
from haltline.protocol import events, processes, trees
from haltline.protocol.errors import ConfigurationProblem, Undecodable
from haltline.protocol.lines import Line, from_json

E = TypeVar("E", bound=events.Event)

WITHIN_S: Final = 20.0
"""Longest wait for one run; each needs less than 3 s on an idle machine."""
LEAVE_S: Final = 5.0
"""For a run that is ended early (rule 4): its own stop takes 2.3 s at most."""
PROMPT: Final = "the self-test's prompt"
PINNED: Final = ("--retry", "interactive", "--approval-mode", "yolo")
"""Rule 2."""

_LOOK_S: Final = 0.01
"""Between two looks at what announces itself in no other way."""
_FOREIGN: Final = ("HALTLINE_", "OPENAI_", "ANTHROPIC_", "XDG_")
"""Beginnings of the variables that may change a run (rule 1)."""
_SHORT_TEMP_BYTES: Final = 30
"""Longest temporary folder that leaves room for a socket's path, of 100 bytes, below it."""


class Trouble(Exception):
    """A run could not be looked at to its end. Its words are for the line of the check."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known from outside of a run that has ended."""

    lines: tuple[Line, ...]
    stdout: bytes
    stderr: str
    exit_code: int
    left: int
    """Living processes that the run has left behind."""

    def of(self, kind: type[E]) -> list[E]:
        """The events of one type, in order."""
        return [line.event for line in self.lines if isinstance(line.event, kind)]

    @property
    def result(self) -> events.Result:
        """The last line. Raises Trouble where it is no result."""
        last = self.lines[-1].event if self.lines else None
        if not isinstance(last, events.Result):
            raise Trouble(f"the last line is no result; exit code {self.exit_code}; stderr: {self.stderr.strip()!r}")
        return last

    @property
    def text(self) -> str:
        """What a reader of deltas has been shown of the assistant."""
        return "".join(one.text for one in self.of(events.Message) if one.role == "assistant" and one.delta)

    @property
    def answered_ms(self) -> float | None:
        """Milliseconds from the LLM worker's readiness to the first text, by the supervisor's clock; None: no text."""
        ready = [line for line in self.lines if isinstance(line.event, events.Worker) and line.event.role == "llm"]
        text = [line for line in self.lines if isinstance(line.event, events.Message) and line.event.delta]
        if not ready or not text:
            return None
        return (datetime.fromisoformat(text[0].ts) - datetime.fromisoformat(ready[-1].ts)) / timedelta(milliseconds=1)

    @property
    def wholes(self) -> list[tuple[str, bool]]:
        """The assistant's messages as they were repeated at their ends: text, and whether it is partial."""
        return [(one.text, one.partial) for one in self.of(events.Message) if one.role == "assistant" and not one.delta]


class Server:
    """The scripted gateway as a process of its own, with its log: what was really sent to it, and when."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.url = gateway.url
        self.requests = gateway.requests
        self._gateway = gateway

    def left_after(self, scenario: str) -> float | None:
        """Seconds from the first request for this scenario to the moment at which a client closed its response before
        its end. Waits for that, LEAVE_S at most; None: none was closed."""
        left_at = self._gateway.left_at(lambda line: line.scenario == scenario, LEAVE_S)
        return None if left_at is None else left_at - self.requests(scenario)[0]


class Running:
    """A run that was started. Use `Stage.running`, which ends it."""

    def __init__(self, process: subprocess.Popen[bytes], stage: "Stage") -> None:
        assert process.stdout is not None, "it was asked for"
        assert process.stderr is not None, "it was asked for"
        self.process = process
        self._stage = stage
        self._out, self._err = process.stdout.fileno(), process.stderr.fileno()
        self._open = {self._out, self._err}
        self._stdout = self._stderr = self._unfinished = b""
        self._lines: list[Line] = []

    def until(self, kind: type[E], wanted: Callable[[E], bool] = lambda _: True) -> E:
        """The first event of this type that is wanted, seen already or still to come. Raises Trouble."""
        deadline = time.monotonic() + WITHIN_S
        looked_at = 0
        while True:
            for line in self._lines[looked_at:]:
                if isinstance(line.event, kind) and wanted(line.event):
                    return line.event
            looked_at = len(self._lines)
            if not self._read(deadline):
                raise Trouble(f"it ended before a {kind.__struct_config__.tag}; stderr: {self._words()!r}")

    def processes_of(self, tool_pid: int | None, count: int) -> list[processes.Identity]:
        """The tool and all below it, once there are `count` of them. Raises Trouble."""
        if tool_pid is None:
            raise Trouble("the kernel does not tell the number of the tool's process (/proc/PID/task/PID/children)")
        deadline = time.monotonic() + LEAVE_S
        while time.monotonic() < deadline:
            tool = processes.identify(tool_pid)
            below = [process.identity for process in trees.descendants(tool_pid)]
            if tool is not None and len(below) + 1 == count:
                return [tool, *below]
            time.sleep(_LOOK_S)
        raise Trouble(f"the tool never had the {count} processes that it was to start")

    def end(self) -> Seen:
        """Wait for its end. Raises Trouble."""
        deadline = time.monotonic() + WITHIN_S
        while self._read(deadline):
            pass
        return Seen(
            lines=tuple(self._lines),
            stdout=self._stdout,
            stderr=self._words(),
            exit_code=self.process.wait(),
            left=len(self._stage.left()),
        )

    def _read(self, deadline: float) -> bool:
        """One round of reading; False once both streams are at their end. Raises Trouble when time is up."""
        if not self._open:
            return False
        poll = select.poll()
        for fd in self._open:
            poll.register(fd, select.POLLIN)
        ready = poll.poll(max(0.0, (deadline - time.monotonic()) * 1000))
        if not ready:
            last = self._lines[-1].event if self._lines else None
            raise Trouble(f"it took more than {WITHIN_S:g} s; the last event was {last}; stderr: {self._words()!r}")
        for fd, _ in ready:
            piece = os.read(fd, 1 << 16)
            if not piece:
                self._open.discard(fd)
            elif fd == self._err:
                self._stderr += piece
            else:
                self._take(piece)
        return True

    def _take(self, piece: bytes) -> None:
        self._stdout += piece
        *lines, self._unfinished = (self._unfinished + piece).split(b"\n")
        try:
            self._lines += [from_json(line) for line in lines if line.startswith(b"{")]
        except Undecodable as error:
            raise Trouble(str(error)) from error

    def _words(self) -> str:
        return self._stderr.decode("utf-8", "replace").strip()


class Stage:
    """A folder for everything that the self-test's runs write; `home` in it is their HALTLINE_HOME."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.keep = False
        """True: somebody has to look at what the runs have written."""
        self._home = os.path.join(folder, "home")
        self._workspaces = 0
        self._servers: set[int] = set()
        os.mkdir(self._home)

    def workspace(self) -> str:
        """A new, empty one, with a project file of its own: none further up is looked for (rule 1)."""
        self._workspaces += 1
        path = os.path.join(self.folder, f"work-{self._workspaces}")
        os.mkdir(path)
        with open(os.path.join(path, ".haltline.toml"), "x", encoding="ascii"):
            return path

    @contextmanager
    def running(self, *arguments: str, workspace: str | None = None, fault: str | None = None) -> Generator[Running]:
        """`haltline run ARGUMENTS`, pinned. `fault`: as HALTLINE_INJECT, on the embedded gateway."""
        where = workspace if workspace is not None else self.workspace()
        options = [*PINNED, "-C", where, *(("-m", "demo") if fault is not None else ()), *arguments]
        process = self._start(own_command("run", *options, "--", PROMPT), fault)
        try:
            yield Running(process, self)
        finally:
            _end(process, signal.SIGINT)

    def run(self, *arguments: str, workspace: str | None = None, fault: str | None = None, text: bool = False) -> Seen:
        """The same to its end. `text`: with the output for people, so without lines."""
        form = "text" if text else "stream-json"
        with self.running("-o", form, *arguments, workspace=workspace, fault=fault) as running:
            return running.end()

    @contextmanager
    def server(self) -> Generator[Server]:
        """The scripted gateway in a process of its own; no child of a run, so not counted as left behind."""
        with ExitStack() as ends:
            try:
                gateway = ends.enter_context(serving(os.path.join(self.folder, "gateway.log"), self._environment(None)))
            except ConfigurationProblem as problem:
                raise Trouble(str(problem)) from problem
            self._servers.add(gateway.pid)
            ends.callback(self._servers.discard, gateway.pid)
            yield Server(gateway)

    def left(self) -> list[processes.Process]:
        """Living processes below this one, servers aside. This process has to be a subreaper."""
        return [process for process in trees.descendants(os.getpid()) if process.pid not in self._servers]

    def _start(self, command: list[str], fault: str | None) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(fault),
            process_group=0,  # a Ctrl+C of the terminal reaches it through us alone
        )

    def _environment(self, fault: str | None) -> dict[str, str]:
        """Rule 1."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        environment["HALTLINE_HOME"] = self._home
        if fault is not None:
            environment["HALTLINE_INJECT"] = fault
        return environment


@contextmanager
def stage() -> Generator[Stage]:
    """A stage in a temporary folder, which is removed unless `keep` was said. Whatever a broken run has left alive is
    ended. This process has to be a subreaper. Raises ConfigurationProblem."""
    system = tempfile.gettempdir()
    parent = system if len(os.fsencode(system)) <= _SHORT_TEMP_BYTES else "/tmp"
    try:
        opened = Stage(tempfile.mkdtemp(prefix="haltline-", dir=parent))
    except OSError as error:
        raise ConfigurationProblem(f"no room for the self-test: {error}; set TMPDIR to a writable folder") from error
    try:
        yield opened
    finally:
        trees.sweep(os.getpid(), grace_s=0.0)
        if not opened.keep:
            shutil.rmtree(opened.folder)


def _end(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Rule 4. Nothing to do for one that has ended."""
    try:
        if process.poll() is None:
            process.send_signal(number)
            process.wait(LEAVE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
