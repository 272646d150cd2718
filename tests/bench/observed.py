"""A `haltline run` or `chat` that is stopped by a SIGINT and looked at from outside while it obeys.

Every time is taken here, when something was seen, in milliseconds from the signal. A tree is found by a walk of the
tests' own and watched through pidfds.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from support import survivors
from support.command import SHIPPED, Event

WITHIN_S = 30.0
"""Longest wait for anything."""
LOOK_S = 0.002


@dataclass
class Stopped:
    """One stop; NaN: it did not happen."""

    began: float
    """When the signal was sent (monotonic seconds)."""
    told_ms: float = float("nan")
    """Until the last acknowledgement was told."""
    own_ms: float = float("nan")
    """The same as the supervisor measured it, from the request to the last worker's word."""
    ended_ms: dict[int, float] = field(default_factory=dict)
    """By pid, of what was watched."""

    @property
    def gone_ms(self) -> float:
        """Until the last of them had ended."""
        return max(self.ended_ms.values(), default=float("nan"))


class Observed:
    """Use as a context manager: at its end nothing of it is left."""

    def __init__(self, command: str, *options: str, base_url: str) -> None:
        """`command`: run or chat."""
        chat = command == "chat"
        self.events: list[Event] = []
        self._buffer = b""
        self._at_end = False
        prompt = () if chat else ("Go on.",)
        self.process = subprocess.Popen(
            [*SHIPPED, command, "-m", "m", "--base-url", base_url, "-y", "--json", "--ephemeral", *options, *prompt],
            stdin=subprocess.PIPE if chat else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(WITHIN_S)
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()

    def prompt(self) -> None:
        """One more run of a chat."""
        assert self.process.stdin is not None
        self.events.clear()
        self.process.stdin.write(b"Go on.\n")
        self.process.stdin.flush()

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        deadline = time.monotonic() + WITHIN_S
        looked_at = 0
        while True:
            for event in self.events[looked_at:]:
                if wanted(event):
                    return event
            looked_at = len(self.events)
            assert time.monotonic() < deadline, f"not in time; the last events: {self.events[-3:]}"
            self._read(1000.0)

    def worker(self, role: str) -> int:
        """Its pid, as its latest `ready` tells it."""
        self.until(lambda event: _is(event, "worker", role=role, state="ready"))
        return [int(str(event["pid"])) for event in self.events if _is(event, "worker", role=role, state="ready")][-1]

    def tree(self, root: int, count: int) -> list[int]:
        """What is below `root`, once there are so many."""
        deadline = time.monotonic() + WITHIN_S
        while len(found := survivors.descendants(root)) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} processes"
            time.sleep(LOOK_S)
        return [one.pid for one in found]

    def everything(self) -> list[int]:
        return [self.process.pid, *(one.pid for one in survivors.descendants(self.process.pid))]

    def stop(self, watched: list[int], *, until_end: bool = True) -> Stopped:
        """One SIGINT; waits until all that is watched and still there has ended, and for the result, or for the
        acknowledgements alone."""
        pids = {fd: pid for pid in watched if (fd := _pidfd(pid)) is not None}
        told = len(self.events)
        seen = Stopped(time.monotonic())
        self.process.send_signal(signal.SIGINT)
        last = "result" if until_end else "acknowledged"
        while last not in self._told(seen, told) or pids:
            assert time.monotonic() < seen.began + WITHIN_S, f"left: {pids.values()}; {self.events[-3:]}"
            for fd in self._read(100.0, tuple(pids)):
                seen.ended_ms[pids.pop(fd)] = (time.monotonic() - seen.began) * 1000
                os.close(fd)
        return seen

    def _told(self, seen: Stopped, since: int) -> set[str]:
        """Notes acknowledgements that were just read; what has been told since then."""
        said: set[str] = set()
        acknowledged = [event for event in self.events[since:] if _is(event, "cancel", phase="acknowledged")]
        if len(acknowledged) == 2:
            said.add("acknowledged")
            if seen.told_ms != seen.told_ms:  # NaN: not noted yet
                seen.told_ms = (time.monotonic() - seen.began) * 1000
                seen.own_ms = max(float(str(event["ms"])) for event in acknowledged)
        if any(event["type"] == "result" for event in self.events[since:]):
            said.add("result")
        return said

    def _read(self, wait_ms: float, pidfds: tuple[int, ...] = ()) -> list[int]:
        """One round; returns the pidfds of those that have ended."""
        assert self.process.stdout is not None
        out = self.process.stdout.fileno()
        poll = select.poll()
        for fd in (*pidfds, *(() if self._at_end else (out,))):
            poll.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(wait_ms)]
        if out in ready:
            piece = os.read(out, 1 << 16)
            *lines, self._buffer = (self._buffer + piece).split(b"\n")
            self.events += [json.loads(line) for line in lines]
            self._at_end = not piece
        return [fd for fd in ready if fd != out]


def is_text(event: Event) -> bool:
    return event["type"] == "message" and bool(event["delta"])


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:  # an earlier signal has ended it
        return None


def _is(event: Event, kind: str, **fields: object) -> bool:
    return event["type"] == kind and all(event.get(name) == value for name, value in fields.items())
