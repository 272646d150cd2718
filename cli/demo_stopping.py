"""The demo's three stops: each a run of its own that gets one SIGINT, as from Ctrl+C, and is watched until it is gone.

Nothing that a run says of its own stop is taken for it but the rung. Streams are seen by the gateway's log; processes
by a walk over /proc before the signal and by a pidfd of each; acknowledgements by the moment at which they are told.
"""

import os
import shlex
import signal
import time
from collections.abc import Callable
from typing import Final

from haltline.cli import setting_up, witness
from haltline.cli.demo_receipt import Part
from haltline.cli.demo_run import ShownRun, shown
from haltline.cli.demo_stops import PIECES, Acknowledged, StopSeen, of_hung, of_stream, of_tree
from haltline.cli.gateway_process import GatewayProcess
from haltline.cli.outlet import Outlet
from haltline.cli.own_command import as_typed
from haltline.cli.pieces import note
from haltline.gateway.nasty_tree import PLANTED
from haltline.protocol import processes, trees
from haltline.protocol.events import AnyEvent, CancelStep, Message, ToolStart, Worker
from haltline.protocol.ids import Role

PREPARED_WITHIN_S: Final = 20.0
"""Until text flows or a tree stands, which takes well under a second each."""
STEADY_LOOKS: Final = 5
"""A tree that has had as many processes in so many looks has been planted."""
SERVER_SAW_WITHIN_S: Final = 1.0
"""After the end of the run, for the line in the server's log; about a millisecond."""
_LOOK_S: Final = 0.01
"""Between two looks at what announces itself in no other way."""


class Stops:
    """`folder`: the workspace of the runs."""

    def __init__(self, gateway: GatewayProcess, folder: str, outlet: Outlet) -> None:
        self._gateway = gateway
        self._folder = folder
        self._outlet = outlet

    def all(self) -> tuple[Part, ...]:
        return (
            Part("a live stream, stopped", of_stream(self._stop("slow", _flows))),
            Part(
                "a tree of processes that does not want to die, stopped",
                of_tree(self._stop("tool_tree", _stands), PLANTED),
            ),
            Part("a worker that does not answer, stopped", of_hung(self._stop("slow", _hangs))),
        )

    def _stop(self, scenario: str, prepare: Callable[[ShownRun], None]) -> StopSeen:
        arguments = ["-y", "-m", scenario, "--base-url", self._gateway.url, "-C", self._folder, "Go on."]
        self._outlet.put((note(f"{shlex.join([as_typed(), 'run', *arguments])}   # then Ctrl+C"),))
        view = setting_up.view("text", os.environ)
        with shown(arguments, view, self._outlet, besides=self._gateway.pid) as run:
            prepare(run)
            seen = self._watched(run)
        trees.sweep(os.getpid(), spare=lambda: (self._gateway.pid,), grace_s=0.0)  # what was left was counted
        return seen

    def _watched(self, run: ShownRun) -> StopSeen:
        tool = _pid(run, "tool")
        tree = len(witness.below(tool)) if tool is not None else 0
        pids = run.watch(run.alive())
        pieces = sum(_is_text(one.line.event) for one in run.told)
        sent_at = run.signal(signal.SIGINT)
        seen = run.end()
        ended_at = [run.ended_at[pid] for pid in pids if pid in run.ended_at]
        closed_at = None
        if pieces:
            closed_at = self._gateway.left_at(lambda line: line.session == run.session_id, SERVER_SAW_WITHIN_S)
        return StopSeen(
            run=seen,
            pieces=pieces,
            tree=tree,
            alive=len(pids),
            ended=len(ended_at),
            acknowledged=_acknowledged(run, sent_at),
            closed_ms=None if closed_at is None else (closed_at - sent_at) * 1000,
            gone_ms=(max(ended_at) - sent_at) * 1000 if ended_at and len(ended_at) == len(pids) else None,
        )


def _flows(run: ShownRun) -> None:
    """Until text has come."""
    run.until(_is_text, PREPARED_WITHIN_S, PIECES)


def _stands(run: ShownRun) -> None:
    """Until the tool has planted its tree, which announces itself in no other way than by being there."""
    if not run.until(lambda event: isinstance(event, ToolStart), PREPARED_WITHIN_S):
        return
    tool = _pid(run, "tool")
    until = time.monotonic() + PREPARED_WITHIN_S
    count = steady = 0
    while tool is not None and steady < STEADY_LOOKS and time.monotonic() < until:
        run.show_for(_LOOK_S)
        before, count = count, len(witness.below(tool))
        steady = steady + 1 if PLANTED <= count == before else 0


def _hangs(run: ShownRun) -> None:
    """Until text has come and its worker was stopped."""
    _flows(run)
    pid = _pid(run, "llm")
    identity = None if pid is None else processes.identify(pid)
    if identity is not None and processes.signal_identity(identity, signal.SIGSTOP):
        while (process := processes.read_process(identity.pid)) is not None and not process.stopped:
            run.show_for(_LOOK_S)


def _acknowledged(run: ShownRun, sent_at: float) -> dict[Role, Acknowledged]:
    found: dict[Role, Acknowledged] = {}
    for one in run.told:
        match one.line.event:
            case CancelStep(phase="acknowledged", role="llm" | "tool" as role, ms=float() as ms):
                found[role] = Acknowledged(told_ms=(one.at - sent_at) * 1000, own_ms=ms)
            case _:
                pass
    return found


def _pid(run: ShownRun, role: Role) -> int | None:
    """Of the worker, as the run told it."""
    events = [one.line.event for one in run.told]
    pids = [one.pid for one in events if isinstance(one, Worker) and (one.role, one.state) == (role, "ready")]
    return pids[-1] if pids else None


def _is_text(event: AnyEvent) -> bool:
    return isinstance(event, Message) and event.role == "assistant" and event.delta
