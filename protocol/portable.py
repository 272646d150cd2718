"""The table of processes as psutil shows it, with the same functions as procfs.py: for systems without /proc.

The one place that imports psutil (23 ms). psutil has no process groups and sessions; those are POSIX.
"""

from __future__ import annotations

import os

import psutil

from haltline.protocol.identity import Process

_LETTERS = {
    psutil.STATUS_ZOMBIE: "Z",
    psutil.STATUS_DEAD: "X",
    psutil.STATUS_STOPPED: "T",
    psutil.STATUS_TRACING_STOP: "t",
}
_ALIVE = "S"
"""For every other status: which of them makes no difference here."""


def read_process(pid: int) -> Process | None:
    """The process now behind `pid`, zombies included; None where there is none."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            state = _LETTERS.get(process.status(), _ALIVE)
            return Process(
                pid=pid,
                state=state,
                parent=process.ppid(),
                group=os.getpgid(pid),
                session=os.getsid(pid),
                threads=_threads(process) if state == "Z" else 1,  # asked only where it matters: it costs as much again
                start_ticks=round(process.create_time() * 1_000_000),
            )
    except (psutil.Error, ProcessLookupError, PermissionError, ValueError):
        return None


def children(pid: int) -> list[int]:
    """Numbers of the children of `pid`, zombies included; one walk over all processes."""
    return [child for child in all_pids() if (process := read_process(child)) and process.parent == pid]


def all_pids() -> list[int]:
    """Of every process of the machine, ascending."""
    return psutil.pids()


def variable(pid: int, name: str) -> str | None:
    """The value of `name` in the environment that `pid` was started with, "" where it has none or may not be looked at.
    None: the environment is empty, which it also is for a moment in the middle of an exec."""
    try:
        environment = psutil.Process(pid).environ()
    except (psutil.Error, OSError, ValueError):
        return ""
    return environment.get(name, "") if environment else None


def kernel_lists_children() -> bool:
    """No system but Linux lists the children of one process alone."""
    return False


def _threads(process: psutil.Process) -> int:
    """1 where it cannot be told."""
    try:
        return process.num_threads()
    except psutil.Error:
        return 1
