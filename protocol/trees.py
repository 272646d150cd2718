"""Ending everything below a process, until it has been SEEN to be gone (G1, F5).

A tree is what is found downwards from a root through the kernel's own lists of children. If the root is a subreaper,
an orphan becomes its child, so a double fork, a new session, a closed pipe or an empty environment hides nothing:
groups, names and cookies are not needed. Standard library only; used by guard, zygote, supervisor and tool worker.

1. Only the nearest living subreaper of a tree sweeps it: it alone knows whom to spare, at every moment (`spare` is
   asked anew in each look; a spared process is kept with all that is below it).
2. A look goes downwards from the root only. A number found there counts if its parent is one that may have listed
   it; anything else was reused or moved meanwhile, and the look does not count as empty.
3. Empty is believed after two looks in a row without a living process: a process whose parent dies during a look
   moves up, behind the look's back.
4. Grace: each process gets SIGTERM once, parents first, and SIGCONT if it is stopped (it could not obey otherwise).
5. After the grace: stop, then kill. A stopped process forks no more, so going down while stopping what is met
   overtakes a fork storm; without stopping it took 13 to 16 passes instead of 3 to 10. Who is met is stopped first,
   which keeps the number of its group from meaning another one, then its group at a stroke: the kernel lets no fork
   slip through, and a fork bomb of a thousand leaves us no share of the processor to stop it one by one. Never our
   own session, nor one of the spared: nobody else can be in a session that one of the tree has begun.
6. Zombies are dead. Those that are children of this process are reaped here, except `tracked` ones: their status
   belongs to somebody else.
7. The wait after SIGKILL has a deadline of its own, which moves on as long as somebody new is found or somebody has
   gone, up to STORM_S in all. Who is left then is a survivor and is reported by number: a process in an
   uninterruptible sleep dies when the kernel lets it.
"""

from __future__ import annotations

import os
import signal
import time

from haltline.protocol import processes
from haltline.protocol.processes import Identity, Process
from haltline.protocol.times import KILL_S, STORM_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import Protocol

    from haltline.protocol.kinds import Rung

    Pids = Callable[[], Collection[int]]
    Reaped = Callable[[int, int], None]

    class Look(Protocol):
        """One look at a tree."""

        settled: bool
        """Nothing moved while looking (rule 2)."""

        def processes(self) -> Iterator[Process]:
            """Every process of the tree, dead ones included; what each yielded one started is looked for later."""
            ...


_FIRST_LOOK_S = 0.001
_SLOWEST_TERM_LOOK_S = 0.02
"""While a tree may still obey: a look at ten processes costs 0.3 ms of CPU, and a hundred workers may be looking."""
_SLOWEST_KILL_LOOK_S = 0.005
_SIGNALLING_S = 0.02
"""Signals in one step are sent within this time, the next step goes on: a look at 1,000 processes takes 40 ms, signals
to them 60, and a step may hold its caller's loop for 100 (L5)."""
_MOST_IN_A_LOOK = 1_000
"""Living processes; the rest waits until those have gone, for the same reason."""


def nobody() -> Collection[int]:
    """Default of `spare` and `tracked`."""
    return ()


def descendants(root: int, spare: Collection[int] = ()) -> list[Process]:
    """Everything alive below `root`, parents before children, without the root; one look (rule 2)."""
    return [process for process in _Look(root, spare).processes() if process.alive]


def reap(tracked: Collection[int] = (), reaped: Reaped | None = None) -> int:
    """Collect every dead child of this process except `tracked` ones; returns how many.

    `reaped(pid, status)` gets the exit code, or minus the number of the signal.
    """
    count = 0
    for pid in processes.children(os.getpid()):
        if pid not in tracked:
            process = processes.read_process(pid)
            if process is not None and not process.alive and _reap_one(pid, reaped):
                count += 1
    return count


class Stuck:
    """For how long killing has made no progress (rule 7)."""

    __slots__ = ("_began", "_found", "_gone", "_progress_at")

    def __init__(self) -> None:
        self._began: float | None = None
        self._progress_at = 0.0
        self._found = 0
        self._gone = 0

    def since(self, now: float, *, found: int, left: int) -> float:
        """`found`: how many were ever seen, `left`: of which that many live."""
        gone = found - left
        if self._began is None:
            self._began = now
        elif found <= self._found and gone <= self._gone:
            return now - self._progress_at
        self._progress_at = now
        self._found = max(found, self._found)
        self._gone = max(gone, self._gone)
        return 0.0

    def lasted(self, now: float) -> float:
        return 0.0 if self._began is None else now - self._began


