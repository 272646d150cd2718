"""What the guard finds of a chain whose supervisor is dead, and ends when its patience is over (guard.py, rule 2)."""

from __future__ import annotations

import os
import signal
import time

from haltline.protocol import times, trees
from haltline.protocol.marks import Marks
from haltline.protocol.platforms import PORTABLE

GIVE_UP_S = 30.0
"""The guard is the last who can end anything: it sweeps again as long as something is left, this long at most. What
is left then does not die (an uninterruptible sleep). A client that lives waits for one sweep (times.guard_left_s), then
does it itself."""
_LOOK_S = 0.02
"""Between two looks where no signal tells of an end."""


class Leftovers:
    """Below a subreaper: all that hangs from this process. Elsewhere: the supervisor's session, in which all processes
    of ours are, and what carries the chain's cookie. Made once the supervisor is forked."""

    def __init__(self, chain: str, supervisor_pid: int) -> None:
        self._marks: Marks | None = None
        if PORTABLE:
            self._marks = Marks(chain)
            self._marks.started(supervisor_pid)
        else:
            signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))  # waited for with sigtimedwait

    def sweep(self) -> None:
        """Wait for them, at most GUARD_PATIENCE_S; then end whoever is left."""
        patience = time.monotonic() + times.GUARD_PATIENCE_S
        give_up = patience + GIVE_UP_S
        while self._reap_and_look() and time.monotonic() < give_up:
            left_s = patience - time.monotonic()
            if left_s <= 0 or not self._has_changed(left_s):
                trees.sweep(os.getpid(), grace_s=0.0, look=None if self._marks is None else self._marks.look)

    def _reap_and_look(self) -> bool:
        """True while anything lives."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return self._marks is not None and self._marks.any_alive()
        return True

    def _has_changed(self, within_s: float) -> bool:
        """Wait for a death below us, or until it is worth another look."""
        if self._marks is None:
            return signal.sigtimedwait((signal.SIGCHLD,), within_s) is not None
        time.sleep(min(within_s, _LOOK_S))
        return True
