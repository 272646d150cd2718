"""The `haltline` command as a real process, for tests of the whole chain: events in, signals out.

Every wait has a deadline and is for a line or an end, never for time.
"""

from __future__ import annotations

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
    ) -> None:
        """`command`: what starts the program."""
        self.events: list[Event] = []
        self._buffer = b""
        self._stdout = b""
        self._stderr = b""
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **(extra or {})},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdin.write(stdin)
        self.process.stdin.close()
        self._selector = selectors.DefaultSelector()
        for stream in (self.process.stdout, self.process.stderr):
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)

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
            assert self._read(deadline), f"it ended without that event; stderr: {self._stderr.decode()}"

    def end(self, within_s: float = WITHIN_S) -> Ended:
        """Wait for the command's end."""
        deadline = time.monotonic() + within_s
        while self._read(deadline):
            pass
        code = self.process.wait(max(0.1, deadline - time.monotonic()))
        self._selector.close()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return Ended(code, tuple(self.events), self._stdout, self._stderr.decode("utf-8", "replace"))

    def _read(self, deadline: float) -> bool:
        """One round of reading; False once both streams are at their end."""
        if not self._selector.get_map():
            return False
        left = deadline - time.monotonic()
        ready = self._selector.select(max(0.0, left))
        if not ready:
            self.process.kill()
            self.process.communicate()
            raise AssertionError(
                f"nothing happened in time; last events {self.events[-3:]}; stderr: {self._stderr.decode()}"
            )
        for key, _mask in ready:
            data = os.read(key.fd, 1 << 16)
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


def run(
    *arguments: str,
    cwd: Path | None = None,
    stdin: bytes = b"",
    extra: Mapping[str, str] | None = None,
    within_s: float = WITHIN_S,
) -> Ended:
    """Start a command and wait for its end."""
    return Running(arguments, cwd=cwd, stdin=stdin, extra=extra).end(within_s)
