"""The envelope around a public event, and its one-line JSON form, both ways."""

from collections.abc import Mapping

import msgspec

from haltline.protocol.errors import Undecodable
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


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    ts: str
    session_id: SessionId
    run: int
    turn: int


_envelope = msgspec.json.Decoder(_Envelope)
_event: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def from_json(data: bytes) -> Line:
    """The inverse of to_json, for commands of ours that run `haltline run` themselves. Raises Undecodable."""
    try:
        envelope = _envelope.decode(data)
        event = _event.decode(data)
    except msgspec.DecodeError as error:
        raise Undecodable(f"a line of stream-json: {error}: {data[:200]!r}") from error
    return Line(
        seq=envelope.seq,
        ts=envelope.ts,
        session_id=envelope.session_id,
        run=envelope.run,
        turn=envelope.turn,
        event=event,
    )
