"""The receipt of a `cancel` or a `kill`: a line for people, an object for programs. Pure."""

import msgspec

from haltline.cli.result_words import stopped
from haltline.cli.tool_words import seconds
from haltline.protocol.client_messages import Receipt
from haltline.protocol.events import CancelReceipt
from haltline.protocol.ids import Role
from haltline.protocol.kinds import Rung


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """One object of `--json`; the times and the rung are null where nothing had to be stopped."""

    session_id: str | None
    """null: a supervisor without a session, which was ended before it could open one, or because it did not answer."""
    worker: Role | None = None
    """That worker alone."""
    already_stopped: bool = False
    supervisor_ended: bool = False
    """It did not answer: it was ended, with everything under it. `killed` then counts for all its sessions, and stands
    in the first. With `already_stopped` it had ended by itself, and `total_ms` is how long it took from then on that
    nothing of it was left."""
    no_answer: bool = False
    """Its supervisor did not answer in time: what has become of the session is not known."""
    stream_ms: float | None = None
    tools_ms: float | None = None
    total_ms: float | None = None
    rung: Rung | None = None
    killed: int = 0
    survivors: int = 0


def of(receipt: Receipt) -> Stopped:
    """What a supervisor said, for one session."""
    if receipt.cancel is None:
        return Stopped(session_id=receipt.session_id, worker=receipt.worker, already_stopped=True)
    return Stopped(
        session_id=receipt.session_id,
        worker=receipt.worker,
        stream_ms=receipt.cancel.stream_ms,
        tools_ms=receipt.cancel.tools_ms,
        total_ms=receipt.cancel.total_ms,
        rung=receipt.cancel.rung,
        killed=receipt.cancel.killed,
        survivors=receipt.cancel.survivors,
    )


def in_words(row: Stopped, done: str) -> str:
    """`abcdef01: stopped in 4 ms: stream closed, 0 processes ended by force, 0 left, rung ack`."""
    who = row.session_id or ("a supervisor that did not answer" if row.supervisor_ended else "what was about to begin")
    if row.worker is not None:
        who = f"{who}, {row.worker} worker"
    if row.no_answer:
        return f"{who}: no answer"
    if row.already_stopped and row.supervisor_ended and row.total_ms is not None:
        return f"{who}: ended with its supervisor, nothing left after {seconds(row.total_ms)}"
    if row.already_stopped or row.total_ms is None or row.rung is None:
        return f"{who}: already stopped"
    if row.supervisor_ended and row.session_id is not None:
        done = f"{done} with its supervisor, which did not answer,"
    receipt = CancelReceipt(
        stream_ms=row.stream_ms,
        tools_ms=row.tools_ms,
        total_ms=row.total_ms,
        rung=row.rung,
        killed=row.killed,
        survivors=row.survivors,
    )
    return f"{who}: {stopped(done, receipt)}, rung {row.rung}"
