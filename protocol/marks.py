"""Finding what a tool started where no subreaper keeps its orphans: by what it was born with, not by where it hangs.

docs/decisions/0005-the-portable-fallback.md says what stands in for what. Used by `--isolation groups` and by the whole
chain where PORTABLE (platforms.py) is true. Each look is one walk over all processes of the machine.

1. A process is ours if it carries our cookie; or is in a session that we started, or that one of ours is in; or its
   parent is one of ours or the root; or it was ours in an earlier look. One reason is enough, and each of them misses
   something that another finds.
2. A cookie is a word `CHAIN.WORKER` in the variable COOKIE, put there for every tool. It is inherited by whatever does
   not empty its environment. Chains below chains each add a word; no word is ever taken away.
3. Nothing older than the root can be ours: it was there before.
4. The number of a session is ours until a look sees nobody in it, or sees another process with that number: the kernel
   gives no number out again while a session has it, so its old leader is dead and so is the session.
5. An environment without our cookie is read again for STRANGER_S: until its exec, a child shows its parent's. Then the
   process is a stranger. An empty one says nothing: it is read again, and for EXEC_S no look that met it counts, since
   in the middle of an exec there is none.
6. Those known to live come first, so that a round that is cut short has done something. Then the newest first: in a
   fork storm the youngest process is the one that still lives when its turn comes. Ours are yielded as they are found,
   so that they are stopped before the walk goes on.
7. What was seen dead, or older than the root, is not read again for IDLE_S: no system goes once through its numbers in
   that time (Linux at its fastest takes 20 s). With psutil a look costs 0.08 ms for each process that it reads.
8. What outlives the call that started it has a cookie of its own besides (worker/tool/reach.py). A look that spares it
   meets it and passes over it.
9. Not found, and nothing tells of it: who has emptied its environment, entered a session of its own and lost its parent
   before any look.
"""

from __future__ import annotations

import os
import time

from haltline.protocol import processes
from haltline.protocol.platforms import PORTABLE
from haltline.protocol.processes import Identity, Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COOKIE = "HALTLINE_COOKIE"
"""Variable of tools. No secret."""
STRANGER_S = 1.0
"""From fork to exec takes milliseconds, also on a busy machine (rule 5)."""
EXEC_S = 0.02
"""The new memory of a program has no environment for some microseconds; longer if it loses its turn just then."""

IDLE_S = 1.0
"""Rule 7."""


def cookie(chain: str, worker: str) -> str:
    """`chain`: the name of its runtime folder, which is random. `worker`: a worker's id."""
    return f"{chain}.{worker}"


def with_cookie(value: str, word: str) -> str:
    """The variable's value with one more word (rule 2)."""
    words = value.split()
    return " ".join(words if word in words else [*words, word])


def carries(value: str, wanted: str) -> bool:
    """Whether a variable's value names `wanted`: a cookie, or a chain, which means each of its workers."""
    return any(word == wanted or word.startswith(f"{wanted}.") for word in value.split())


def look_for_tools_of(chain: str, worker: str) -> Callable[[], MarkedLook] | None:
    """How a process that is not the worker itself looks for what that one left (trees.Sweep). None: downwards, which
    sees all where it is a subreaper."""
    return Marks(cookie(chain, worker)).look if PORTABLE else None


