"""What numbers of this worker's processes mean to everybody else.

In a PID namespace a number names a process in there. Whatever leaves the worker is a number outside (namespaces.py);
its own is known since it settled in, and one of a child is learnt at the child's birth, from the kernel's list of
children in outer numbers. The child is in that list until it is collected, however fast it ends.
"""

import os

from haltline.protocol import namespaces


def own_pid() -> int:
    """Of this worker."""
    outside = namespaces.outside()
    return os.getpid() if outside is None else outside.own_pid


class Birth:
    """Made just before a child is started, by the thread that starts it."""

    def __init__(self) -> None:
        self._outside = namespaces.outside()
        self._before = frozenset[int]() if self._outside is None else self._outside.children()

    def pid_of(self, pid: int) -> int | None:
        """The outer number of the child that has just been started as `pid`. None: there is no telling, because the
        kernel has no such list, or an orphan was adopted in the same moment."""
        if self._outside is None:
            return pid
        born = self._outside.children() - self._before
        return min(born) if len(born) == 1 else None
