"""The processes of a running `haltline run`, by role, and what is alive below this test."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from support import survivors
from support.command import Event, Running

Member = Literal["client", "guard", "supervisor", "zygote", "llm", "tool"]
MEMBERS: tuple[Member, ...] = ("client", "guard", "supervisor", "zygote", "llm", "tool")


def members(running: Running) -> dict[Member, int]:
    """Pids by role; waits until both workers are ready. Each of the first four is the only child of the one before."""
    return {**starters(running), "llm": _ready(running, "llm"), "tool": _ready(running, "tool")}


def starters(running: Running) -> dict[Member, int]:
    """Those who are there before any worker is."""
    guard = only_child(running.process.pid)
    supervisor = only_child(guard)
    return {
        "client": running.process.pid,
        "guard": guard,
        "supervisor": supervisor,
        "zygote": only_child(supervisor),
    }


def _ready(running: Running, role: str) -> int:
    def wanted(event: Event) -> bool:
        return (event["type"], event.get("state"), event.get("role")) == ("worker", "ready", role)

    return int(str(running.until(wanted)["pid"]))


def only_child(pid: int) -> int:
    """The pid of the one child that `pid` has."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def seconds_until_gone(since: float, within_s: float, but: Collection[survivors.Survivor] = ()) -> float:
    """How long after `since` (monotonic) nothing below this process was alive any more, `but` these.

    Seen twice in a row: who loses its parent during a look moves up to us, behind the look's back."""

    def look() -> list[survivors.Survivor]:
        return [one for one in survivors.descendants(os.getpid()) if one not in but]

    while left := look() or look():
        now = time.monotonic()
        assert now - since < within_s, f"alive {now - since:.1f} s later: {', '.join(map(str, left))}"
        survivors.settle(left[:1])
    return time.monotonic() - since
