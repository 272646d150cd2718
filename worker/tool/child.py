"""One process that the worker started, and the pipe that it prints to.

1. A child is the leader of a session and group of its own, with an empty stdin and no terminal; stdout and stderr are
   one pipe, so that their order is kept.
2. It has ended when its pidfd is readable (or SIGCHLD says so), never at end-of-file: others may hold the pipe for as
   long as they like (G4).
3. The pipe is read while the child runs, a bounded piece per callback. Once the bound of what is kept is reached, the
   rate is limited: an endless writer would else cost a whole core at 2.5 GB/s.
4. What it wrote before it ended is in the pipe then; `drain` reads until the pipe is empty (R15).
"""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from haltline.protocol import processes
from haltline.worker.tool.outer_pids import Birth
from haltline.worker.tool.output import Sink
from haltline.worker.tool.tree import Tree

READ_BYTES = 65_536
"""The capacity of a pipe."""
BURST_BYTES = 262_144
PAUSE_S = 0.005
"""Rule 3: a burst, then a pause: at most 50 MB/s, 2 to 3 % of a core."""
DRAIN_BYTES = 4_194_304
"""The largest pipe that can be asked for holds 1 MiB; the bound matters only if a survivor writes on."""


class Child:
    """Starts at once. Raises OSError where that fails, ValueError for a NUL in an argument."""

    def __init__(
        self,
        tree: Tree,
        arguments: Sequence[str],
        *,
        output: Sink,
        cwd: str,
        environment: Mapping[str, str],
        stdin: IO[bytes] | None = None,
        descriptors: Sequence[int] = (),
        kept: bool = False,
    ) -> None:
        """`stdin`: None is empty. `descriptors`: inherited besides, under the same numbers. `kept`: it outlives its
        call (tree.py, rule 4)."""
        self._loop = asyncio.get_running_loop()
        self._tree = tree
        self._output = output
        self._pipe, pipe_end = os.pipe()
        self._burst = 0
        self._reading = False
        self._resume: asyncio.TimerHandle | None = None
        os.set_blocking(self._pipe, False)
        birth = Birth()
        try:
            self._popen = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=pipe_end,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment,
                start_new_session=True,
                pass_fds=descriptors,
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(pipe_end)
        self.pid = self._popen.pid
        """Also the number of its group and session."""
        self.outer_pid = birth.pid_of(self.pid)
        """What it is called outside; None: unknown."""
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """Exit code, or minus the signal's number."""
        self._pidfd = _open_pidfd(self.pid)
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self._check)
        tree.watch(self.pid, self._check, kept=kept)
        self._read_on()

    def has_ended(self) -> bool:
        """Asked of the kernel now; `ended` has its result then."""
        if not self.ended.done():
            self._check()
        return self.ended.done()

    def signal(self, number: int) -> None:
        """To this process alone; nothing if it has ended."""
        identity = None if self.has_ended() else processes.identify(self.pid)
        if identity is not None:
            processes.signal_identity(identity, number)

    def drain(self) -> None:
        """Rule 4."""
        drained = 0
        while drained < DRAIN_BYTES and (data := self._read()):
            drained += len(data)

    def close(self) -> None:
        """Let go of the pipe. The process has ended, or cannot be ended."""
        if self._resume is not None:
            self._resume.cancel()
        self._stop_reading()
        os.close(self._pipe)
        if not self.ended.done():
            self._forget()

    def _check(self) -> None:
        """Rule 2: reap it if it has ended."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid != 0:
            code = os.waitstatus_to_exitcode(status)
            self._popen.returncode = code  # it is reaped; Popen must not wait for the number again
            self._forget()
            self.ended.set_result(code)

    def _forget(self) -> None:
        self._tree.unwatch(self.pid)
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _read_on(self) -> None:
        self._resume = None
        self._burst = 0
        self._reading = True
        self._loop.add_reader(self._pipe, self._readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._pipe)

    def _readable(self) -> None:
        """Rule 3."""
        data = self._read()
        if data == b"":
            self._stop_reading()
        elif data is not None and self._output.full:
            self._burst += len(data)
            if self._burst >= BURST_BYTES:
                self._stop_reading()
                self._resume = self._loop.call_later(PAUSE_S, self._read_on)

    def _read(self) -> bytes | None:
        """None: nothing there at the moment. Empty: nobody holds the other end any more."""
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return None
        self._output.add(data)
        return data


def _open_pidfd(pid: int) -> int | None:
    """Of our own child that is not reaped: the number cannot have been reused."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # no pidfds here: SIGCHLD tells
        return None
