"""The process chain of one command: client -> guard -> supervisor -> zygote -> workers.

Theory of operation. All of them are forks of the client; nothing that holds a thread, a socket or a loop exists
before the last fork that inherits it.

1. The client forks the guard before it imports anything; the guard forks the supervisor. Each takes a session of
   its own, so a terminal's Ctrl+C reaches the client alone.
2. Guard, supervisor, zygote and tool worker are subreapers: an orphan goes to the nearest of them that lives. Where
   there are none, what is left is found by marks (protocol/marks.py).
3. Death is seen through pidfds, which survive any other death and cannot name a stranger; where there are none,
   through pipes of their own that no fork keeps (protocol/deaths.py). Never through the end of another pipe: every fork
   holds copies of its parent's. (A fork of the zygote that waits to begin sees that nobody is left to let it: that
   pipe is closed in every other fork, zygote.py, rule 8.)
4. Who ends what. Client dead: the supervisor cancels and leaves; the guard ends it when it does not.
   Supervisor dead: workers and zygote see it and leave by themselves; the guard sweeps what is left.
   Zygote dead, or killed because it hangs: its spare takes over, the supervisor sweeps what it had begun to sweep.
   Guard dead: nothing changes for the supervisor; the client waits for the supervisor's end alone.
   Guard stopped: woken when there is something for it to do, or its work is done by the client (guard.py, rule 4).
5. A forked child never returns into its parent's frames: `os._exit` on every path.
"""

from __future__ import annotations

import os

from haltline.protocol import deaths, ending, signposts
from haltline.protocol.endpoints import usual
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.terminal import SharedTerminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

LOG_BYTES = 1 << 20
"""Kept of a log: the first tracebacks are those that count."""


class Chain:
    """What client, guard and supervisor share, made by the client before the first fork."""

    __slots__ = (
        "bye_r", "bye_w", "client_pidfd", "ended_fd", "folder", "log", "log_kept", "name", "one_run", "ready_r",
        "ready_w", "terminal", "token",
    )  # fmt: skip

    def __init__(self, folder: str, *, log_kept: str, one_run: bool = False) -> None:
        self.folder = folder
        """Runtime folder of the supervisor, mode 0700; the guard removes it."""
        self.name = os.path.basename(folder)
        """Random; names the chain in the cookies of its tools (protocol/marks.py)."""
        self.log = f"{folder}/log"
        """Stderr of supervisor, zygote and guard: tracebacks and last words, nothing when all goes well."""
        self.log_kept = log_kept
        """Where the guard puts the log if there is anything in it."""
        self.token = os.urandom(16)
        """Proves the client to the supervisor; both know it by birth."""
        self.one_run = one_run
        """The command opens one session, for one run that it begins with: a stop of all that comes before is of it."""
        self.ended_fd = ending.make(folder)
        """Held by the client alone."""
        self.client_pidfd = deaths.own()
        self.ready_r, self.ready_w = os.pipe()
        """The supervisor says `ready` or `failed: WORDS` here once, and keeps its end open as long as it lives. The
        guard says `failed` where there is no supervisor."""
        self.bye_r, self.bye_w = os.pipe()
        """One byte from a client that leaves in order."""
        self.terminal = SharedTerminal()
        """The client takes it; whoever outlives the client gives it back."""


def fork(body: Callable[[], None]) -> int:
    """Fork a child that runs `body` and exits with 0, or with 1 and a traceback on stderr. Returns its pid. Raises
    ConfigurationProblem where the system has no room for another process."""
    try:
        pid = deaths.fork()
    except OSError as error:
        words = f"the system refuses to start another process (see ulimit -u): {error.strerror}"
        raise ConfigurationProblem(words) from error
    if pid == 0:
        _run(body)
    return pid


def _run(body: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        body()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  (rule 5: whatever it is, it ends here, with its words in the log)
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def let_go_of_streams(log: str) -> None:
    """Standard input and output to nowhere, errors to `log`: a pipe that we held would keep its reader waiting
    (`haltline run | head`)."""
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, target in ((0, null), (1, null), (2, errors)):
        os.dup2(target, fd)
    for fd in (null, errors):
        if fd > 2:
            os.close(fd)


def clear_away(chain: Chain) -> None:
    """The last act of whoever goes last: a log with something in it outlives the run, the folder does not."""
    try:
        if os.stat(chain.log).st_size:
            os.makedirs(os.path.dirname(chain.log_kept), mode=0o700, exist_ok=True)
            with open(chain.log, "rb") as source, open(chain.log_kept, "ab") as kept:  # may be another file system
                kept.write(source.read(LOG_BYTES))
    except OSError:
        pass  # a disk that takes no log must not keep the sockets' folder from being removed
    remove_folder(chain.folder)


def remove_folder(folder: str) -> None:
    """The runtime folder with whatever is in it: a tool of the same user may have put something there."""
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in files:
            _try(os.unlink, f"{parent}/{name}")
        for name in folders:
            _try(os.unlink if os.path.islink(f"{parent}/{name}") else os.rmdir, f"{parent}/{name}")
    _try(os.rmdir, folder)
    signposts.take_down(folder, usual(os.getuid()))


def _try(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except OSError:
        return  # gone already, or made anew by somebody: what cannot be removed must not hold up the end
