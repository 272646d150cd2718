"""The client's one wait: the lane, signals, the supervisor's death, standard input, room on stdout and stderr.

1. What the supervisor sent before its death counts: the lane is read empty first.
2. While stdout takes nothing, nothing is taken from the lane; the supervisor merges deltas meanwhile.
3. Signals are handed on before anything else is looked at; what the hearer raises ends the wait.
4. A terminal that the keyboard has taken gives keys, to `on_key`; any other standard input gives lines, where they are
   asked for.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final, Literal

from haltline.cli.keyboard import Keyboard
from haltline.cli.keys import Key
from haltline.cli.lane import LANE, LAST_WORDS_S, Lane, wait
from haltline.cli.lines_in import LineReader
from haltline.cli.outlet import Outlet
from haltline.cli.owned import Owned, numbers
from haltline.protocol import deaths, times
from haltline.protocol.client_messages import ToClient, ToSupervisor
from haltline.protocol.errors import BrokenInvariant, Undecodable

STATUS_S: Final = 0.25
"""How often a status line that counts seconds is looked at."""
SUSPEND_S: Final = 0.05
"""For the end of the status line, before a shell takes the screen."""
GUARD_WITHIN_S: Final = times.guard_left_s()
"""From the end of the session to that of the guard, which goes last; some 10 ms when all goes well."""
_MOST_MESSAGES: Final = 256
"""Taken from the lane at once; then signals are looked at again."""


class SupervisorLost(Exception):
    """It is dead, and all that it had sent has been read; or it did not answer in time. The text says which."""

    def __init__(self, words: str = "the supervisor ended") -> None:
        super().__init__(words)


class Loop:
    """`on_signal(number)` hears every signal, `on_key` every key; what they raise comes out of the call that waited.
    `on_resumed`: this process was stopped and goes on. `on_foreground`: the terminal is ours again; what a shell has
    written meanwhile stands behind what was asked."""

    def __init__(
        self,
        owned: Owned,
        outlet: Outlet,
        *,
        stdin_fd: int,
        on_signal: Callable[[int], None],
        on_key: Callable[[Key], None],
        on_resumed: Callable[[], None],
        on_foreground: Callable[[], None],
    ) -> None:
        self.keyboard = Keyboard(owned.terminal, stdin_fd)
        self._on_key = on_key
        self._on_resumed = on_resumed
        self._on_foreground = on_foreground
        self._owned = owned
        self._outlet = outlet
        self._stdin_fd = stdin_fd
        self._on_signal = on_signal
        self._lane: Lane | None = None
        self._supervisor_fd: int | None = None
        self.typed = LineReader()

    def attach(self, lane: Lane, supervisor_fd: int) -> None:
        """From now on the lane is read and the supervisor's death (its pidfd) is seen."""
        self._lane = lane
        self._supervisor_fd = supervisor_fd

    def send(self, message: ToSupervisor) -> None:
        assert self._lane is not None, "the supervisor has to be met first"
        self._lane.send(message)

    def step(self, deadline: float | None, *, typing: bool, status: str | None) -> list[ToClient]:
        """Wait until something happens or the deadline (monotonic) passes, and deal with it. Messages of the lane
        are returned; typed lines go to `typed`, where `typing` asks for them. Raises SupervisorLost."""
        self._outlet.set_status(status)
        lane = None if self._outlet.full else self._lane  # rule 2
        reading = [self._owned.signals_fd]
        if lane is not None and self._supervisor_fd is not None:
            reading.append(self._supervisor_fd)
        lines = typing and not self.keyboard.wanted and not self.typed.ended
        if lines or self.keyboard.readable:
            reading.append(self._stdin_fd)
        now = time.monotonic()
        limits = [STATUS_S] if status is not None else []
        if (due_s := self.keyboard.due_s(now)) is not None:
            limits.append(due_s)
        if deadline is not None:
            limits.append(deadline - now)
        ready = wait(lane, reading=reading, writing=self._outlet.waiting, timeout_s=min(limits, default=None))
        self._outlet.write(ready)
        self._hear_signals()
        if lines and self._stdin_fd in ready:
            self.typed.feed(_read(self._stdin_fd))
        self.hear_keys(ready=self._stdin_fd in ready)
        if self.keyboard.came_back():
            self._on_foreground()
        if self._supervisor_fd in ready and lane is not None and LANE not in ready:
            ready = wait(lane, reading=(), timeout_s=LAST_WORDS_S)  # rule 1
            if LANE not in ready:
                raise SupervisorLost
        return _received(lane) if lane is not None and LANE in ready else []

    def hear_keys(self, *, ready: bool) -> None:
        """Hand on what has been typed. `ready`: there is something to read."""
        for key in self.keyboard.read(ready=ready):
            self._on_key(key)

    def _hear_signals(self) -> None:
        while came := numbers(self._owned.signals_fd):  # who was suspended finds the signal that woke it
            self._hear(came)

    def _hear(self, came: Iterable[int]) -> None:
        for number in came:
            if number == signal.SIGTSTP:
                self._outlet.set_status(None)
                self.write_for(SUSPEND_S)
                self.keyboard.suspend()
                self._on_resumed()
            elif number == signal.SIGCONT:
                self.keyboard.resume()
                self._on_resumed()
            else:
                self._on_signal(number)

    def until_written(self, patience: Callable[[], float | None]) -> bool:
        """Write everything that is queued, however slow the readers are. `patience()`: how long they may take nothing,
        in seconds; None: for ever. False: that was too long."""
        self._outlet.set_status(None)
        while self._outlet.waiting:
            limit_s = patience()
            reading = (self._owned.signals_fd,)
            ready = wait(None, reading=reading, writing=self._outlet.waiting, timeout_s=limit_s)
            self._outlet.write(ready)
            self._hear_signals()
            if not ready and limit_s is not None:
                return False
        return True

    def write_for(self, seconds: float) -> None:
        """Write what is queued, `seconds` at most, and hear nothing meanwhile."""
        deadline = time.monotonic() + seconds
        while self._outlet.waiting and (left_s := deadline - time.monotonic()) > 0:
            self._outlet.write(wait(None, reading=(), writing=self._outlet.waiting, timeout_s=left_s))

    def until_guard_gone(self) -> Literal["gone", "ended", "left"]:
        """gone: nothing that this command started is left. Says goodbye first, so that a supervisor which was never
        asked for anything leaves too. One that does not leave is killed; for a guard that does not go either, its work
        is done here (ended; left: not all of it could be): what is below them has nobody else. A guard that went first
        was shot: then the supervisor's end counts, and zygote and workers go by themselves."""
        self._owned.leave()
        in_order = self._ends_gone_within(GUARD_WITHIN_S)
        if not in_order and self._supervisor_fd is not None:
            deaths.kill(self._supervisor_fd)
        if in_order or self._ends_gone_within(times.guard_gone_s()):
            self._owned.clear_away()  # whoever should have done it may have been shot
            return "gone"
        return "ended" if self._owned.stand_in_for_guard() else "left"

    def _ends_gone_within(self, seconds: float) -> bool:
        """Guard and supervisor."""
        deadline = time.monotonic() + seconds
        left = {self._owned.guard_fd} | ({self._supervisor_fd} if self._supervisor_fd is not None else set[int]())
        self._owned.wake_guard()
        while (left_s := deadline - time.monotonic()) > 0:
            ready = wait(None, reading=(*left, self._owned.signals_fd), timeout_s=left_s)
            self._hear_signals()
            left -= ready
            if not left:
                return True
        return False

    def hang_up(self) -> None:
        """Let go of the lane, however far we came. Nothing can be sent after it."""
        if self._lane is not None:
            self._lane.close()
            self._lane = None


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # a terminal that was hung up (EIO) is at its end
        return b""


def _received(lane: Lane) -> list[ToClient]:
    messages: list[ToClient] = []
    while len(messages) < _MOST_MESSAGES:
        try:
            message = lane.receive()
        except Undecodable as problem:
            raise BrokenInvariant(str(problem)) from problem
        if message is None:
            break
        messages.append(message)
    return messages