class SweepResult:
    """How a sweep ended."""

    __slots__ = ("killed", "rung", "survivors")

    def __init__(self, *, killed: int, survivors: tuple[int, ...], rung: Rung) -> None:
        self.killed = killed
        """Processes that were seen alive and are gone, whichever signal it took."""
        self.survivors = survivors
        self.rung: Rung = rung
        """ack: nothing was alive. term, kill: that signal ended it. sweep: some were outside the known `groups`."""

    def __repr__(self) -> str:
        return f"SweepResult(killed={self.killed}, survivors={self.survivors}, rung={self.rung!r})"


class Sweep:
    """One ending of one tree, driven by its caller's loop: call `step` when it asked for it, or earlier.

    The last process of a tree is always a child of the root when it dies, so a root that sweeps itself gets a SIGCHLD
    for it and may step at once; the delays that `step` asks for are the fallback. Never blocks.
    """

    def __init__(
        self,
        root_pid: int,
        *,
        spare: Pids = nobody,
        tracked: Pids = nobody,
        groups: Collection[int] = (),
        grace_s: float,
        now: float,
        kill_wait_s: float = KILL_S,
        reaped: Reaped | None = None,
        look: Callable[[], Look] | None = None,
    ) -> None:
        """`now`: monotonic seconds. `groups`: process groups that the caller started, for the rung only.
        `kill_wait_s`: without progress (rule 7). `reaped(pid, status)`: see `reap`. `look`: another way to look than
        downwards from the root (marks.py)."""
        self.finished = False
        self._root = root_pid
        self._spare = spare
        self._tracked = tracked
        self._groups = groups
        self._kill_at = now + grace_s
        self._kill_wait_s = kill_wait_s
        self._stuck = Stuck()
        self._reaped = reaped
        self._look = look or self._look_down
        self._delay = _FIRST_LOOK_S
        self._termed: set[Identity] = set()
        self._known: set[Identity] = set()
        self._outside = False
        self._killing = False
        self._alive: list[Process] = []

    def shorten_grace(self, until: float) -> None:
        """Kill at `until` (monotonic seconds) if that is earlier; nothing once killing has begun."""
        if until < self._kill_at and not self._killing:
            self._kill_at = until
            self._delay = _FIRST_LOOK_S

    def step(self, now: float) -> float | None:
        """Do one round; seconds until the next one is due, None when the tree was seen empty or time is up."""
        if self.finished:
            return None
        if self._seen_empty():
            self.finished = True
            return None
        if now < self._kill_at:
            if not self._terminate():
                return 0.0
            return self._next_delay(min(_SLOWEST_TERM_LOOK_S, self._kill_at - now))
        if not self._killing:
            self._killing = True
            self._delay = _FIRST_LOOK_S
        if self._stuck.since(now, found=len(self._known), left=len(self._alive)) >= self._kill_wait_s or (
            self._stuck.lasted(now) >= STORM_S
        ):
            self.finished = True
            return None
        self._stop_and_kill()
        return self._next_delay(_SLOWEST_KILL_LOOK_S)

    @property
    def result(self) -> SweepResult:
        """How it stands; final once `finished`."""
        survivors = tuple(process.pid for process in self._alive)
        rung: Rung = "ack"
        if self._known:
            rung = "sweep" if self._outside else "kill" if self._killing else "term"
        return SweepResult(killed=len(self._known) - len(survivors), survivors=survivors, rung=rung)

    def _next_delay(self, slowest: float) -> float:
        delay = min(self._delay, slowest)
        self._delay *= 2
        return delay

    def _seen_empty(self) -> bool:
        """Rule 3. Leaves what was found in `_alive`."""
        return self._looks_empty() and self._looks_empty()

    def _looks_empty(self) -> bool:
        look = self._look()
        self._alive = []
        for process in look.processes():
            if self._is_ours(process):
                self._alive.append(process)
                if len(self._alive) >= _MOST_IN_A_LOOK:
                    break
        return not self._alive and look.settled

    def _look_down(self) -> Look:
        return _Look(self._root, self._spare())

    def _is_ours(self, process: Process) -> bool:
        """Count a living process; reap a dead one (rule 6)."""
        if process.alive:
            self._known.add(process.identity)
            self._outside = self._outside or process.group not in self._groups
            return True
        if process.parent == os.getpid() and process.pid not in self._tracked():
            _reap_one(process.pid, self._reaped)
        return False

    def _terminate(self) -> bool:
        """Rule 4. False: time was up before all had their signal."""
        until = time.monotonic() + _SIGNALLING_S
        for process in self._alive:
            if process.identity not in self._termed:
                if time.monotonic() > until:
                    return False
                self._termed.add(process.identity)
                self._signal(process, signal.SIGTERM)
                if process.stopped:
                    self._signal(process, signal.SIGCONT)
        return True

    def _stop_and_kill(self) -> None:
        """Rule 5."""
        until = time.monotonic() + _SIGNALLING_S
        kept = self._kept_sessions()
        stopped: dict[Identity, Process] = {}
        groups: dict[int, Process] = {}
        while self._stop_more(stopped, groups, kept, until):
            pass
        for member in groups.values():
            processes.signal_group(member, signal.SIGKILL)
        for process in stopped.values():
            if process.group not in groups:
                self._signal(process, signal.SIGKILL)

    def _stop_more(
        self, stopped: dict[Identity, Process], groups: dict[int, Process], kept: set[int], until: float
    ) -> bool:
        """One walk; whether it is worth another."""
        before = len(stopped)
        for process in self._look().processes():
            if time.monotonic() > until:
                return False
            if self._is_ours(process) and process.identity not in stopped:
                stopped[process.identity] = process
                if process.group in groups:
                    continue
                held = self._signal(process, signal.SIGSTOP)  # before the walk goes on to its children
                if held and process.session not in kept and processes.signal_group(process, signal.SIGSTOP):
                    groups[process.group] = process
        return len(stopped) > before

    def _kept_sessions(self) -> set[int]:
        """Rule 5: whose groups are never signalled. Asked of the kernel directly: there may be hundreds to spare."""
        kept: set[int] = set()
        for pid in (0, *self._spare()):
            try:
                kept.add(os.getsid(pid))
            except ProcessLookupError:
                continue
        return kept

    def _signal(self, process: Process, number: int) -> bool:
        return processes.signal_identity(process.identity, number)


