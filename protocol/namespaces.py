"""A PID namespace and what belongs to it, asked of the kernel: making one, entering it, settling in as its process 1.

Whoever is process 1 of a PID namespace takes all of it along when it ends, in the kernel: nothing in it can leave it,
and nobody has to be alive to see to it. Standard library only; each function is for a process of its own that was just
forked, has one thread, and is about to do this and nothing else.

1. Root makes the PID namespace directly. An ordinary user needs a user namespace around it, in which he alone exists:
   files of root and of everybody else look as if they belonged to nobody, and setuid programs stay what they are. It
   is made once, held by a descriptor, and joined for each PID namespace.
2. The kernel lets nobody but root write the maps of a user namespace while the writer is not dumpable, and all of our
   processes are not (linux.set_not_dumpable). So its maker is dumpable for these three writes, some ten microseconds,
   before any tool of this supervisor lives.
3. The one who unshares a PID namespace does not enter it; its next child does, as process 1. A number that it gets from
   fork is the one outside.
4. Process 1 mounts a /proc of its own: with the old one, a look downwards would read outer numbers and signal inner
   ones. Mounts made in here do not get out, those made outside later come in (and do not keep a disk busy). The old
   /proc is taken away first where that is allowed, so that no tool of root's finds it below the new one; in a user
   namespace nobody can.
5. It gives up the capabilities that the user namespace gave it: with them it could write to files of its own user that
   are read-only.
6. What process 1 has no handler for does not reach it: nothing from inside, SIGKILL included, and from outside SIGKILL
   and SIGSTOP alone. A crash of its own does; those signals end it also when they are sent, as they end anybody.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal

from haltline.protocol import linux

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
"""linux/sched.h; os.unshare and its names came with Python 3.12."""
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_REC, _MS_SLAVE = 16384, 1 << 19
_MNT_DETACH = 2
_CAPABILITY_VERSION_3 = 0x20080522
_CRASHES = (
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGILL,
    signal.SIGFPE,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
)
_READ_BYTES = 65_536


class Refused(Exception):
    """The system did not do it; the text says what was tried and why not."""


class Place:
    """Where PID namespaces can be made (rule 1)."""

    __slots__ = ("user_namespace",)

    def __init__(self, user_namespace: int | None) -> None:
        self.user_namespace = user_namespace
        """Descriptor, closed by exec; None: root needs none."""


class Outside:
    """The numbers that processes in here have outside, for one that settled in."""

    __slots__ = ("_children", "own_pid")

    def __init__(self, own_pid: int, children: int | None) -> None:
        self.own_pid = own_pid
        self._children = children
        """The kernel's list of this thread's children, in outer numbers: opened before the outer /proc was left. Not
        the folder around it, which would lead tools of root's out."""

    def children(self) -> frozenset[int]:
        """Outer numbers of this thread's children, zombies included; empty where the kernel has no such list."""
        if self._children is None:
            return frozenset()
        data = b""
        while piece := os.pread(self._children, _READ_BYTES, len(data)):
            data += piece
        return frozenset(map(int, data.split()))


_outside: Outside | None = None


def outside() -> Outside | None:
    """None: this process stands in no namespace of ours, and its numbers are those of everybody."""
    return _outside


def make_user_namespace() -> int:
    """A user namespace in which this user alone exists, under his own number; its descriptor. This process is in it
    from now on. Raises Refused."""
    uid, gid = os.geteuid(), os.getegid()
    _unshare(_CLONE_NEWUSER, "a user namespace")
    linux.set_dumpable()
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            _write_own(name, text)
    finally:
        linux.set_not_dumpable()
    return os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def enter(place: Place) -> None:
    """The next child of this process is process 1 of a PID namespace of its own (rule 3). Raises Refused."""
    if place.user_namespace is not None:
        _check("joining the user namespace", _libc().setns(place.user_namespace, _CLONE_NEWUSER))
    _unshare(_CLONE_NEWPID | _CLONE_NEWNS, "a PID namespace")


def settle() -> None:
    """As process 1: a /proc of our own, and the way back to outer numbers (rules 4 to 6). Raises Refused."""
    global _outside  # noqa: PLW0603  (a fact about this process, found out once)
    _outside = Outside(int(os.readlink("/proc/self")), _list_of_children())
    libc = _libc()
    for number in _CRASHES:
        libc.signal(number, ctypes.cast(libc["_exit"], ctypes.c_void_p))  # exec puts back the default
    _check("keeping mounts to ourselves", libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None))
    libc.umount2(b"/proc", _MNT_DETACH)  # refused in a user namespace (rule 4)
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _check("mounting /proc", libc.mount(b"proc", b"/proc", b"proc", flags, None))
    if os.geteuid() != 0:
        _drop_capabilities()
    if os.readlink("/proc/self") != str(os.getpid()):
        raise Refused("the mounted /proc does not show the namespace")


def _list_of_children() -> int | None:
    try:
        return os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _write_own(name: str, text: str) -> None:
    try:
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Refused(f"writing {name} of a user namespace: {_why(error.errno)}") from error


def _drop_capabilities() -> None:
    """Rule 5."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check("giving up capabilities", _libc().capset(header, (ctypes.c_uint32 * 6)()))


def _unshare(flags: int, what: str) -> None:
    _check(f"making {what}", _libc().unshare(flags))


def _check(doing: str, result: int) -> None:
    if result != 0:
        raise Refused(f"{doing}: {_why(ctypes.get_errno())}")


def _why(number: int | None) -> str:
    """In words, with the setting that usually is behind it."""
    match number:
        case errno.EPERM | errno.EACCES:
            return "the system does not allow it"
        case errno.ENOSPC | errno.EUSERS:
            return "a limit under /proc/sys/user is reached"
        case errno.EINVAL | errno.ENOSYS:
            return "this kernel has none"
        case _:
            return os.strerror(number or 0).lower()


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal.restype = ctypes.c_void_p
    libc.mount.argtypes = (*(ctypes.c_char_p,) * 3, ctypes.c_ulong, ctypes.c_void_p)
    return libc