class Marks:
    """What one process of ours has to find, and what it knows of it from earlier looks."""

    def __init__(self, wanted: str, *, root: int | None = None) -> None:
        """`wanted`: see `carries`. `root`: whose children are ours, besides (rule 1); None: of nobody."""
        self._wanted = wanted
        self._root = root
        self._own_pid = os.getpid()
        self._own_session = os.getsid(0)
        self._since = processes.start_ticks(self._own_pid) or 0
        """Rule 3. Whoever looks is not younger than the root."""
        self._known: set[Identity] = set()
        self._strangers: dict[Identity, float] = {}
        """When each was first seen to be one (rule 5)."""
        self._silent: dict[Identity, float] = {}
        """When each was first seen to have an empty environment (rule 5)."""
        self._idle: dict[int, float] = {}
        """Until when each number is not read again (rule 7), monotonic."""
        self._sessions: dict[int, int | None] = {}
        """Start of the leader, None where it was dead already (rule 4)."""

    def started(self, pid: int) -> None:
        """We started `pid` as the leader of a session."""
        self._enter(pid)

    def look(self) -> MarkedLook:
        return MarkedLook(self)

    def any_alive(self) -> bool:
        """One look; True also where it does not count."""
        look = self.look()
        alive = [process for process in look.processes() if process.alive]  # to its end, which settles it
        return bool(alive) or not look.settled

    # For MarkedLook

    def candidates(self) -> Iterator[Process]:
        """Everything that rule 3 lets through, in the order of rule 6."""
        now = time.monotonic()
        self._idle = {pid: until for pid, until in self._idle.items() if until > now}
        first = {identity.pid for identity in self._known}
        for pid in (*first, *(pid for pid in reversed(processes.all_pids()) if pid not in first)):
            process = None if pid in self._idle or pid == self._own_pid else processes.read_process(pid)
            if process is not None:
                older = process.identity.start_ticks < self._since
                if older or not process.alive:
                    self._idle[pid] = now + IDLE_S
                if not older:
                    yield process

    def is_marked(self, process: Process) -> bool | None:
        """Rule 1, without the parents. None: it cannot be told yet."""
        if process.identity in self._known or process.session in self._sessions:
            return True
        now = time.monotonic()
        if not process.alive or now - self._strangers.get(process.identity, now) > STRANGER_S:
            return False
        value = processes.variable(process.pid, COOKIE)
        if value is None:
            return None if now - self._silent.setdefault(process.identity, now) < EXEC_S else False
        if carries(value, self._wanted):
            return True
        self._strangers.setdefault(process.identity, now)
        return False

    def is_below(self, process: Process, ours: set[int]) -> bool:
        """Rule 1, by parent or by a session that was found only after `is_marked` had said no."""
        return process.parent in ours or process.parent == self._root or process.session in self._sessions

    def admit(self, process: Process) -> None:
        if not process.alive:
            self._known.discard(process.identity)
            return
        self._known.add(process.identity)
        if process.session not in self._sessions:
            self._enter(process.session)

    def forget_reused(self) -> None:
        """Rule 4, first half of a look."""
        for session, start in list(self._sessions.items()):
            leader = processes.read_process(session)
            if leader is not None and leader.identity.start_ticks != start:
                del self._sessions[session]

    def forget_absent(self, identities: set[Identity], sessions: set[int]) -> None:
        """Rule 4, second half; what is gone need not be remembered either."""
        self._known &= identities
        for seen in (self._strangers, self._silent):
            for gone in seen.keys() - identities:
                del seen[gone]
        for session in self._sessions.keys() - sessions:
            del self._sessions[session]

    def _enter(self, session: int) -> None:
        if session not in (0, self._own_session):
            leader = processes.read_process(session)
            self._sessions[session] = None if leader is None else leader.identity.start_ticks


class MarkedLook:
    """One look (trees.Look)."""

    def __init__(self, marks: Marks) -> None:
        self.settled = True
        """False: rule 5. A process that moves cannot hide from a walk over everything; for a new one trees.py looks
        twice."""
        self._marks = marks

    def processes(self) -> Iterator[Process]:
        marks = self._marks
        marks.forget_reused()
        ours: set[int] = set()
        others: list[Process] = []
        undecided: set[int] = set()
        identities: set[Identity] = set()
        sessions: set[int] = set()
        for process in marks.candidates():
            identities.add(process.identity)
            sessions.add(process.session)
            marked = marks.is_marked(process)
            if marked:
                ours.add(process.pid)
                marks.admit(process)
                yield process
            else:
                others.append(process)
                if marked is None:
                    undecided.add(process.pid)
        while below := [process for process in others if marks.is_below(process, ours)]:
            for process in below:
                ours.add(process.pid)
                marks.admit(process)
                yield process
            others = [process for process in others if process.pid not in ours]
        self.settled = undecided <= ours  # by parent or session after all
        marks.forget_absent(identities, sessions)


class SparingLook:
    """One look past what other marks know (rule 8)."""

    def __init__(self, look: MarkedLook, spared: Marks) -> None:
        self.settled = True
        self._look = look
        self._marks = spared

    def processes(self) -> Iterator[Process]:
        marks = self._marks
        marks.forget_reused()
        spared: set[int] = set()
        identities: set[Identity] = set()
        sessions: set[int] = set()
        for process in self._look.processes():
            identities.add(process.identity)
            sessions.add(process.session)
            marked = marks.is_marked(process)
            if marked or marks.is_below(process, spared):
                spared.add(process.pid)
                marks.admit(process)
            elif marked is None:
                self.settled = False
            else:
                yield process
        self.settled = self.settled and self._look.settled
        marks.forget_absent(identities, sessions)
