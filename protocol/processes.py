"""Looking at processes and signalling them, never by a bare number (G3).

Standard library only on Linux, so that a guard process which has imported nothing else can use it. Elsewhere, and where
it is forced (platforms.py), the table of processes is psutil's and there are no pidfds.

1. A number names a process only together with its start time: numbers wrap in about 20 s on a busy machine.
2. To signal: open a pidfd, then read the start time, then send through the pidfd. Whatever dies in between, the
   signal reaches the process that was meant or nobody. Without pidfds the start time is checked last.
3. Signal success is no proof of life: a zombie accepts signals.
4. A process in state Z is dead only if no thread of it is left: a leader that ended before its threads shows Z too.
5. A group is named by its number and a member that was stopped: while somebody is in it, dead or alive, the kernel
   gives its number to no other. Looked at last before the signal.
"""

from __future__ import annotations

import os
import signal

from haltline.protocol.identity import Identity, Process
from haltline.protocol.platforms import PORTABLE

if PORTABLE:
    from haltline.protocol.portable import all_pids, children, kernel_lists_children, read_process, variable
else:
    from haltline.protocol.procfs import all_pids, children, kernel_lists_children, read_process, variable

__all__ = [
    "Identity",
    "Process",
    "all_pids",
    "children",
    "children_by_parent",
    "identify",
    "is_alive",
    "kernel_lists_children",
    "open_pidfd",
    "read_process",
    "refuse",
    "signal_group",
    "signal_identity",
    "signal_pidfd",
    "start_ticks",
    "variable",
]


def start_ticks(pid: int) -> int | None:
    """When the process behind `pid` was started, in clock ticks since boot; None where there is none."""
    process = read_process(pid)
    return None if process is None else process.identity.start_ticks


def identify(pid: int) -> Identity | None:
    """The identity of the process now behind `pid`."""
    ticks = start_ticks(pid)
    return None if ticks is None else Identity(pid, ticks)


def is_alive(identity: Identity) -> bool:
    """Whether exactly this process is there and no zombie."""
    process = read_process(identity.pid)
    return process is not None and process.identity == identity and process.alive


def open_pidfd(identity: Identity) -> int | None:
    """A descriptor of exactly this process, readable once it has ended; None: it is gone, or there are no pidfds."""
    if PORTABLE:
        return None
    try:
        descriptor = os.pidfd_open(identity.pid)
    except (AttributeError, OSError):  # gone, or a kernel or a Python of before 5.3
        return None
    if start_ticks(identity.pid) != identity.start_ticks:
        os.close(descriptor)
        return None
    return descriptor


def signal_identity(identity: Identity, number: int) -> bool:
    """Send a signal to exactly this process; False: it is gone (or is not ours to signal).

    ValueError for init, ourselves and the leader of our own group: to aim there is a bug of ours.
    """
    refuse(identity.pid)
    descriptor = open_pidfd(identity)
    if descriptor is None:
        return _signal_without_pidfd(identity, number)
    try:
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def signal_pidfd(descriptor: int, number: int) -> bool:
    """Send a signal through a descriptor that was opened while the process was known; False: it is gone."""
    try:
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def signal_group(member: Process, number: int) -> bool:
    """Send a signal to the whole group of `member`, which has to be stopped already (rule 5); False: it has left that
    group, is gone, or nobody in the group is ours to signal.

    ValueError for our own group, which is the supervisor's in all processes of ours below it.
    """
    if member.group <= 1 or member.group == os.getpgrp():
        raise ValueError(f"refusing to signal group {member.group}: init's, or our own")
    now = read_process(member.pid)
    if now is None or now.identity != member.identity or now.group != member.group:
        return False
    try:
        os.killpg(member.group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def refuse(pid: int) -> None:
    """Raise ValueError if `pid` may not be signalled by anybody in this process."""
    if pid <= 1 or pid == os.getpid() or pid == os.getpgrp():
        raise ValueError(f"refusing to signal process {pid}: init, ourselves, or our own group")


def children_by_parent() -> dict[int, list[int]]:
    """One walk over all processes: 18 ms of CPU at 1,400 processes, so at most once per round, for all callers."""
    by_parent: dict[int, list[int]] = {}
    for pid in all_pids():
        process = read_process(pid)
        if process is not None:
            by_parent.setdefault(process.parent, []).append(pid)
    return by_parent


def _signal_without_pidfd(identity: Identity, number: int) -> bool:
    if start_ticks(identity.pid) != identity.start_ticks:
        return False
    try:
        os.kill(identity.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
