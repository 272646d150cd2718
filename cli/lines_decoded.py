"""The lines of `-o stream-json` read back, for commands of ours that run `haltline run` themselves. Pure."""

import msgspec

from haltline.protocol.errors import Undecodable
from haltline.protocol.events import AnyEvent
from haltline.protocol.ids import SessionId
from haltline.protocol.lines import Line


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    ts: str
    session_id: SessionId
    run: int
    turn: int


_envelope = msgspec.json.Decoder(_Envelope)
_event: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def from_json(data: bytes) -> Line:
    """The inverse of lines.to_json. Raises Undecodable."""
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
