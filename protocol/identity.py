"""What a table of processes says: which process, and how it is."""

from __future__ import annotations

_DEAD = "ZXx"
_STOPPED = "Tt"


class Identity:
    """A process for good: its number and its start, in clock ticks since boot (microseconds since 1970 where the
    table is psutil's). Compared within one table only."""

    __slots__ = ("pid", "start_ticks")

    def __init__(self, pid: int, start_ticks: int) -> None:
        self.pid = pid
        self.start_ticks = start_ticks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and (self.pid, self.start_ticks) == (other.pid, other.start_ticks)

    def __hash__(self) -> int:
        return hash((self.pid, self.start_ticks))

    def __repr__(self) -> str:
        return f"Identity(pid={self.pid}, start_ticks={self.start_ticks})"


class Process:
    """What the table said about a process at one moment."""

    __slots__ = ("group", "identity", "parent", "pid", "session", "state", "threads")

    def __init__(
        self, *, pid: int, state: str, parent: int, group: int, session: int, threads: int, start_ticks: int
    ) -> None:
        self.pid = pid
        self.state = state
        """One letter, as in /proc/PID/stat."""
        self.parent = parent
        self.group = group
        self.session = session
        self.threads = threads
        self.identity = Identity(pid, start_ticks)

    @property
    def alive(self) -> bool:
        return self.state not in _DEAD or self.threads > 1  # processes.py, rule 4

    @property
    def stopped(self) -> bool:
        return self.state in _STOPPED

    def __repr__(self) -> str:
        return f"Process({self.pid} {self.state}, parent {self.parent}, group {self.group}, session {self.session})"
