"""Seeing a process of ours die, and signalling it, through a descriptor that others can inherit or be sent.

On Linux that is a pidfd. Elsewhere it is the reading end of a pipe whose writing end the process alone holds open: at
its death, however it came, the reading end is at its end.

1. A fork inherits what its parent held; `fork` lets go of it in the child. So every fork of ours that outlives its
   parent goes through `fork`. What is started by exec holds nothing.
2. A pipe carries no signals. Who is behind it is known from the fork, or is told by the parent that sends it, and is
   then signalled by number and start.
3. The end of the pipe comes some microseconds before the process can be waited for.
"""

from __future__ import annotations

import os
import signal

from haltline.protocol import processes
from haltline.protocol.platforms import PORTABLE
from haltline.protocol.processes import Identity

_held: list[int] = []
"""Writing ends that tell of this process's death."""
_children: dict[int, int] = {}
"""By number of a child that `fork` made: the reading end, until `of_child` hands it out."""
_behind: dict[int, Identity] = {}
"""By descriptor (rule 2)."""


def fork() -> int:
    """As os.fork. Raises OSError."""
    if not PORTABLE:
        return os.fork()
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        for fd in (reading, *_held, *_children.values()):  # rule 1
            os.close(fd)
        _held[:] = [writing]
        _children.clear()
        _behind.clear()
    else:
        os.close(writing)
        _children[pid] = reading
    return pid


def own() -> int:
    """A descriptor of this process, for its forks and for others."""
    if not PORTABLE:
        return os.pidfd_open(os.getpid())
    reading, writing = os.pipe()
    _held.append(writing)
    return reading


def held() -> tuple[int, ...]:
    """Descriptors that have to stay open for as long as this process lives; for an exec that is to go on as it."""
    return tuple(_held)


def hold(descriptors: tuple[int, ...]) -> None:
    """In the program that was started so."""
    _held.extend(descriptors)


def of_child(pid: int) -> int:
    """A descriptor of a child of this process that it has forked and not waited for; asked for once."""
    if not PORTABLE:
        return os.pidfd_open(pid)
    return came(_children.pop(pid), pid)


def came(descriptor: int, pid: int) -> int:
    """`descriptor` of process `pid` came from its parent, which has not waited for it yet. Returns it."""
    if PORTABLE:
        _behind.pop(descriptor, None)  # of an earlier descriptor with that number
        identity = processes.identify(pid)
        if identity is not None:
            _behind[descriptor] = identity
    return descriptor


def of_other(pid: int, line: int) -> int:
    """A descriptor of a process that is no child of this one. `line`: the reading end of a pipe whose writing end it
    alone holds. Raises ProcessLookupError where it has gone."""
    return came(os.dup(line), pid) if PORTABLE else os.pidfd_open(pid)


def kill(descriptor: int, number: int = signal.SIGKILL) -> bool:
    """Send a signal to the process behind a descriptor; False: it is gone (or is not ours to signal)."""
    if not PORTABLE:
        return processes.signal_pidfd(descriptor, number)
    identity = _behind.get(descriptor)
    return identity is not None and processes.signal_identity(identity, number)
