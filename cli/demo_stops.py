"""What the receipt says of the demo's three stops, from what was seen of each. Pure.

The bounds are those that haltline promises: an acknowledgement within 2.0 s (F4); what obeys is gone within 1 s (F6);
a worker that does not answer, or a tree that ignores SIGTERM, within 2.3 s.
"""

from typing import Final

import msgspec

from haltline.cli.demo_receipt import Check, fact, within
from haltline.cli.demo_repair import ended_as
from haltline.cli.demo_run import RunSeen
from haltline.protocol import exits
from haltline.protocol.ids import ROLES, Role
from haltline.protocol.kinds import Rung

ACKNOWLEDGED_MS: Final = 2000.0
OBEYED_MS: Final = 1000.0
FORCED_MS: Final = 2300.0
PIECES: Final = 3
"""Of text, shown before the stream is stopped."""


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """Of one worker."""

    told_ms: float
    """Until it was told. The workers' are told in their order, so one that does not come holds up the next."""
    own_ms: float
    """As the supervisor measured it."""


class StopSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One stop, seen from outside. Milliseconds from the signal to the run on; None: it never happened."""

    run: RunSeen
    pieces: int
    """Of text that were shown before."""
    tree: int
    """Processes below the tool worker when the signal was sent."""
    alive: int
    """Processes of the run then, these included."""
    ended: int
    """Of `alive`, those that were seen to end."""
    acknowledged: dict[Role, Acknowledged]
    closed_ms: float | None
    """Until the server saw its client close the stream."""
    gone_ms: float | None
    """Until the last of `alive` had ended."""


def of_stream(seen: StopSeen) -> tuple[Check, ...]:
    """Text was on its way, everything obeys."""
    return (
        fact("text was on its way", f"{seen.pieces} pieces", seen.pieces >= PIECES),
        _both_acknowledged(seen),
        within("the server saw the stream closed", seen.closed_ms, OBEYED_MS),
        *_ended(seen, OBEYED_MS, ("ack",)),
    )


def of_tree(seen: StopSeen, planted: int) -> tuple[Check, ...]:
    """`planted`: how many processes the tree has at least."""
    return (
        fact("processes of the tool", seen.tree, seen.tree >= planted),
        _both_acknowledged(seen),
        *_ended(seen, FORCED_MS, ("kill", "sweep", "pidns")),
    )


def of_hung(seen: StopSeen) -> tuple[Check, ...]:
    """The LLM worker was stopped by SIGSTOP in the middle of a stream."""
    mute = "llm" not in seen.acknowledged
    other = seen.acknowledged.get("tool")
    return (
        fact("text was on its way", f"{seen.pieces} pieces", seen.pieces >= PIECES),
        fact("the LLM worker acknowledged", "never" if mute else "although it was stopped", mute),
        within("the tool worker did, it says", None if other is None else other.own_ms, ACKNOWLEDGED_MS),
        within("the server saw the stream closed", seen.closed_ms, FORCED_MS),
        *_ended(seen, FORCED_MS, ("worker_kill",)),
    )


def _both_acknowledged(seen: StopSeen) -> Check:
    told = [seen.acknowledged[role].told_ms for role in ROLES if role in seen.acknowledged]
    return within("both workers acknowledged", max(told) if len(told) == len(ROLES) else None, ACKNOWLEDGED_MS)


def _ended(seen: StopSeen, bound_ms: float, rungs: tuple[Rung, ...]) -> tuple[Check, ...]:
    result = seen.run.result
    receipt = None if result is None else result.cancel
    cancelled = result is not None and result.reason == "cancelled" and seen.run.exit_code == exits.INTERRUPTED
    return (
        within("nothing of the run was alive", seen.gone_ms, bound_ms),
        fact("processes that ended", f"{seen.ended} of {seen.alive}", 0 < seen.alive == seen.ended),
        fact("rung", "none" if receipt is None else receipt.rung, receipt is not None and receipt.rung in rungs),
        fact("the run ended", ended_as(seen.run), cancelled),
        fact("survivors", seen.run.left, seen.run.left == 0),
    )
