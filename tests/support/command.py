"""The `haltline` command as a real process, for tests of the whole chain: events in, signals out.

Every wait has a deadline and is for a line or an end, never for time.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from support.checkout import ROOT

from haltline.protocol.events import CancelReceipt, Counters

COMMAND = (sys.executable, "-I", "-S", str(ROOT / "bin" / "start.py"))
"""What bin/haltline becomes where the checkout is set up."""

SHIPPED = (str(ROOT / "bin" / "haltline"),)
"""What a user types; its start is part of the product's speed."""

WITHIN_S = 20.0
"""Longest wait for anything; a broken product shows as a failure, not as a hanging test."""

Event = dict[str, object]


@dataclass(frozen=True)
class Ended:
    exit_code: int
    events: tuple[Event, ...]
    stdout: bytes
    stderr: str

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["type"] == kind]

    @property
    def result(self) -> Event:
        """The last line, which has to be the result."""
        assert self.events, f"no event at all; stderr: {self.stderr}"
        assert self.events[-1]["type"] == "result", (self.events[-1], self.stderr)
        return self.events[-1]

    @property
    def receipt(self) -> CancelReceipt:
        """The result's, of a run that was stopped."""
        return msgspec.convert(self.result["cancel"], CancelReceipt)

    @property
    def counters(self) -> Counters:
        return msgspec.convert(self.result["counters"], Counters)

    @property
    def text(self) -> str:
        """What a reader of deltas has seen of the assistant."""
        return "".join(
            str(event["text"]) for event in self.of("message") if event["role"] == "assistant" and event["delta"]
        )


class Running:
    """A command that was started; `events` grows as `until` and `end` read."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path | None = None,
        stdin: bytes = b"",
        extra: Mapping[str, str] | None = None,
        command: Sequence[str] = COMMAND,
        terminal: bool = False,
        typing: bool = False,
    ) -> None:
        """`command`: what starts the program. `terminal`: its standard input and error are one; not its controlling
        one, so it sends no signals. `typing`: standard input stays open, for `type`, until `type_end`."""
        self.events: list[Event] = []
        self._buffer = b""
        self._stdout = b""
        self._stderr = b""
        screen, theirs = os.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=theirs if terminal else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=theirs,
            cwd=cwd,
            env={**os.environ, **(extra or {})},
        )
        os.close(theirs)
        if self.process.stdin is not None:
            self.process.stdin.write(stdin)
            if not typing:
                self.process.stdin.close()
        assert self.process.stdout is not None
        self._streams = (self.process.stdout, open(screen, "rb", buffering=0))  # noqa: SIM115  (closed by end)
        self._selector = selectors.DefaultSelector()
        for stream in self._streams:
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)

    def type(self, line: str) -> None:
        """One line of standard input, or of the terminal."""
        stdin = self.process.stdin
        os.write(self._streams[1].fileno() if stdin is None else stdin.fileno(), f"{line}\n".encode())

    def type_end(self) -> None:
        """The end of standard input; Ctrl+D on the terminal."""
        stdin = self.process.stdin
        if stdin is None:
            os.write(self._streams[1].fileno(), b"\x04")
        else:
            stdin.close()

    def until(self, wanted: Callable[[Event], bool] | str, within_s: float = WITHIN_S) -> Event:
        """The first event, seen already or still to come, that is wanted (by type, or by a function)."""

        def matches(event: Event) -> bool:
            return event["type"] == wanted if isinstance(wanted, str) else wanted(event)

        deadline = time.monotonic() + within_s
        looked_at = 0
        while True:
            for event in self.events[looked_at:]:
                if matches(event):
                    return event
            looked_at = len(self.events)
            assert self._read(deadline), (
                f"it ended without that event, {self.process.wait()}; stderr: {self._stderr.decode()}"
            )

    def until_stderr(self, words: str, within_s: float = WITHIN_S) -> None:
        """Until these words were written to standard error."""
        deadline = time.monotonic() + within_s
        while words.encode() not in self._stderr:
            assert self._read(deadline), f"it ended without these words; stderr: {self._stderr.decode()}"

    def end(self, within_s: float = WITHIN_S) -> Ended:
        """Wait for the command's end."""
        deadline = time.monotonic() + within_s
        while self._read(deadline):
            pass
        code = self.process.wait(max(0.1, deadline - time.monotonic()))
        self._selector.close()
        for stream in self._streams:
            stream.close()
        return Ended(code, tuple(self.events), self._stdout, self._stderr.decode("utf-8", "replace"))

    def give_up(self) -> None:
        """End it the hard way: the test has failed."""
        self.process.kill()
        self.process.wait()
        self._selector.close()
        for stream in (self.process.stdin, *self._streams):
            if stream is not None:
                stream.close()

    def _read(self, deadline: float) -> bool:
        """One round of reading; False once both streams are at their end."""
        if not self._selector.get_map():
            return False
        left = deadline - time.monotonic()
        ready = self._selector.select(max(0.0, left))
        if not ready:
            self.give_up()
            raise AssertionError(
                f"nothing happened in time; last events {self.events[-3:]}; stderr: {self._stderr.decode()}"
            )
        for key, _mask in ready:
            data = _available(key.fd)
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self.process.stdout:
                self._take(data)
            else:
                self._stderr += data
        return True

    def _take(self, data: bytes) -> None:
        self._stdout += data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self.events += [json.loads(line) for line in lines if line.startswith(b"{")]


def _available(fd: int) -> bytes:
    """What can be read; empty at the end."""
    try:
        return os.read(fd, 1 << 16)
    except OSError as error:
        if error.errno != errno.EIO:  # how a terminal says that nobody holds its other side
            raise
        return b""


def run(
    *arguments: str,
    cwd: Path | None = None,
    stdin: bytes = b"",
    extra: Mapping[str, str] | None = None,
    within_s: float = WITHIN_S,
) -> Ended:
    """Start a command and wait for its end."""
    return Running(arguments, cwd=cwd, stdin=stdin, extra=extra).end(within_s)
