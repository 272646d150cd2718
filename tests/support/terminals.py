"""A command on a pseudo-terminal: what a person presses, what the screen shows, what the terminal is set to.

1. The test holds the terminal open itself, so its settings can be read before the command and after whatever ended it.
2. Bytes are written as they are; `expect` is pexpect's, with a deadline.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pexpect
from support.chain import Member, only_child
from support.command import COMMAND

WITHIN_S: Final = 20.0
TIOCGPTN: Final = 0x80045430
"""ioctl number, asm-generic/ioctls.h: which /dev/pts/N belongs to this master."""


class OnTerminal:
    """`command ARGUMENTS`, leader of a session whose terminal this is."""

    def __init__(
        self,
        *arguments: str,
        command: Sequence[str] = COMMAND,
        cwd: Path | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        program, *rest = [*command, *arguments]
        self.child: pexpect.spawn[str] = pexpect.spawn(
            program,
            rest,
            encoding="utf-8",
            codec_errors="replace",
            timeout=WITHIN_S,
            dimensions=(24, 120),
            cwd=None if cwd is None else str(cwd),
            env={**os.environ, **(extra or {})},
        )
        self.child.delaybeforesend = None
        (number,) = struct.unpack("I", fcntl.ioctl(self.child.child_fd, TIOCGPTN, bytes(4)))
        self.path = f"/dev/pts/{number}"
        self._held = os.open(self.path, os.O_RDWR | os.O_NOCTTY)  # rule 1
        self.before = self.settings()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._held)
        self.child.close(force=True)

    @property
    def pid(self) -> int:
        pid: int | None = self.child.pid
        assert pid is not None, "it was started"
        return pid

    def settings(self) -> str:
        """What `stty -a` says."""
        return subprocess.run(
            ["stty", "-a", "-F", self.path], capture_output=True, text=True, check=True, timeout=WITHIN_S
        ).stdout

    def press(self, *pieces: bytes) -> None:
        """Each piece is one write; 20 ms lie between two."""
        for number, piece in enumerate(pieces):
            if number:
                wait(0.02)
            os.write(self.child.child_fd, piece)

    def until(self, *words: str) -> str:
        """Wait until the screen got each of these, in order. Returns all that came on the way, controls included."""
        came = ""
        for one in words:
            self.child.expect_exact(one)
            assert isinstance(self.child.before, str)
            came += self.child.before + one
        return came

    def end(self) -> tuple[int, str]:
        """Wait for the command's end (its terminal stays). Returns its exit code, or -N for signal N, and what came."""
        came = self.until_or_end(None)
        self.child.wait()
        code = self.child.exitstatus if self.child.signalstatus is None else -self.child.signalstatus
        assert code is not None
        return code, came

    def until_or_end(self, words: str | None) -> str:
        """What the screen got until it showed these words, or until the command had ended."""
        came = ""
        pidfd = os.pidfd_open(self.pid)
        try:
            deadline = time.monotonic() + WITHIN_S
            while words is None or words not in came:
                if select.select((pidfd,), (), (), 0.0)[0]:
                    return came + self._available()
                assert time.monotonic() < deadline, f"it did not end; the screen got {came!r}"
                select.select((pidfd, self.child.child_fd), (), (), WITHIN_S)
                came += self._available()
            return came
        finally:
            os.close(pidfd)

    def _available(self) -> str:
        came = ""
        while select.select((self.child.child_fd,), (), (), 0.0)[0]:
            try:
                came += self.child.read_nonblocking(65536, timeout=0)
            except (pexpect.EOF, pexpect.TIMEOUT):
                break
        return came

    def chain(self) -> dict[Member, int]:
        """Pids of the four that are there before any worker is."""
        guard = only_child(self.pid)
        supervisor = only_child(guard)
        return {"client": self.pid, "guard": guard, "supervisor": supervisor, "zygote": only_child(supervisor)}

    def hang_up(self) -> None:
        """The person's side of the terminal goes, as when a window is closed."""
        os.close(self._held)
        self._held = os.open(os.devnull, os.O_RDONLY)
        self.child.close(force=False)


def wait(seconds: float) -> None:
    """For tests whose subject is the moment itself; nothing is waited for."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        os.sched_yield()


def wait_until(holds: Callable[[], bool]) -> None:
    """Look again until it holds."""
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        os.sched_yield()


@contextmanager
def shell(*, cwd: Path | None = None, extra: Mapping[str, str] | None = None) -> Generator[OnTerminal]:
    """An interactive bash with job control and the prompt `$ `; `haltline` is a function in it."""
    with OnTerminal(
        "--norc",
        "--noprofile",
        "-i",
        command=("bash",),
        cwd=cwd,
        extra={"PS1": "READY$ ", "TERM": "xterm", **(extra or {})},
    ) as terminal:
        terminal.until("READY$ ")
        yield terminal
