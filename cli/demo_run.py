"""A `haltline run` of our own, as a real process, shown live while its events are kept.

1. It is looked at from outside only: what it prints, when, and which processes are there.
2. An Interrupted is handed to it as the signal that it was, as often as it comes, until it has ended; then it goes on
   up. Nothing that was started here outlives it.
3. One that does not end in time is killed, and what it leaves counts as left.
"""

import os
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec

from haltline.cli import witness
from haltline.cli.interrupts import Interrupted, undisturbed
from haltline.cli.lane import wait
from haltline.cli.outlet import Outlet
from haltline.cli.own_command import own_command
from haltline.cli.pieces import View
from haltline.protocol import processes
from haltline.protocol.events import AnyEvent, Result
from haltline.protocol.ids import SessionId
from haltline.protocol.lines import Line, from_json
from haltline.protocol.processes import Process

ENDED_WITHIN_S: Final = 60.0
"""Of any run of the demo, which takes a few seconds (rule 3)."""
LEFT_WITHIN_S: Final = 1.0
"""After the end of a run, whose end says that nothing is left."""
_STATUS_S: Final = 0.25


class Told(msgspec.Struct, frozen=True):
    """An event, and when its line came out of the run (monotonic seconds)."""

    at: float
    line: Line


class RunSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run from outside."""

    result: Result | None
    """None: it ended without a last line."""
    exit_code: int
    seconds: float
    """From the start of the process to its end."""
    left: int
    """Processes alive below us when it had ended. This process has to be a subreaper."""


class ShownRun:
    """Use `shown`, which ends it. `besides`: a process of ours that is none of the run's."""

    def __init__(self, process: "subprocess.Popen[bytes]", view: View, outlet: Outlet, besides: int | None) -> None:
        assert process.stdout is not None, "it was asked for"
        self.told: list[Told] = []
        self.ended_at: dict[int, float] = {}
        """By pid: when each process that is watched was seen to have ended."""
        self._process = process
        self._fd: int | None = process.stdout.fileno()
        self._view = view
        self._outlet = outlet
        self._besides = besides
        self._unfinished = b""
        self._watched: dict[int, int] = {}
        """Pids by pidfd."""
        self._began = time.monotonic()
        self._deadline = self._began + ENDED_WITHIN_S

    @property
    def session_id(self) -> SessionId | None:
        return self.told[0].line.session_id if self.told else None

    def until(self, wanted: Callable[[AnyEvent], bool], within_s: float, count: int = 1) -> bool:
        """Show what comes until there were so many such events; False if it ended before, or time passed."""
        deadline = time.monotonic() + within_s
        while sum(wanted(one.line.event) for one in self.told) < count:
            if self._fd is None or time.monotonic() >= deadline:
                return False
            self.show_for(deadline - time.monotonic())
        return True

    def alive(self) -> list[Process]:
        """The processes of the run, and whatever else lives below us."""
        return [process for process in witness.below(os.getpid()) if process.pid != self._besides]

    def watch(self, found: list[Process]) -> list[int]:
        """Note from now on when each of these ends. Returns the pids of those that were still there."""
        opened = [(process.pid, processes.open_pidfd(process.identity)) for process in found]
        self._watched |= {fd: pid for pid, fd in opened if fd is not None}
        return [pid for pid, fd in opened if fd is not None]

    def signal(self, number: int) -> float:
        """When it was sent (monotonic seconds)."""
        at = time.monotonic()
        self._process.send_signal(number)
        return at

    def end(self) -> RunSeen:
        """Show what comes until it has ended, and all that is watched with it (rule 3)."""
        self._show_while(lambda: self._fd is not None, self._deadline)
        if self._fd is not None:
            self._process.kill()
        exit_code = self._process.wait()
        self._show_while(lambda: bool(self._watched), time.monotonic() + LEFT_WITHIN_S)
        last = self.told[-1].line.event if self.told else None
        return RunSeen(
            result=last if isinstance(last, Result) else None,
            exit_code=exit_code,
            seconds=time.monotonic() - self._began,
            left=len(self.alive()),
        )

    def _show_while(self, going_on: Callable[[], bool], deadline: float) -> None:
        while going_on() and time.monotonic() < deadline:
            self.show_for(deadline - time.monotonic())

    def leave(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Rule 2, and rule 3 where something else went wrong."""
        try:
            if isinstance(error, Interrupted):
                self._hand_on(error.number)
        finally:
            with undisturbed():
                self._close()

    def _hand_on(self, number: int) -> None:
        while True:
            try:
                self._process.send_signal(number)
                self.end()
            except Interrupted as again:
                number = again.number
            else:
                return

    def _close(self) -> None:
        for fd in self._watched:
            os.close(fd)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def show_for(self, within_s: float) -> None:
        """One round: until something has come or ended, `within_s` seconds at most."""
        status = self._view.status(time.monotonic())
        self._outlet.set_status(status)
        reading = (*self._watched, *(() if self._fd is None else (self._fd,)))
        timeout_s = min(within_s, _STATUS_S) if status is not None else within_s
        ready = wait(None, reading=reading, writing=self._outlet.waiting, timeout_s=timeout_s)
        now = time.monotonic()
        for fd in ready & self._watched.keys():
            self.ended_at[self._watched.pop(fd)] = now
            os.close(fd)
        self._outlet.write(ready)
        if self._fd is not None and self._fd in ready:
            self._take(os.read(self._fd, 65536), now)

    def _take(self, piece: bytes, now: float) -> None:
        if not piece:
            self._fd = None
            return
        *lines, self._unfinished = (self._unfinished + piece).split(b"\n")
        for line in map(from_json, lines):
            self._outlet.put(self._view.show(line, now))
            self.told.append(Told(now, line))


@contextmanager
def shown(arguments: list[str], view: View, outlet: Outlet, *, besides: int | None = None) -> Generator[ShownRun]:
    """`haltline run -o stream-json ARGUMENTS`, started (rule 2)."""
    with ExitStack() as ends:
        with undisturbed():
            process = subprocess.Popen(
                own_command("run", "-o", "stream-json", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                process_group=0,  # a Ctrl+C of the terminal reaches it through us alone, once
            )
            run = ShownRun(process, view, outlet, besides)
            ends.push(run.leave)
        yield run


def run_and_show(arguments: list[str], view: View, outlet: Outlet) -> RunSeen:
    """The same to its end."""
    with shown(arguments, view, outlet) as run:
        return run.end()
