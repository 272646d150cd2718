"""The table of processes as Linux shows it below /proc. Standard library only; safe after a fork."""

from __future__ import annotations

import os

from haltline.protocol.identity import Process


def read_process(pid: int) -> Process | None:
    """The process now behind `pid`, zombies included; None where there is none."""
    line = _read(f"/proc/{pid}/stat")
    # The name, in parentheses, may hold anything, also parentheses and spaces: what counts follows the last one.
    fields = line[line.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Process(
        pid=pid,
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
    )


def children(pid: int) -> list[int]:
    """Numbers of the children of all threads of `pid`, zombies included; empty where it is gone.

    Cheap (one small file per thread) where the kernel has the `children` file, else one walk over /proc.
    """
    if not kernel_lists_children():
        return [child for child in all_pids() if (process := read_process(child)) and process.parent == pid]
    found: list[int] = []
    for thread in _list(f"/proc/{pid}/task"):
        found.extend(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
    return found


def all_pids() -> list[int]:
    """Of every process of the machine, ascending until the numbers wrap."""
    return [int(name) for name in _list("/proc") if name.isdigit()]


def variable(pid: int, name: str) -> str | None:
    """The value of `name` in the environment that `pid` was started with, "" where it has none or may not be looked at.
    None: the environment is empty, which it also is for a moment in the middle of an exec."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            block = environ.read()
    except OSError:
        return ""
    if not block:
        return None
    wanted = os.fsencode(name) + b"="
    for entry in block.split(b"\0"):
        if entry.startswith(wanted):
            return os.fsdecode(entry[len(wanted) :])
    return ""


_lists_children: bool | None = None


def kernel_lists_children() -> bool:
    """Whether /proc/PID/task/TID/children exists."""
    global _lists_children  # noqa: PLW0603  (a fact about the kernel, asked for once)
    if _lists_children is None:
        own = os.getpid()
        _lists_children = os.path.exists(f"/proc/{own}/task/{own}/children")
    return _lists_children


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the process has ended, or there is no /proc
        return []


def _read(path: str) -> bytes:
    """A whole small file of /proc; empty where the process has ended meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts: list[bytes] = []
        while data := os.read(descriptor, 65_536):  # lists come page by page, and a page is rarely full
            parts.append(data)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
