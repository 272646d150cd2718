"""Which processes that this one started, or that their children started, are alive: the check behind every test.

1. This process becomes a subreaper, so an orphan at any depth, also a daemon, stays below it and is found by walking
   down /proc/PID/task/*/children. Nothing is looked for by name.
2. Alive means a state other than Z and X: a zombie holds nothing and only waits to be read.
3. A process is (pid, start time). Signals go through a pidfd that was opened before the start time was read again.
4. A process that was moved below somebody else (a service that was there before) still carries the cookie, where its
   environment can be read.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
"""prctl number, linux/prctl.h."""

SETTLE_S = 1.0
"""A process on its way out has this long to be gone before it counts as a survivor."""

ROUNDS = 20
"""Times that `end` looks again. Each round ends at least the parents of the next one."""

COOKIE = "TEST_RUN_COOKIE"
"""Variable that every process of a test run inherits; its value is unique per run."""


@dataclass(frozen=True)
class Survivor:
    """One living process. `start` is in clock ticks since boot; pid and start together are never reused."""

    pid: int
    start: int
    command: str = field(compare=False)

    def __str__(self) -> str:
        return f"pid {self.pid}: {self.command}"


def become_subreaper() -> None:
    """Rule 1. Raises OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def descendants(pid: int) -> list[Survivor]:
    """Everything alive below `pid`, parents first."""
    found: list[Survivor] = []
    waiting = _children(pid)
    while waiting:
        child = waiting.pop(0)
        # A dead leader with living threads has no children left to lose: they moved to the subreaper.
        waiting.extend(_children(child))
        survivor = _living(child)
        if survivor is not None:
            found.append(survivor)
    return found


def carrying(cookie: str) -> list[Survivor]:
    """Every process but this one whose environment holds the cookie (rule 4)."""
    wanted = f"{COOKIE}={cookie}".encode()
    found: list[Survivor] = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        if wanted in _read(f"/proc/{entry}/environ").split(b"\0"):
            survivor = _living(int(entry))
            if survivor is not None:
                found.append(survivor)
    return found


def settle(survivors: list[Survivor]) -> list[Survivor]:
    """Those still alive after at most SETTLE_S; returns as soon as all are gone."""
    deadline = time.monotonic() + SETTLE_S
    left: list[Survivor] = []
    for survivor in survivors:
        descriptor = _open(survivor)
        if descriptor is None:
            continue
        try:
            gone, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(descriptor)
        if not gone:
            left.append(survivor)
    return left


def end(find: Callable[[], list[Survivor]]) -> None:
    """SIGKILL, by pidfd, to all that `find` finds, again until it finds none (fork storms), at most ROUNDS times."""
    for _ in range(ROUNDS):
        found = find()
        if not found:
            return
        for survivor in found:
            _kill(survivor)
        settle(found)


class Orphans:
    """Reads the status of adopted processes that nobody else waits for, so that a storm does not fill the table.

    A direct child may be a zombie for a moment before its test waits for it; one that is still there at the next call
    belongs to nobody.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def reap(self) -> None:
        zombies = {pid for pid in _children(os.getpid()) if _state(pid) == "Z"}
        for pid in zombies & self._seen:
            os.waitpid(pid, os.WNOHANG)
        self._seen = zombies - self._seen


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return []
    return [int(word) for task in tasks for word in _read(f"/proc/{pid}/task/{task}/children").split()]


def _living(pid: int) -> Survivor | None:
    words = _stat(pid)
    if words is None or words[0] in ("Z", "X"):
        return None
    command = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return Survivor(pid, int(words[19]), command or "(no command line)")


def _state(pid: int) -> str | None:
    words = _stat(pid)
    return words[0] if words else None


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third one (state) on; the name before it may hold anything."""
    text = _read(f"/proc/{pid}/stat").decode(errors="replace")
    return text.rpartition(")")[2].split() if text else None


def _kill(survivor: Survivor) -> None:
    descriptor = _open(survivor)
    if descriptor is None:
        return
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself
    finally:
        os.close(descriptor)


def _open(survivor: Survivor) -> int | None:
    """A pidfd, or None when that process is gone or its number belongs to another (rule 3)."""
    try:
        descriptor = os.pidfd_open(survivor.pid)
    except ProcessLookupError:
        return None
    if _living(survivor.pid) == survivor:
        return descriptor
    os.close(descriptor)
    return None


def _read(path: str) -> bytes:
    """The file's bytes; empty when the process is gone or may not be looked at."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
