"""How a tool worker gets hold of everything that its tools started: two ways, the same questions."""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from haltline.protocol import trees
from haltline.protocol.marks import COOKIE, MarkedLook, Marks, SparingLook, with_cookie
from haltline.protocol.trees import Sweep

Pids = Callable[[], Collection[int]]


class Reach(Protocol):
    """`spare`, `kept`: processes that outlive a call, with all that is below them (tree.py, rule 4)."""

    @property
    def adopts(self) -> bool:
        """Whether the worker is a subreaper, so that a kept process is to be one too."""
        ...

    def environment(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        """What tools get, from what they would get."""
        ...

    def environment_of_kept(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        """What a kept process gets, from what a tool gets."""
        ...

    def started(self, pid: int) -> None:
        """A tool was started, as the leader of a session of its own."""

    def kept_started(self, pid: int) -> None:
        """`pid`, the leader of a session, is kept, or was started by one that is."""

    def reap(self, tracked: Collection[int]) -> None:
        """Collect the dead that are nobody's; `tracked`: children whose status somebody waits for."""

    def anything_alive(self, spare: Collection[int]) -> bool:
        """One look."""
        ...

    def sweep(self, *, spare: Pids, tracked: Pids, groups: Collection[int], grace_s: float, now: float) -> Sweep:
        """An ending of everything but `spare`, not begun yet; see trees.Sweep."""
        ...


class Descent:
    """For a worker that is a subreaper: all that lives below it."""

    adopts = True

    def environment(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        return dict(of_tools)

    def environment_of_kept(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        return dict(of_tools)

    def started(self, pid: int) -> None:
        """It is below us."""

    def kept_started(self, pid: int) -> None:
        """What a kept process starts stays below it: it is a subreaper too."""

    def reap(self, tracked: Collection[int]) -> None:
        trees.reap(tracked)

    def anything_alive(self, spare: Collection[int]) -> bool:
        return bool(trees.descendants(os.getpid(), spare))

    def sweep(self, *, spare: Pids, tracked: Pids, groups: Collection[int], grace_s: float, now: float) -> Sweep:
        return Sweep(os.getpid(), spare=spare, tracked=tracked, groups=groups, grace_s=grace_s, now=now)


class ByMarks:
    """For a worker that adopts nobody (`--isolation groups`, and systems that know no subreaper): marks.py. Kept
    processes are spared all or none: those that a stop may not touch (a late one, which finds newer work) are all."""

    adopts = False

    def __init__(self, cookie: str) -> None:
        self._cookie = cookie
        self._cookie_of_kept = f"{cookie}.kept"
        self._marks = Marks(cookie, root=os.getpid())
        self._marks_of_kept = Marks(self._cookie_of_kept)

    def environment(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        return {**of_tools, COOKIE: with_cookie(of_tools.get(COOKIE, ""), self._cookie)}

    def environment_of_kept(self, of_tools: Mapping[str, str]) -> dict[str, str]:
        return {**of_tools, COOKIE: with_cookie(of_tools.get(COOKIE, ""), self._cookie_of_kept)}

    def started(self, pid: int) -> None:
        self._marks.started(pid)

    def kept_started(self, pid: int) -> None:
        self._marks_of_kept.started(pid)

    def reap(self, tracked: Collection[int]) -> None:
        """Nobody is adopted, and whoever starts a child waits for it."""

    def anything_alive(self, spare: Collection[int]) -> bool:
        look = self._look(spare)
        alive = [process for process in look.processes() if process.alive]  # to its end, which settles it
        return bool(alive) or not look.settled

    def sweep(self, *, spare: Pids, tracked: Pids, groups: Collection[int], grace_s: float, now: float) -> Sweep:
        return Sweep(
            os.getpid(),
            tracked=tracked,
            groups=groups,
            grace_s=grace_s,
            now=now,
            look=lambda: self._look(spare()),
        )

    def _look(self, spare: Collection[int]) -> MarkedLook | SparingLook:
        look = self._marks.look()
        return SparingLook(look, self._marks_of_kept) if spare else look
