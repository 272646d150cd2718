"""The owner of everything alive below a tool worker: reaps it, knows when it dies, ends it.

1. Its tools are the only processes that the worker starts, so all that it has reach of (reach.py) belongs to the
   calls at hand.
2. At most one ending is under way. Who asks for another joins it; the shorter grace counts.
3. Every SIGCHLD reaps, and lets the ending look again: below a subreaper the last process of a tree is a child of
   this one when it dies; elsewhere the delays of the ending do. Storms of deaths are looked at once a millisecond.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable

from haltline.protocol.trees import Sweep, SweepResult
from haltline.worker.tool.reach import Reach

BETWEEN_LOOKS_S = 0.001
"""A look costs 0.1 to 0.3 ms of CPU."""


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
        self._sweep: Sweep | None = None
        self._driver: asyncio.Task[SweepResult] | None = None
        loop.add_signal_handler(signal.SIGCHLD, self._child_died)

    def watch(self, pid: int, check: Callable[[], None]) -> None:
        """`pid` was started as the leader of its group. `check` is called when some child has died; it reaps `pid`
        if that was it, and then calls `unwatch`."""
        if not self._watched:
            self._groups.clear()
        self._groups.add(pid)
        self._watched[pid] = check
        self._reach.started(pid)

    def unwatch(self, pid: int) -> None:
        del self._watched[pid]

    def empty(self) -> bool:
        """One look; what is dead is reaped first, so that a call leaves no zombies either."""
        self._reach.reap(self._watched.keys())
        return not self._reach.anything_alive()

    async def until_empty(self, timeout_s: float) -> bool:
        """Whether all ended by itself within the time."""
        until = self._loop.time() + timeout_s
        while not self.empty():
            left = until - self._loop.time()
            if left <= 0:
                return False
            await self._death(left)
        return True

    def end(self, grace_s: float) -> Awaitable[SweepResult]:
        """SIGTERM to everything, now, before this returns; after the grace SIGKILL, until nothing is left (rule 2)."""
        now = self._loop.time()
        if self._sweep is None or self._driver is None or self._sweep.finished:
            self._sweep = self._new_sweep(grace_s, now)
            self._driver = self._loop.create_task(self._drive(self._sweep, self._sweep.step(now)))
        else:
            self._sweep.shorten_grace(now + grace_s)
            self._sweep.step(now)
            self._died.set()
        return self._driver

    def end_at_once(self, wait_s: float) -> None:
        """SIGKILL to everything, and wait for it, at most this long; for a worker whose loop has ended."""
        now = time.monotonic()
        until = now + wait_s
        sweep = self._new_sweep(0.0, now)
        while (delay := sweep.step(now)) is not None and now < until:
            time.sleep(delay)
            now = time.monotonic()

    def _new_sweep(self, grace_s: float, now: float) -> Sweep:
        return self._reach.sweep(tracked=self._watched.keys, groups=frozenset(self._groups), grace_s=grace_s, now=now)

    async def _drive(self, sweep: Sweep, delay: float | None) -> SweepResult:
        """Look again when it is due, or when something has died (rule 3)."""
        while delay is not None:
            await self._death(delay)
            delay = sweep.step(self._loop.time())
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