def sweep(
    root_pid: int,
    *,
    spare: Pids = nobody,
    tracked: Pids = nobody,
    groups: Collection[int] = (),
    grace_s: float,
    kill_wait_s: float = KILL_S,
    reaped: Reaped | None = None,
    look: Callable[[], Look] | None = None,
) -> SweepResult:
    """End the tree below `root_pid` and wait for it; for processes without a loop. At most grace_s + STORM_S."""
    ending = Sweep(
        root_pid,
        spare=spare,
        tracked=tracked,
        groups=groups,
        grace_s=grace_s,
        now=time.monotonic(),
        kill_wait_s=kill_wait_s,
        reaped=reaped,
        look=look,
    )
    while (delay := ending.step(time.monotonic())) is not None:
        time.sleep(delay)
    return ending.result


class _Look:
    """One walk downwards. `settled`: nothing moved while looking (rule 2)."""

    def __init__(self, root: int, spare: Collection[int]) -> None:
        self.settled = True
        self._root = root
        self._spare = spare
        self._by_parent = None if processes.kernel_lists_children() else processes.children_by_parent()

    def processes(self) -> Iterator[Process]:
        """Every process below the root, dead ones included; the children of each are read after it was yielded."""
        seen = {self._root}
        level = [self._root]
        while level:
            below: list[int] = []
            for parent in level:
                for pid in self._children(parent):
                    if pid in seen or pid in self._spare:
                        continue
                    seen.add(pid)
                    process = processes.read_process(pid)
                    if process is None:
                        continue
                    if process.parent not in (parent, self._root):
                        self.settled = False
                        continue
                    yield process
                    if process.alive:
                        below.append(pid)
            level = below

    def _children(self, pid: int) -> list[int]:
        return processes.children(pid) if self._by_parent is None else self._by_parent.get(pid, [])


def _reap_one(pid: int, reaped: Reaped | None) -> bool:
    """Collect one dead child; False if somebody else was faster."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return False
    if found == 0:
        return False
    if reaped is not None:
        reaped(pid, os.waitstatus_to_exitcode(status))
    return True
