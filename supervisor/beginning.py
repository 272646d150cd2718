"""How a worker begins, in its own fork: at once, with all that was imported before; or as a new program.

A fork that goes on is not safe on every system: libraries of macOS may refuse to work in one. There the fork becomes a
fresh interpreter, which costs 0.3 s.

1. What it needs comes through a socket that it inherits, never through an argument. So does its environment: the one
   that it is started with is for everybody to read, and keys are in the other.
2. Descriptors keep their numbers, and are closed to what the worker starts.
3. The search path is that of this process: a checkout sets it up by hand (bin/start.py).
"""

import importlib
import os
import socket
import sys
from collections.abc import Callable

import msgspec

from haltline.protocol import deaths
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.platforms import FORCED_BY, PORTABLE

_ROOM_BYTES = 1 << 20
"""Asked for; for the environment of a user, which is some KiB."""
_SHOWN = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", FORCED_BY)
"""Variables that an interpreter has to know when it starts, or that decide what is imported."""
_PROGRAM = (
    "import sys; p = sys.argv; h = type(sys)('haltline'); h.__path__ = [p[2]]; sys.modules['haltline'] = h; "
    "sys.path[:] = p[3:]; import haltline.supervisor.beginning as b; b.go_on(int(p[1]))"
)


class Fresh(msgspec.Struct, frozen=True, kw_only=True):
    """From a fork to the program that it becomes."""

    entry: str
    boot: bytes
    extra_fd: int | None
    watched_fd: int
    held: tuple[int, ...]
    """See deaths.held."""
    environment: dict[str, str]


_encode = msgspec.msgpack.Encoder().encode
_decode: msgspec.msgpack.Decoder[Fresh] = msgspec.msgpack.Decoder(Fresh)


def begin(entry: str, boot: bytes, extra_fd: int | None, *, watched_fd: int) -> None:
    """Be the worker. `entry`: MODULE:FUNCTION. `watched_fd`: the supervisor's death, whose number `boot` holds."""
    if PORTABLE:
        _become(entry, boot, extra_fd, watched_fd)
    _run(entry, boot, extra_fd)


def _become(entry: str, boot: bytes, extra_fd: int | None, watched_fd: int) -> None:
    """Does not return. Raises ConfigurationProblem where the environment is too large."""
    held = deaths.held()
    fresh = Fresh(
        entry=entry, boot=boot, extra_fd=extra_fd, watched_fd=watched_fd, held=held, environment=dict(os.environ)
    )
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM_BYTES)
    ours.setblocking(False)
    data = _encode(fresh)
    try:
        taken = ours.send(data)
    except BlockingIOError:
        taken = 0
    if taken < len(data):
        raise ConfigurationProblem("the environment is too large to be handed on to a worker")
    ours.close()
    for fd in (theirs.fileno(), watched_fd, *held, *(() if extra_fd is None else (extra_fd,))):
        os.set_inheritable(fd, True)
    import haltline

    arguments = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(theirs.fileno()), next(iter(haltline.__path__))]
    shown = {name: os.environ[name] for name in _SHOWN if name in os.environ}
    os.execve(sys.executable, [*arguments, *sys.path], shown)


def go_on(fd: int) -> None:
    """In the new program."""
    with socket.socket(fileno=fd) as channel:
        data = b"".join(iter(lambda: channel.recv(1 << 16), b""))
    fresh = _decode.decode(data)
    for inherited in (fresh.watched_fd, *fresh.held, *(() if fresh.extra_fd is None else (fresh.extra_fd,))):
        os.set_inheritable(inherited, False)
    deaths.hold(fresh.held)
    os.environ.update(fresh.environment)
    _run(fresh.entry, fresh.boot, fresh.extra_fd)


def _run(entry: str, boot: bytes, extra_fd: int | None) -> None:
    module, _, name = entry.partition(":")
    run: Callable[[bytes, int | None], None] = getattr(importlib.import_module(module), name)
    run(boot, extra_fd)
