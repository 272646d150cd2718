"""What every call has in common, whichever tool it is for."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from haltline.protocol.kinds import CallStatus, Changed
from haltline.protocol.messages import Outcome
from haltline.protocol.settings import ToolLimits
from haltline.worker.tool.background import Background
from haltline.worker.tool.tree import Tree
from haltline.worker.tool.workspace import Workspace


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """Where calls run: made once per worker, when it is configured."""

    loop: asyncio.AbstractEventLoop
    tree: Tree
    background: Background
    workspace: Workspace
    environment: dict[str, str]
    limits: ToolLimits
    threads: ThreadPoolExecutor
    output_came: Callable[[int], None]
    """Told of each piece that a tool printed, in bytes: progress for the heartbeat."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What one call was given along."""

    limit_s: float
    """Absolute, from its start; nothing that happens extends it (G5, R66)."""
    generation: int
    outside_allowed: bool
    started: Callable[[int | None], None]
    """Called once, with the number outside (outer_pids.py) of the process that does it, when it really runs."""


class Call(Protocol):
    """One call of one tool."""

    async def run(self) -> Outcome:
        """Do it; called once. Returns in the limit plus one grace, with nothing of it left alive.

        Raises Outside, with nothing done and nothing started, where its path leads out of the workspace."""
        ...

    def stop(self, grace_s: float) -> None:
        """The run was stopped: `run` is to return soon. The caller ends the tree right after this."""


class Stopwatch:
    """Time since a call began."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._started = loop.time()

    @property
    def seconds(self) -> float:
        return self._loop.time() - self._started

    def outcome(
        self, status: CallStatus, text: str, *, changed: Changed = "nothing", exit_code: int | None = None
    ) -> Outcome:
        return Outcome(status=status, changed=changed, exit_code=exit_code, text=text, ms=int(self.seconds * 1000))
