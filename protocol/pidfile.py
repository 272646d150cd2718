"""What a supervisor leaves in its runtime folder for those whom it may not answer one day: who it is, whom it serves.

Standard library only: written before anything of ours is imported, read by commands that have to be light.

1. The pid file is the first thing that a supervisor writes, before anything that could hang. A process is its number
   and its start time, never its number alone (G3).
2. A session's name is there before its client knows it, and is taken away when it is closed.
3. A tool has the same user id and may write here: what is read says where to look, not whom to signal. Whoever signals
   looks first whether that process is one of ours (linux.is_process_of_ours). What could not have been written by us
   was not written.
"""

from __future__ import annotations

import contextlib
import os

from haltline.protocol import processes
from haltline.protocol.processes import Identity

_BYTES = 256
_MOST_PID = 2**31 - 1
"""pid_t. What is larger no call takes."""


class Chain:
    """The two processes from which all others of a supervisor hang."""

    __slots__ = ("guard", "supervisor")

    def __init__(self, *, supervisor: Identity, guard: Identity) -> None:
        self.supervisor = supervisor
        self.guard = guard


def write(folder: str) -> None:
    """By the supervisor; its parent is the guard. A folder that takes no file costs the last resort, not the run."""
    own, guard = processes.identify(os.getpid()), processes.identify(os.getppid())
    if own is None or guard is None:
        return
    line = f"{own.pid} {own.start_ticks} {guard.pid} {guard.start_ticks}\n"
    with contextlib.suppress(OSError), open(_path(folder), "x", encoding="ascii") as file:
        file.write(line)  # closed, so written, in one piece


def read(folder: str) -> Chain | None:
    """None: nobody wrote one, or not all of it yet."""
    try:
        with open(_path(folder), "rb") as file:
            words = file.read(_BYTES).split()
        supervisor_pid, supervisor_ticks, guard_pid, guard_ticks = map(int, words)
    except (OSError, ValueError):
        return None
    if not (0 < supervisor_pid <= _MOST_PID and 0 < guard_pid <= _MOST_PID):  # rule 3
        return None
    return Chain(
        supervisor=Identity(supervisor_pid, supervisor_ticks),
        guard=Identity(guard_pid, guard_ticks),
    )


def note_session(folder: str, session_id: str, *, live: bool) -> None:
    """Rule 2."""
    with contextlib.suppress(OSError):
        if live:
            os.makedirs(_sessions(folder), mode=0o700, exist_ok=True)
            os.close(os.open(f"{_sessions(folder)}/{session_id}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        else:
            os.unlink(f"{_sessions(folder)}/{session_id}")


def sessions(folder: str) -> tuple[str, ...]:
    """The ids of the sessions that are there, or were when the supervisor ended."""
    try:
        names = os.listdir(_sessions(folder))
    except OSError:
        return ()
    return tuple(sorted(name for name in names if name.isascii() and name.isalnum()))  # rule 3


def _path(folder: str) -> str:
    return f"{folder}/pids"


def _sessions(folder: str) -> str:
    return f"{folder}/sessions"
