"""The envelope around a public event, and its one-line JSON form."""

from collections.abc import Mapping

import msgspec

from haltline.protocol.events import AnyEvent
from haltline.protocol.ids import SessionId

LINE_VERSION = 1


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event as it was recorded: `seq` from 1, strictly rising per session, gaps allowed, equal to the journal's."""

    seq: int
    ts: str
    """RFC 3339, UTC, milliseconds."""
    session_id: SessionId
    run: int
    turn: int
    event: AnyEvent


_encoder = msgspec.json.Encoder()


def to_json(line: Line) -> bytes:
    """The line of `-o stream-json`, without its line end: envelope first, then the event's own fields."""
    body: Mapping[str, object] = msgspec.to_builtins(line.event)
    envelope: dict[str, object] = {
        "v": LINE_VERSION,
        "type": body["type"],
        "seq": line.seq,
        "ts": line.ts,
        "session_id": line.session_id,
        "run": line.run,
        "turn": line.turn,
    }
    return _encoder.encode({**envelope, **body})
