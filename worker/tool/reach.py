"""How a tool worker gets hold of everything that its tools started: two ways, the same questions."""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from haltline.protocol import trees
from haltline.protocol.marks import COOKIE, Marks, with_cookie
from haltline.protocol.trees import Sweep

Pids = Callable[[], Collection[int]]


class Reach(Protocol):
    def environment(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        """What tools get, from what they would get."""
        ...

    def started(self, pid: int) -> None:
        """A tool was started, as the leader of a session of its own."""

    def reap(self, tracked: Collection[int]) -> None:
        """Collect the dead that are nobody's; `tracked`: children whose status somebody waits for."""

    def anything_alive(self) -> bool:
        """One look."""
        ...

    def sweep(self, *, tracked: Pids, groups: Collection[int], grace_s: float, now: float) -> Sweep:
        """An ending of everything, not begun yet; see trees.Sweep."""
        ...


class Descent:
    """For a worker that is a subreaper: all that lives below it."""

    def environment(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        return dict(of_tools)

    def started(self, pid: int) -> None:
        """It is below us."""

    def reap(self, tracked: Collection[int]) -> None:
        trees.reap(tracked)

    def anything_alive(self) -> bool:
        return bool(trees.descendants(os.getpid()))

    def sweep(self, *, tracked: Pids, groups: Collection[int], grace_s: float, now: float) -> Sweep:
        return Sweep(os.getpid(), tracked=tracked, groups=groups, grace_s=grace_s, now=now)


class ByMarks:
    """For a worker that adopts nobody (`--isolation groups`, and systems that know no subreaper): marks.py."""

    def __init__(self, cookie: str) -> None:
        self._cookie = cookie
        self._marks = Marks(cookie, root=os.getpid())

    def environment(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        return {**of_tools, COOKIE: with_cookie(of_tools.get(COOKIE, ""), self._cookie)}

    def started(self, pid: int) -> None:
        self._marks.started(pid)

    def reap(self, tracked: Collection[int]) -> None:
        """Nobody is adopted, and whoever starts a child waits for it."""

    def anything_alive(self) -> bool:
        return self._marks.any_alive()

    def sweep(self, *, tracked: Pids, groups: Collection[int], grace_s: float, now: float) -> Sweep:
        return Sweep(os.getpid(), tracked=tracked, groups=groups, grace_s=grace_s, now=now, look=self._marks.look)
