"""Keeps one background command of the shell tool: a program of its own, standard library only.

It runs as `python -I -S keeper.py`, its request as JSON on stdin, its reports as JSON lines on stdout. A process of its
own, so that what the command starts hangs below it and cannot be taken for something that a later call has started; and
by exec, because the worker has threads and must not fork Python code.

1. It is a subreaper (where asked to be one: not where the worker is none), so orphans of the command stay below it.
   The worker spares it, and with it all that is below, when it ends what a call has left (tree.py).
2. Reports: `{"pid": N}` or `{"failed": WHY}`, then `{"ended": CODE}` when the command's first process has ended and
   what it had printed is in the file, and `{"over": true}`, just before its own end, when nothing of the command is
   left. Where it is no subreaper it cannot know that; it stays until nobody holds the pipe any more.
3. What is printed goes to a file, at most HEAD_BYTES of its beginning and two times TAIL_BYTES of its end. When that is
   full a shorter file takes its place at a stroke: a reader sees the one or the other.
4. Signals that ask a process to end concern the command, which gets them too; this one ends when it has. They have
   handlers, not SIG_IGN, which the command would inherit.
5. A disk that takes no more, and a worker that is gone, hinder nothing: the command must not wait for a full pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time

HEAD_BYTES = 131_072
TAIL_BYTES = 131_072
"""Rule 3: far more than a call returns; some MiB for as many commands as there may be."""
READ_BYTES = 65_536
BURST_BYTES = 262_144
PAUSE_S = 0.005
"""Once the file is full, a burst, then a pause, as in child.py: an endless writer would cost a core."""
DRAIN_BYTES = 4_194_304
"""Read at most after an end: whoever is left may go on printing."""
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
NAME = b"haltline-keeper"
ASKED_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Kept:
    """The file of rule 3."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._head = b""
        self._tail = b""
        self._total = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)

    @property
    def full(self) -> bool:
        return self._total > HEAD_BYTES + 2 * TAIL_BYTES

    def add(self, data: bytes) -> None:
        room = HEAD_BYTES - len(self._head)
        self._total += len(data)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) <= 2 * TAIL_BYTES:
            _write(self._fd, data)
            return
        self._tail = self._tail[-TAIL_BYTES:]
        with contextlib.suppress(OSError):
            self._begin_anew()

    def _begin_anew(self) -> None:
        new = f"{self._path}.new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        missing = self._total - len(self._head) - len(self._tail)
        _write(fd, self._head + f"\n[... {missing} bytes not kept ...]\n".encode() + self._tail)
        os.replace(new, self._path)
        os.close(self._fd)
        self._fd = fd


class Keeper:
    """One command, from its start to the end of all that it started."""

    def __init__(self, arguments: list[str], descriptors: list[int], cwd: str, kept: Kept, *, adopts: bool) -> None:
        """Starts it. `descriptors`: inherited by the command, closed here. `adopts`: rule 1."""
        self._adopts = adopts
        self._kept = kept
        self._code: int | None = None
        self._burst = 0
        self._held = True
        """Somebody holds the pipe."""
        self._wake_r, wake_w = os.pipe()
        os.set_blocking(wake_w, False)
        os.set_blocking(self._wake_r, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        for asked in (signal.SIGCHLD, *ASKED_TO_END):
            signal.signal(asked, lambda _number, _frame: None)
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                start_new_session=True,
                pass_fds=descriptors,
            )
        finally:
            os.close(theirs)
        for descriptor in descriptors:
            os.close(descriptor)

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self) -> None:
        """Until nothing of it is left (rule 2)."""
        poll = select.poll()
        poll.register(self._wake_r, select.POLLIN)
        poll.register(self._pipe, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wake_r in ready:
                os.read(self._wake_r, READ_BYTES)
            if self._pipe in ready:
                self._read_on()
                if not self._held:
                    poll.unregister(self._pipe)
            if not self._reap() and (self._adopts or not self._held):
                self._drain()
                say(over=True)
                return

    def _reap(self) -> bool:
        """Collect whoever has ended; whether a child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._process.pid and self._code is None:
                self._code = self._process.returncode = os.waitstatus_to_exitcode(status)
                self._drain()
                say(ended=self._code)

    def _read_on(self) -> None:
        self._burst += self._read()
        if self._kept.full and self._burst >= BURST_BYTES:
            self._burst = 0
            time.sleep(PAUSE_S)

    def _drain(self) -> None:
        drained = 0
        while drained < DRAIN_BYTES and (count := self._read()):
            drained += count

    def _read(self) -> int:
        """How many bytes came; 0: none at the moment, or never again."""
        if not self._held:
            return 0
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return 0
        self._held = data != b""
        self._kept.add(data)
        return len(data)


def say(**report: object) -> None:
    """Rule 5."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(report).encode() + b"\n")


def main() -> None:
    request = json.load(sys.stdin.buffer)
    if request["locale"] is None:  # Python itself sets it where the locale is C
        os.environ.pop("LC_CTYPE", None)
    else:
        os.environ["LC_CTYPE"] = request["locale"]
    _name_and_adopt(adopts=request["adopts"])
    try:
        keeper = Keeper(
            request["arguments"],
            request["descriptors"],
            request["cwd"],
            Kept(request["path"]),
            adopts=request["adopts"],
        )
    except OSError as error:
        say(failed=error.strerror or "the system refused")
        return
    say(pid=keeper.pid)
    keeper.run()


def _name_and_adopt(*, adopts: bool) -> None:
    """Rule 1. The name tells processes of ours from tools, to the door as well (protocol/inside.py)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
    name = ctypes.create_string_buffer(NAME)
    prctl(PR_SET_NAME, ctypes.addressof(name), 0, 0, 0)
    if adopts:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _write(fd: int, data: bytes) -> None:
    """All of it, or as much as the disk takes (rule 5)."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(fd, data) :]


if __name__ == "__main__":
    main()
