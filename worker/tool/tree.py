"""The owner of everything alive below a tool worker: reaps it, knows when it dies, ends it.

1. Its tools are the only processes that the worker starts, so all that it has reach of (reach.py) belongs to the
   calls at hand, but for what rule 4 says.
2. At most one ending of everything is under way. Who asks for another joins it; the shorter grace counts. The same for
   endings of what a call has left; one that comes while everything is being ended joins that.
3. Every SIGCHLD reaps, and lets the ending look again: below a subreaper the last process of a tree is a child of
   this one when it dies; elsewhere the delays of the ending do. Storms of deaths are looked at once a millisecond.
4. A kept process and all that is below it outlive the call that started it (background.py). The end of a call spares
   them; the end of everything does not, but for those that its caller names.
5. Who sees not even itself sees nobody, and to see nobody is no proof that nobody is there: a tool may have lowered our
   limit of open files, or covered /proc with a mount. Then the worker ends, as by any bug of ours, and whoever is above
   it ends the tree. Asked in each look: the first that is blind is the last.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

from haltline.protocol import processes
from haltline.protocol.errors import BrokenInvariant
from haltline.protocol.trees import Sweep, SweepResult, nobody
from haltline.worker.tool.reach import Reach

Pids = Callable[[], Collection[int]]

BETWEEN_LOOKS_S = 0.001
"""A look costs 0.1 to 0.3 ms of CPU."""


class _Ending:
    """One sweep and the task that drives it."""

    def __init__(self, sweep: Sweep, driver: asyncio.Task[SweepResult]) -> None:
        self.sweep = sweep
        self.driver = driver


class Tree:
    """Made once, on the loop, in the main thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reach: Reach) -> None:
        self._loop = loop
        self._reach = reach
        self._watched: dict[int, Callable[[], None]] = {}
        self._groups: set[int] = set()
        """Groups of the children at hand, also of one that ended and left others behind; for the rung."""
        self._reap_due = False
        self._died = asyncio.Event()
        self._kept: dict[int, set[int]] = {}
        """Kept processes (rule 4), and the groups that are known to be theirs."""
        self._of_all: _Ending | None = None
        self._of_call: _Ending | None = None
        loop.add_signal_handler(signal.SIGCHLD, self._child_died)

    def watch(self, pid: int, check: Callable[[], None], *, kept: bool = False) -> None:
        """`pid` was started as the leader of its group. `check` is called when some child has died; it reaps `pid`
        if that was it, and then calls `unwatch`. `kept`: rule 4."""
        self._watched[pid] = check
        self._reach.started(pid)
        if kept:
            self._kept[pid] = {pid}
            self._reach.kept_started(pid)
            return
        if self._watched.keys() <= {pid, *self._kept}:
            self._groups.clear()
        self._groups.add(pid)

    def unwatch(self, pid: int) -> None:
        del self._watched[pid]
        self._kept.pop(pid, None)

    def kept_started(self, kept_pid: int, pid: int) -> None:
        """A kept process has started `pid`, as the leader of a session."""
        if kept_pid in self._kept:
            self._kept[kept_pid].add(pid)
            self._reach.kept_started(pid)

    def environment_of_kept(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        return self._reach.environment_of_kept(of_tools)

    def empty(self) -> bool:
        """One look, past what is kept; what is dead is reaped first, so that a call leaves no zombies either. Raises
        BrokenInvariant (rule 5)."""
        _must_see()
        self._reach.reap(self._watched.keys())
        return not self._reach.anything_alive(self._kept)

    async def until_empty(self, timeout_s: float) -> bool:
        """Whether all but what is kept ended by itself within the time."""
        until = self._loop.time() + timeout_s
        while not self.empty():
            left = until - self._loop.time()
            if left <= 0:
                return False
            await self._death(left)
        return True

    def end(self, grace_s: float, spare: Pids = nobody) -> Awaitable[SweepResult]:
        """SIGTERM to everything, now, before this returns; after the grace SIGKILL, until nothing is left (rule 2).
        `spare`: kept processes that are not meant. Raises BrokenInvariant (rule 5)."""
        self._of_all = self._begin_or_join(self._of_all, grace_s, spare)
        return self._of_all.driver

    def end_call(self, grace_s: float) -> Awaitable[SweepResult]:
        """The same to everything that is not kept."""
        if self._of_all is not None and not self._of_all.sweep.finished:
            return self.end(grace_s)
        self._of_call = self._begin_or_join(self._of_call, grace_s, self._kept.keys)
        return self._of_call.driver

    def end_and_wait(self, grace_s: float, wait_s: float) -> None:
        """`end` for a worker whose loop has ended: returns when nothing is left, at most `wait_s` after the grace."""
        now = time.monotonic()
        until = now + grace_s + wait_s
        sweep = self._new_sweep(grace_s, now, nobody)
        while (delay := _step(sweep, now)) is not None and now < until:
            time.sleep(delay)
            now = time.monotonic()

    def _begin_or_join(self, under_way: _Ending | None, grace_s: float, spare: Pids) -> _Ending:
        now = self._loop.time()
        if under_way is None or under_way.sweep.finished:
            sweep = self._new_sweep(grace_s, now, spare)
            return _Ending(sweep, self._loop.create_task(self._drive(sweep, _step(sweep, now))))
        under_way.sweep.shorten_grace(now + grace_s)
        _step(under_way.sweep, now)
        self._died.set()
        return under_way

    def _new_sweep(self, grace_s: float, now: float, spare: Pids) -> Sweep:
        groups = self._groups.union(*self._kept.values())
        return self._reach.sweep(
            spare=spare, tracked=self._watched.keys, groups=frozenset(groups), grace_s=grace_s, now=now
        )

    async def _drive(self, sweep: Sweep, delay: float | None) -> SweepResult:
        """Look again when it is due, or when something has died (rule 3)."""
        while delay is not None:
            await self._death(delay)
            delay = _step(sweep, self._loop.time())
        return sweep.result

    async def _death(self, timeout_s: float) -> None:
        """Until a child has died, at most this long."""
        self._died.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._died.wait(), timeout_s)

    def _child_died(self) -> None:
        if not self._reap_due:
            self._reap_due = True
            self._loop.call_later(BETWEEN_LOOKS_S, self._reap)

    def _reap(self) -> None:
        self._reap_due = False
        for check in list(self._watched.values()):
            check()
        self._reach.reap(self._watched.keys())
        self._died.set()


def _step(sweep: Sweep, now: float) -> float | None:
    """Raises BrokenInvariant (rule 5)."""
    _must_see()
    return sweep.step(now)


def _must_see() -> None:
    """Rule 5. One small file, 15 microseconds."""
    if processes.read_process(os.getpid()) is None:
        raise BrokenInvariant("this worker sees no process, not even itself: no open file is left to it, or no /proc")
