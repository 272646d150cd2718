"""The guard: outlives client and supervisor, sweeps what they leave, restores the terminal, goes.

Bare on purpose: it is forked before anything is imported and costs a few MiB.

1. Client gone: the terminal gets its settings back, if the client still had it. The supervisor, woken if somebody has
   stopped it, has CLIENT_LOST_S to stop everything and leave; then it is killed.
2. Supervisor gone: workers and zygote have GUARD_PATIENCE_S to leave by themselves (their tools get 1 s of grace);
   then everything below the guard is killed until it is seen empty.
3. Nothing below: the runtime folder is removed and the guard exits; the client waits for that, so its exit
   means that nothing is left.
4. Stopped by somebody, the guard hinders nobody: the supervisor ends runs without it. Whoever comes to wait for it, or
   to leave to it what is left, wakes it: the client, and the supervisor as its last act. A client that waits in vain
   ends it and does its work (Owned.stand_in_for_guard).
"""

from __future__ import annotations

import os
import select
import signal
import time

from haltline.protocol import deaths, ending, linux, secrets, times
from haltline.protocol.errors import ConfigurationProblem
from haltline.supervisor.chain import Chain, clear_away, fork, let_go_of_streams, remove_folder
from haltline.supervisor.leftovers import Leftovers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CLIENT_LOST_S = times.client_lost_s()
"""Longest orderly stop after the client's death, and the supervisor's leaving."""
TERMINAL_LOOK_MS = 20
"""How often the guard, with nothing else left to do, looks whether the client has given the terminal back."""
_IGNORED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGTTOU,
    signal.SIGTTIN,
)


def run(chain: Chain, supervisor: Callable[[Chain], None]) -> None:
    """Body of the guard process: forks the supervisor, waits for both ends, leaves nothing."""
    os.setsid()
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # blocked until here: what came meanwhile is the client's
    linux.become_subreaper()
    chain.terminal.keep()
    os.close(chain.ready_r)
    os.close(chain.bye_w)
    ending.let_go(chain.ended_fd)
    try:
        pid = fork(lambda: supervisor(chain))
    except ConfigurationProblem as problem:
        remove_folder(chain.folder)  # before the word, which fails where the client has gone
        os.write(chain.ready_w, f"failed: {problem}\n".encode())
        return
    os.close(chain.ready_w)
    secrets.forget(os.environ)
    let_go_of_streams(chain.log)
    linux.set_process_name("guard")
    linux.set_not_dumpable()
    supervisor_pidfd = deaths.of_child(pid)
    leftovers = Leftovers(chain.name, pid)
    _watch(chain, supervisor_pidfd)
    leftovers.sweep()
    _restore_terminal(chain)
    clear_away(chain)


def _watch(chain: Chain, supervisor_pidfd: int) -> None:
    """Returns when the supervisor is dead (rules 1 and 2)."""
    poll = select.poll()
    poll.register(chain.client_pidfd, select.POLLIN)
    poll.register(supervisor_pidfd, select.POLLIN)
    kill_at: float | None = None
    while True:
        wait_ms = None if kill_at is None else max(0.0, (kill_at - time.monotonic()) * 1000)
        ready = {fd for fd, _ in poll.poll(wait_ms)}
        if chain.client_pidfd in ready:
            poll.unregister(chain.client_pidfd)
            kill_at = time.monotonic() + CLIENT_LOST_S
            deaths.kill(supervisor_pidfd, signal.SIGCONT)
            chain.terminal.restore()
        if supervisor_pidfd in ready:
            return
        if kill_at is not None and time.monotonic() >= kill_at:
            deaths.kill(supervisor_pidfd)
            kill_at = None


def _restore_terminal(chain: Chain) -> None:
    """Rule 1 for a client that dies after its supervisor: one that lives gives the terminal back before it waits for
    us, one that somebody has stopped may still be killed."""
    poll = select.poll()
    poll.register(chain.client_pidfd, select.POLLIN)
    while chain.terminal.taken:
        if poll.poll(TERMINAL_LOOK_MS):
            chain.terminal.restore()
