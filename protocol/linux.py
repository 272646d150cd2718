"""What a process of ours asks of the kernel for itself. Standard library only, cheap to import, safe after a fork.

Functions that need Linux return False elsewhere; `doctor` says which guarantees that costs.
"""

from __future__ import annotations

import resource
import signal

from haltline.protocol.platforms import PORTABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_NAME_PREFIX = "haltline-"
_OPEN_MAX = 10_240
"""sys/syslimits.h of macOS."""
_NAME_BYTES = 15
"""TASK_COMM_LEN without the closing zero."""

_KEPT_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python turns these two into OSError; subprocess gives them back their default in what it starts."""


def become_subreaper() -> bool:
    """Make this process the parent of every orphan below it. Not inherited by fork: each process says it for itself."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_not_dumpable() -> bool:
    """Close memory, environment and descriptors of this process to others of the same user.

    Inherited by fork, undone by exec. Set it last: it also closes /proc/self/uid_map to ourselves.
    """
    return _prctl(_PR_SET_DUMPABLE, 0)


def set_dumpable() -> bool:
    """Undo `set_not_dumpable`; for a few instructions that the kernel refuses without (namespaces.py)."""
    return _prctl(_PR_SET_DUMPABLE, 1)


def set_process_name(name: str) -> bool:
    """Name this process `haltline-NAME` in `ps` and /proc/PID/comm; cut to 15 bytes."""
    return _prctl(_PR_SET_NAME, f"{_NAME_PREFIX}{name}".encode()[:_NAME_BYTES])


def is_process_of_ours(pid: int) -> bool:
    """Whether `pid` has such a name. A process names itself only, so nobody can take it from one of ours."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as name:
            return name.read().startswith(_NAME_PREFIX.encode())
    except OSError:  # it has ended
        return False


def reset_signals() -> None:
    """Undo what was inherited: every disposition to its default, the mask empty, no wakeup descriptor.

    A background shell starts children with SIGINT ignored, and an ignored SIGCHLD passes through exec and takes
    exit statuses away (`false` returned 0). First lines of every process of ours; handlers are set afterwards.
    Main thread only.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        wanted = signal.SIG_IGN if number in _KEPT_IGNORED else signal.SIG_DFL
        if signal.getsignal(number) not in (wanted, None) and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, wanted)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def raise_descriptor_limit() -> Callable[[], None]:
    """As many open files as the system lets this process have: a session takes about ten in its supervisor and zygote,
    and the usual soft limit of 1,024 would end at a hundred sessions. Returns what puts the old limit back, for forks:
    programs that use select, or close every number that there may be, rely on a low one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # macOS says "unlimited" and takes no more than its OPEN_MAX
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _OPEN_MAX), hard))
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _prctl(option: int, argument: int | bytes) -> bool:
    if PORTABLE:
        return False
    import ctypes  # 2 ms, and only some processes need it

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
    if isinstance(argument, bytes):
        buffer = ctypes.create_string_buffer(argument)
        return bool(prctl(option, ctypes.addressof(buffer), 0, 0, 0) == 0)
    return bool(prctl(option, argument, 0, 0, 0) == 0)
