"""Ending a supervisor that does not answer, and everything under it, without its help (F1, F4, G1, G3).

1. Who it is stands in its runtime folder (protocol/pidfile.py). Only a process that still is that one, and has a name
   that only processes of ours have, is signalled.
2. The supervisor is stopped first and killed last. Stopped it starts nothing more; alive it stays the parent of every
   orphan below it, so nothing leaves the tree while that is swept.
3. What is below it is ended without grace, zygote and workers included, until nothing is seen any more.
4. The guard then finds nothing left, puts the terminal in order, removes the folder and goes. If it was stopped it is
   told to go on; if it does not go, it and what is below it are ended in the same way, and the folder is removed here.
5. Its client reads who ended it (protocol/ending.py).
6. Whoever breaks this off leaves a supervisor that does not answer: the same command again ends it.
"""

import signal
import time
from typing import Final

import msgspec

from haltline.protocol import ending, linux, pidfile, processes, times, trees
from haltline.protocol.processes import Identity
from haltline.supervisor.chain import remove_folder

_LOOK_S: Final = 0.002


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    sessions: tuple[str, ...]
    total_ms: float
    killed: int
    """Processes that were ended: the supervisor, and what was below it."""
    survivors: int


def end(folder: str) -> Ended | None:
    """End what hangs from the supervisor in `folder`, and it; at most some seconds. None: nothing of it is alive."""
    chain = pidfile.read(folder)
    if chain is None:
        return None
    lives, guarded = _is_ours(chain.supervisor), _is_ours(chain.guard)
    if not (lives or guarded):
        return None
    began = time.monotonic()
    sessions = pidfile.sessions(folder)
    killed = survivors = 0
    if lives:
        ending.note(folder, "killed")  # rule 5
        killed, survivors = _end_tree(chain.supervisor)
    if guarded:
        processes.signal_identity(chain.guard, signal.SIGCONT)
        if not _gone_within(chain.guard, times.guard_gone_s()):
            more, survivors = _end_tree(chain.guard)
            killed += more
            remove_folder(folder)
    else:
        remove_folder(folder)
    total_ms = round((time.monotonic() - began) * 1000, 3)
    return Ended(sessions=sessions, total_ms=total_ms, killed=killed, survivors=survivors)


def is_finished(folder: str) -> bool:
    """Whether nothing is left of a supervisor that has ended: waits for its guard, as long as that may take."""
    chain = pidfile.read(folder)
    if chain is None or not _is_ours(chain.guard):
        return True
    processes.signal_identity(chain.guard, signal.SIGCONT)
    return _gone_within(chain.guard, times.guard_gone_s())


def is_alive(folder: str) -> bool:
    """Whether the supervisor in `folder` is there, whatever it does."""
    chain = pidfile.read(folder)
    return chain is not None and _is_ours(chain.supervisor)


def is_guarded(folder: str) -> bool:
    """Whether its guard is there; with no supervisor any more, something of it may be left for a moment."""
    chain = pidfile.read(folder)
    return chain is not None and _is_ours(chain.guard)


def _is_ours(identity: Identity) -> bool:
    """Rule 1."""
    return processes.is_alive(identity) and linux.is_process_of_ours(identity.pid)


def _end_tree(root: Identity) -> tuple[int, int]:
    """Rules 2 and 3: how many were ended, how many are left."""
    processes.signal_identity(root, signal.SIGSTOP)
    swept = trees.sweep(root.pid, grace_s=times.NO_GRACE_S)
    processes.signal_identity(root, signal.SIGKILL)
    gone = _gone_within(root, times.KILL_S)
    return swept.killed + gone, len(swept.survivors) + (not gone)


def _gone_within(identity: Identity, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while processes.is_alive(identity):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True
