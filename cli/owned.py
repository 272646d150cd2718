"""The process chain that this command started, as its client sees it.

A supervisor's death is seen through its pidfd, never through end-of-file: every later fork holds copies of its
pipes. Before the first message the pidfd is not known, so the guard's stands in: the guard goes after the
supervisor and everything under it.
"""

import os
import select
import signal
from typing import TYPE_CHECKING

from haltline.protocol import deaths, ending, times, trees
from haltline.protocol.endpoints import Endpoints
from haltline.supervisor.chain import Chain, clear_away

if TYPE_CHECKING:
    from haltline.protocol.ending import EndedBy


class Owned:
    """What `run` and `chat` hold of their guard and supervisor. Made by the launcher, once."""

    def __init__(self, *, chain: Chain, guard_pid: int, signals_fd: int) -> None:
        self.endpoints = Endpoints(chain.folder)
        self.token = chain.token
        self.ready_fd = chain.ready_r
        """`ready`, or `failed: WORDS`, and a line end, once the supervisor's sockets are bound, or cannot be."""
        self.signals_fd = signals_fd
        """One byte per signal: its number."""
        self.in_use = False
        """True once a client talks to the supervisor: from then on the client waits for the guard, or must not."""
        self.terminal = chain.terminal
        self._chain = chain
        self._guard_pid = guard_pid
        self._reaped = False
        self.guard_fd = deaths.of_child(guard_pid)

    def wait_for_guard(self, timeout_s: float) -> bool:
        """True: the guard is gone, so nothing that this command started is left."""
        self.wake_guard()
        poll = select.poll()
        poll.register(self.guard_fd, select.POLLIN)
        gone = bool(poll.poll(timeout_s * 1000))
        if gone and not self._reaped:
            self._reaped = True
            os.waitpid(self._guard_pid, 0)  # deaths.py, rule 3
        return gone

    def wake_guard(self) -> None:
        """Somebody may have stopped it."""
        deaths.kill(self.guard_fd, signal.SIGCONT)

    def stand_in_for_guard(self) -> bool:
        """Do what a guard that does not go would have done, and end it. True: nothing is left."""
        left = trees.sweep(self._guard_pid, grace_s=times.NO_GRACE_S).survivors
        deaths.kill(self.guard_fd)
        self.clear_away()
        return not left

    def clear_away(self) -> None:
        """The files of the run; nothing where the guard has done it."""
        clear_away(self._chain)

    def kept_log(self) -> str | None:
        """Where the guard puts what the supervisor wrote to its log; None if it wrote nothing."""
        try:
            said = os.stat(self._chain.log).st_size > 0
        except FileNotFoundError:  # the guard has put it there already, or removed it with the folder
            said = os.path.exists(self._chain.log_kept)
        return self._chain.log_kept if said else None

    @property
    def ended_by(self) -> "EndedBy | None":
        """Who ended the supervisor on purpose, where it could not say so itself."""
        return ending.read(self._chain.ended_fd)

    def leave(self) -> None:
        """Say goodbye: a supervisor without a session leaves. Once is enough."""
        try:
            os.write(self._chain.bye_w, b"\n")
        except BrokenPipeError:  # the guard has gone first
            self.wait_for_guard(0.0)


def numbers(signals_fd: int) -> tuple[int, ...]:
    """The signals that came since the last call, oldest first; window changes are not among them."""
    try:
        seen = os.read(signals_fd, 4096)
    except BlockingIOError:
        return ()
    return tuple(number for number in seen if number != signal.SIGWINCH)
