"""Body of the supervisor process: import the base, fork the zygote, only then make sockets and a loop."""

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial

from haltline.protocol import deaths, ending, linux, pidfile, processes, secrets
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.exits import BUG
from haltline.protocol.platforms import PORTABLE
from haltline.supervisor.chain import Chain, clear_away, fork, let_go_of_streams
from haltline.supervisor.namespaced import UNTRIED, Namespaces, Trial
from haltline.supervisor.pairs import message_pair


def run(chain: Chain, roles_module: str) -> None:
    """`roles_module` names what the zygote runs (its ROLES, EARLY and IDLE); the supervisor itself never imports it."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    linux.reset_signals()
    for number in (signal.SIGINT, signal.SIGHUP):  # the terminal's; the client turns them into requests
        signal.signal(number, signal.SIG_IGN)
    linux.become_subreaper()
    linux.set_process_name("superv")
    pidfile.write(chain.folder)
    lower_limit = linux.raise_descriptor_limit()
    chain.terminal.keep()
    let_go_of_streams(chain.log)
    trial = None if PORTABLE else Trial()
    _import_base()
    found = UNTRIED if trial is None else trial.result()
    supervisor_pidfd = deaths.own()
    ours, zygotes = message_pair()
    try:
        zygote_pid = fork(lambda: _zygote(chain, ours, zygotes, supervisor_pidfd, lower_limit, found, roles_module))
    except ConfigurationProblem as problem:
        os.write(chain.ready_w, f"failed: {problem}\n".encode())
        return
    zygotes.close()
    secrets.forget(os.environ)
    linux.set_not_dumpable()
    found.let_go()
    asyncio.run(_serve(chain, zygote_pid, ours, supervisor_pidfd, found))


def _import_base() -> None:
    """What supervisor and workers both need: imported once, before the fork."""
    for name in ("zmq", "msgspec", "haltline.protocol.codec"):
        importlib.import_module(name)


def _zygote(
    chain: Chain,
    ours: socket.socket,
    requests: socket.socket,
    supervisor_pidfd: int,
    lower_limit: Callable[[], None],
    found: Namespaces,
    roles_module: str,
) -> None:
    """Body of the zygote process. It lets go of `ready_w` at once: its end is how a client learns of our death."""
    os.close(chain.ready_w)
    os.close(chain.client_pidfd)
    os.close(chain.bye_r)
    chain.terminal.let_go()
    ours.close()
    from haltline.supervisor import zygote

    roles = importlib.import_module(roles_module)
    zygote.run(
        requests,
        supervisor_pidfd,
        roles=roles.ROLES,
        early=roles.EARLY,
        idle=roles.IDLE,
        prepare_worker=lower_limit,
        chain=chain.name,
        namespaces=found,
    )


async def _serve(
    chain: Chain, zygote_pid: int, requests: socket.socket, supervisor_pidfd: int, found: Namespaces
) -> None:
    """Put the supervisor together, serve until its end, leave nothing behind."""
    import zmq

    from haltline.protocol.endpoints import Endpoints
    from haltline.supervisor import isolation
    from haltline.supervisor.door import Door
    from haltline.supervisor.journal import Journal
    from haltline.supervisor.runtime import Supervisor
    from haltline.supervisor.sources import Sources
    from haltline.supervisor.spawner import Spawner

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_crash)
    guard = processes.identify(os.getppid())
    endpoints = Endpoints(chain.folder)
    context = zmq.Context[zmq.Socket[bytes]](io_threads=1)
    try:
        supervisor = Supervisor(
            context,
            endpoints,
            Spawner(requests, zygote_pid, chain=chain.name),
            token=chain.token,
            supervisor_pidfd=supervisor_pidfd,
            open_journal=Journal.open,
            isolation_of=isolation.by_marks
            if PORTABLE
            else partial(isolation.effective, refusal=found.refusal, costs=found.costs),
            sources=Sources(),
            note_session=lambda session_id, live: pidfile.note_session(chain.folder, session_id, live=live),
            note_end=lambda word: ending.note(chain.folder, word),
            one_run=chain.one_run,
        )
        door = Door(endpoints.door, grant=supervisor.grant)
    except (OSError, zmq.ZMQError) as error:
        os.write(chain.ready_w, f"failed: cannot open sockets in {chain.folder}: {error.strerror or error}\n".encode())
        raise

    def client_left() -> None:
        for fd in (chain.client_pidfd, chain.bye_r):
            loop.remove_reader(fd)
        chain.terminal.restore()  # the guard may be dead as well
        supervisor.client_left()

    for fd in (chain.client_pidfd, chain.bye_r):  # the byte itself is for the guard
        loop.add_reader(fd, client_left)
    loop.add_signal_handler(signal.SIGTERM, supervisor.terminate)
    with contextlib.suppress(BrokenPipeError):  # the client has gone, which its pidfd will tell
        os.write(chain.ready_w, b"ready\n")
    await supervisor.ended()
    door.close()
    await supervisor.leave()
    context.term()
    if guard is None or os.getppid() != guard.pid:  # nobody is left to do it
        clear_away(chain)
    else:
        processes.signal_identity(guard, signal.SIGCONT)  # guard.py, rule 4


def _crash(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """A bug outside any session: better dead, with everything swept by the guard, than half alive."""
    error = context.get("exception")
    with contextlib.suppress(OSError):  # a disk that takes no log
        print(context.get("message"), file=sys.stderr)
        if isinstance(error, BaseException):
            traceback.print_exception(error, file=sys.stderr)
        sys.stderr.flush()
    os._exit(BUG)
