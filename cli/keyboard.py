"""Reads whole keys from the terminal behind standard input, and lets job control have its way.

1. The terminal is ours only in the foreground. In the background nothing is read and nothing changed, since what is
   typed there is the shell's. A shell does not always say when it brings us back, so that is looked at every LOOK_S.
2. Ctrl+Z (SIGTSTP): the terminal is given back first, then this process alone stops itself; what it had started is in
   other sessions and goes on. Who was started with that signal ignored cannot be suspended, and stays so.
3. After a stop of any kind (SIGCONT) the terminal is taken again, whatever the shell has made of it meanwhile.
4. Whenever it was not ours in between, a shell has written over what stood at the cursor: `came_back` says so, once.
5. A read that gives nothing is no end: Ctrl+C throws away what was typed before it. A terminal that was hung up is.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Final

from haltline.cli import keys
from haltline.protocol.terminal import SharedTerminal

LOOK_S: Final = 0.25
"""Rule 1. Two system calls each time."""
_READ_BYTES: Final = 65536


class Keyboard:
    """`terminal` is the one behind `fd`. Does nothing where `fd` is no terminal."""

    def __init__(self, terminal: SharedTerminal, fd: int) -> None:
        self._terminal = terminal
        self._fd = fd
        self.is_terminal = _is_terminal(fd)
        self._wanted = False
        self._taken = False
        self._back = False
        self._reading = keys.Reading()
        self._next_s: float | None = None
        """When a key that may go on is taken as it is (monotonic)."""
        self.ended = False

    @property
    def wanted(self) -> bool:
        return self._wanted

    @property
    def readable(self) -> bool:
        """Whether a wait should look at it."""
        return self._taken and not self.ended

    def want(self) -> None:
        """From now on: keys."""
        if self.is_terminal and not self._wanted:
            self._wanted = True
            _catch(signal.SIGTSTP)
            _catch(signal.SIGCONT)
            self.settle()
            self._back = False

    def give_back(self) -> None:
        """From now on the terminal is as it was found."""
        if self._wanted:
            self._wanted = self._taken = False
            self._terminal.restore()
            _release(signal.SIGTSTP)
            _release(signal.SIGCONT)

    def settle(self) -> None:
        """Rule 1."""
        if self._wanted and not self.ended:
            had = self._taken
            self._taken = _in_foreground(self._fd) and self._terminal.take()
            self._back = self._back or (self._taken and not had)

    def resume(self) -> None:
        """Rule 3."""
        self._taken = False
        self.settle()

    def came_back(self) -> bool:
        """Rule 4."""
        back, self._back = self._back, False
        return back

    def suspend(self) -> None:
        """Rule 2. Returns when somebody has continued us, or at once where nobody could."""
        if signal.getsignal(signal.SIGTSTP) == signal.SIG_IGN:
            return
        self._taken = False
        self._terminal.restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        if self._wanted:
            _catch(signal.SIGTSTP)
            self.settle()

    def due_s(self, now: float) -> float | None:
        """In how many seconds `keys` or `settle` has to be called at the latest."""
        if not self._wanted or self.ended:
            return None
        if not self._taken:
            return LOOK_S
        return None if self._next_s is None else max(0.0, self._next_s - now)

    def read(self, *, ready: bool) -> tuple[keys.Key, ...]:
        """The keys that are whole by now. `ready`: a wait has said that there is something to read."""
        if not self._taken:
            self.settle()
            return ()
        data = self._bytes() if ready else b""
        now = time.monotonic()
        if not data and not self.ended and (self._next_s is None or now < self._next_s):
            return ()
        self._reading, found = keys.read(self._reading, data, quiet=not data)
        wait_s = self._reading.wait_s
        self._next_s = None if wait_s is None else now + wait_s
        return found

    def _bytes(self) -> bytes:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except OSError:
            if not _in_foreground(self._fd):  # we were moved to the background just now
                self._taken = False
                return b""
            data = b""
        self.ended = not data and self._terminal.hung_up
        return data


def _catch(number: int) -> None:
    """Have this signal told through the wakeup pipe, unless we were started with it ignored."""
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, _noted)


def _release(number: int) -> None:
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def _noted(_number: int, _frame: object) -> None:
    """The wakeup pipe has the byte."""


def _in_foreground(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # not the terminal that controls us: there is no background
        return True


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False
