"""One cell of the kill matrix: members of a run's chain are signalled in one state of the run, and nobody helps.

    python -m support.kill_cell STATE MEMBER:SIGNAL [MEMBER:SIGNAL]

A program, because each cell is a subreaper of its own: what it started and what became an orphan is below it and below
nobody else, so cells can be tried side by side. Says what came of it as one line of JSON.

1. KILL and SEGV are deaths. Nothing is done for the run after them where the death ends it; where it goes on, a person
   presses Ctrl+C.
2. STOP is no death: whoever is stopped may be continued (a suspended machine), so nothing happens until the person
   presses Ctrl+C. A stopped client, which cannot see that, is continued then, as by `fg`.
3. Whether nothing is alive is seen by a walk of /proc that shares no code with the product.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Literal, get_args

import msgspec
from support import survivors
from support.chain import Member, members, seconds_until_gone, starters
from support.command import WITHIN_S, Ended, Event, Running

from haltline.gateway.scenarios import LONG_TURNS
from haltline.protocol import times

State = Literal["starting", "before_text", "text", "retry_wait", "question", "tool", "compacting"]
STATES: tuple[State, ...] = get_args(State)
Signal = Literal["KILL", "STOP", "SEGV"]
SIGNALS: tuple[Signal, ...] = get_args(Signal)
SLACK = 3
"""Times that a requirement states are asserted at three times their value."""


class Hit(msgspec.Struct, frozen=True, order=True):
    member: Member
    signal: Signal

    def __str__(self) -> str:
        return f"{self.member}:{self.signal}"


class Cell(msgspec.Struct, frozen=True, order=True):
    state: State
    hits: tuple[Hit, ...]

    def __str__(self) -> str:
        return f"{self.state} {' '.join(map(str, self.hits))}"

    def dead(self) -> set[Member]:
        return {hit.member for hit in self.hits if hit.signal != "STOP"}

    def stopped(self) -> set[Member]:
        return {hit.member for hit in self.hits if hit.signal == "STOP"}


class Said(msgspec.Struct, frozen=True):
    """How the command ended; the reason is None where nobody was left to give one."""

    exit_code: int
    reason: str | None = None
    kind: str | None = None
    calls: tuple[str, ...] = ()
    """The statuses of tool results."""


class Outcome(msgspec.Struct, frozen=True):
    said: Said
    gone_s: float
    """From the last signal, or the key, to nothing alive."""


class _Way(msgspec.Struct, frozen=True):
    """How a run is brought into a state."""

    arguments: tuple[str, ...]
    reached: Callable[[Event], bool]
    worker: Member | None = None
    """Who is at work in it."""
    terminal: bool = False


def _is(kind: str, **fields: object) -> Callable[[Event], bool]:
    return lambda event: event["type"] == kind and all(event.get(name) == value for name, value in fields.items())


_WAYS: dict[State, _Way] = {
    "starting": _Way(("demo/slow",), _is("init")),
    "before_text": _Way(("demo/hang_first", "--retry", "interactive"), _is("worker", role="llm", state="ready"), "llm"),
    "text": _Way(("demo/slow",), _is("message", role="assistant", delta=True), "llm"),
    "retry_wait": _Way(("demo/overloaded", "--retry", "patient"), _is("retry")),
    "question": _Way(("demo/tool_tree",), _is("approval", answer=None), terminal=True),
    "compacting": _Way(("demo/small_window_slow",), _is("error", handling="compact"), "llm"),
    "tool": _Way(("demo/tool_tree", "-y"), _is("tool_start"), "tool"),
}


def ends_by_itself(cell: Cell) -> bool:
    """Whether nobody has to press a key: an end of the chain is dead, or the work that was going on is lost for good.
    A stopped client or supervisor cannot say so, and a stopped zygote has no part in that."""
    if cell.stopped() & {"client", "supervisor"}:
        return False
    if {"client", "supervisor"} & cell.dead():
        return True
    return cell.state in ("text", "tool") and _WAYS[cell.state].worker in cell.dead()


def expected(cell: Cell) -> frozenset[Said]:
    """What the command may say; more than one where the moment decides."""
    dead, stopped = cell.dead(), cell.stopped()
    if "client" in dead:
        return frozenset(Said(-getattr(signal, f"SIG{hit.signal}")) for hit in cell.hits if hit.member == "client")
    lost = Said(79, "worker_failed", calls=_before(cell))
    if "supervisor" in dead:
        return frozenset({lost})
    if "supervisor" in stopped:
        return frozenset({lost, *(_by_key(cell) if "client" in stopped else ())})
    if ends_by_itself(cell):
        if cell.state == "text":
            return frozenset({Said(76, "failed", "stream_truncated")})
        return frozenset({Said(0, "completed", calls=("outcome_unknown",))})
    if cell.state == "starting" and "zygote" in dead:  # before it had a spare
        return frozenset({lost, *_by_key(cell)})
    return _by_key(cell)


def _before(cell: Cell) -> tuple[str, ...]:
    """The results of the turns that came before the state."""
    return ("done",) * LONG_TURNS if cell.state == "compacting" else ()


def _by_key(cell: Cell) -> frozenset[Said]:
    """Stopped by the person. What the open call is told depends on who ended its tree."""
    results = {
        "tool": (("cancelled_killed",), ("outcome_unknown",)),
        "question": (("cancelled_not_started",),),
        "compacting": (_before(cell),),
    }
    endings = {Said(130, "cancelled", calls=statuses) for statuses in results.get(cell.state, ())}
    return frozenset(endings or {Said(130, "cancelled")})


def bound_s(cell: Cell) -> float:
    """Until nothing is alive: G2's for deaths; with somebody stopped, what the one who waits for him waits."""
    stopped = cell.stopped()
    whole = times.DEATH_S
    if stopped & {"llm", "tool", "zygote"}:
        whole += times.ACK_S + times.gone_s()
    if "supervisor" in stopped:
        whole += times.stop_answered_s()
    if stopped & {"guard", "supervisor", "zygote"}:
        whole += times.guard_left_s()
    return whole


