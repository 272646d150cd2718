"""The first code of ours in every command: signals, then (for `run` and `chat`) the process chain, then the rest.

1. Until the handlers stand, Ctrl+C ends the process silently by its default; nothing has been started yet.
2. From then on a signal is one byte in a pipe, read by the command's loop whenever it gets there: a Ctrl+C
   during the imports is a cancel like any other.
3. Dispositions and the blocked mask are set explicitly: a background shell starts its children with SIGINT
   ignored, and some parents block signals (F2).
4. The guard is forked before anything else is imported (supervisor/chain.py).
5. A command that was started without one of its standard streams gets an empty one: no pipe of ours may take its
   number.
"""

from __future__ import annotations

import os
import signal
import sys

from haltline.cli import process_1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import NoReturn

    from haltline.supervisor.chain import Chain

OWNING = frozenset({"run", "chat", "soak"})
"""Commands that run a supervisor of their own."""

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)
_INTERRUPTED = 130


def main() -> NoReturn:
    """Entry point of the `haltline` command."""
    process_1.step_aside()
    _open_missing_streams()
    signals_fd = _catch_signals()
    argv = sys.argv[1:]
    code = 1
    try:
        _make_home_absolute()
        code = _command(argv, signals_fd)
    except KeyboardInterrupt:  # in the other commands' last steps
        code = _INTERRUPTED
    except BaseException as bug:  # noqa: BLE001  (the outermost edge: nothing may end in silence or in a traceback)
        os.write(2, f"haltline: a bug of haltline's own ({type(bug).__name__}: {bug})\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)  # a context, a thread or an exit hook must not hold the end up


def _make_home_absolute() -> None:
    """What runs in another folder means the same place."""
    home = os.environ.get("HALTLINE_HOME")
    if home:
        os.environ["HALTLINE_HOME"] = os.path.abspath(home)


def _open_missing_streams() -> None:
    """Rule 5."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _catch_signals() -> int:
    """Rules 2 and 3. Returns the reading end: one byte per signal, its number."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in _WATCHED:
        signal.signal(number, _noted)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return read_fd


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The wakeup pipe has the byte; that is all."""


def _command(argv: Sequence[str], signals_fd: int) -> int:
    owns = bool(argv) and argv[0] in OWNING and "--help" not in argv
    if not owns:
        from haltline.cli.main import cli

        return _INTERRUPTED if _stop_hearing(signals_fd) else cli(None, list(argv))

    from haltline.protocol.errors import ConfigurationProblem

    try:
        chain, guard_pid = _start_chain(one_run=argv[0] == "run")
    except ConfigurationProblem as problem:
        print(f"haltline: {problem}", file=sys.stderr)
        return 78
    from haltline.cli.main import cli
    from haltline.cli.owned import Owned

    owned = Owned(chain=chain, guard_pid=guard_pid, signals_fd=signals_fd)
    code = cli(owned, list(argv))
    owned.leave()
    if not owned.in_use:  # nobody has waited yet: a bad option, or a signal before anything began
        from haltline.protocol import times

        owned.wait_for_guard(times.guard_left_s())
    return code


def _stop_hearing(signals_fd: int) -> bool:
    """For commands in which nobody reads the pipe: rule 1 again, but Ctrl+C is an exception. True: it has come already.
    Another signal that has come ends us now, as it would have."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in _WATCHED[1:]:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    try:
        came = os.read(signals_fd, 4096)
    except BlockingIOError:
        return False
    for byte in came:
        if byte != signal.SIGINT:
            os.kill(os.getpid(), byte)
    return signal.SIGINT in came


def _start_chain(*, one_run: bool = False) -> tuple[Chain, int]:
    """Rule 4. Raises ConfigurationProblem where there is no private folder for the sockets, or no process left."""
    from haltline.protocol import linux, secrets, signposts
    from haltline.protocol.endpoints import Endpoints, Places, usual
    from haltline.protocol.errors import ConfigurationProblem
    from haltline.supervisor import chain as chains

    places = Places(os.environ, os.getuid())
    name = os.urandom(4).hex()
    folder = os.path.abspath(f"{places.runtime}/{name}")
    Endpoints(folder)  # refuses a folder whose socket paths would not fit
    _make_private(places.runtime, folder, places.runtime_by)
    if places.needs_signpost():
        signposts.put_up(folder, usual(os.getuid()))
    secrets.blank_block()  # for this process and all its forks: tools run under the same user id
    linux.set_not_dumpable()
    chain = chains.Chain(folder, log_kept=f"{places.logs}/{name}.log", one_run=one_run)

    def guard() -> None:
        from haltline.supervisor import guard

        guard.run(chain, _supervisor)

    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)  # a Ctrl+C reaches the guard too until it has its own session
    try:
        guard_pid = chains.fork(guard)
    except ConfigurationProblem:
        chains.remove_folder(folder)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.close(chain.ready_w)
    os.close(chain.bye_r)
    os.close(chain.client_pidfd)
    return chain, guard_pid


def _supervisor(chain: Chain) -> None:
    from haltline.supervisor.main import run

    run(chain, roles_module="haltline.cli.roles")


def _make_private(runtime: str, folder: str, by: str) -> None:
    from haltline.protocol.errors import ConfigurationProblem

    try:
        os.makedirs(runtime, mode=0o700, exist_ok=True)
        facts = os.stat(runtime)
        if facts.st_uid == os.getuid() and not facts.st_mode & 0o077:
            os.mkdir(folder, 0o700)
            return
    except OSError as error:
        raise ConfigurationProblem(
            f"no folder for sockets at {runtime}: {error.strerror}; "
            f"set {by or 'XDG_RUNTIME_DIR'}{'' if by == 'HALTLINE_HOME' else ' or HALTLINE_HOME'} to a writable folder"
        ) from error
    raise ConfigurationProblem(
        f"{runtime} belongs to somebody else or is open to others; "
        "its owner must be you and its mode 0700, or set HALTLINE_HOME to another folder"
    )