def try_cell(cell: Cell) -> Outcome:
    """Raises AssertionError where it does not come as far, or something is alive too long."""
    way = _WAYS[cell.state]
    running = Running(["run", "-m", *way.arguments, "--json", "hi"], terminal=way.terminal)
    running.until(way.reached)
    pids = starters(running) if cell.state == "starting" else members(running)
    for hit in cell.hits:
        with contextlib.suppress(ProcessLookupError):  # the first death took the second with it before we came to that
            os.kill(pids[hit.member], getattr(signal, f"SIG{hit.signal}"))
    since = time.monotonic()
    if not ends_by_itself(cell):
        running.process.send_signal(signal.SIGINT)
        if "client" in cell.stopped():
            running.process.send_signal(signal.SIGCONT)
    within_s = max(WITHIN_S, bound_s(cell) * SLACK)
    ended = running.end(within_s)
    if ended.exit_code > 0 and cell.state == "text":  # what was shown is kept (A6)
        assert ended.text == ended.result["text"] != ""
    if _concludes(cell):  # the model answers once more, in its own time
        since = time.monotonic()
    gone_s = seconds_until_gone(since, bound_s(cell) * SLACK)
    return Outcome(said=_said(ended), gone_s=gone_s)


def _concludes(cell: Cell) -> bool:
    return ends_by_itself(cell) and not {"client", "supervisor"} & cell.dead()


def _said(ended: Ended) -> Said:
    if ended.exit_code < 0:
        return Said(ended.exit_code)
    result = ended.result
    kind = None if result["kind"] is None else str(result["kind"])
    calls = tuple(str(event["status"]) for event in ended.of("tool_result"))
    return Said(ended.exit_code, str(result["reason"]), kind, calls)


def parsed(words: list[str]) -> Cell:
    state, *hits = words
    return Cell(
        msgspec.convert(state, State),
        tuple(msgspec.convert(dict(zip(("member", "signal"), hit.split(":"), strict=True)), Hit) for hit in hits),
    )


def main() -> None:
    survivors.become_subreaper()
    with tempfile.TemporaryDirectory(prefix="hl-", dir="/tmp") as home:
        os.environ["HALTLINE_HOME"] = home
        cell = parsed(sys.argv[1:])
        try:
            outcome = try_cell(cell)
        finally:
            survivors.end(lambda: survivors.descendants(os.getpid()))
        print(msgspec.json.encode(outcome).decode())


if __name__ == "__main__":
    main()
