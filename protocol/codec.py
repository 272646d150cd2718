"""Bytes to messages and back. The only place that meets untyped data from a peer.

Unknown tags and wrong shapes raise Undecodable; unknown fields are ignored (a newer peer may send more)."""

from typing import Generic, TypeVar

import msgspec

from haltline.protocol import client_messages, messages
from haltline.protocol.errors import Undecodable
from haltline.protocol.ids import PROTOCOL_VERSION

T = TypeVar("T")


class Codec(Generic[T]):
    """Encoder and decoder of one direction of one lane."""

    def __init__(self, union: object, lane: str) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(union)
        self._encoder = msgspec.msgpack.Encoder()
        self._lane = lane

    def encode(self, message: T) -> bytes:
        return self._encoder.encode(message)

    def decode(self, data: bytes | memoryview) -> T:
        """Raises Undecodable for anything but a message of this lane and protocol version."""
        try:
            message = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Undecodable(f"{self._lane}: {error}") from error
        version = getattr(message, "v", None)
        if version != PROTOCOL_VERSION:
            raise Undecodable(f"{self._lane}: protocol version {version}, this side speaks {PROTOCOL_VERSION}")
        return message


to_worker: Codec[messages.ToWorker] = Codec(messages.ToWorker, "mailbox to worker")
from_worker: Codec[messages.FromWorker] = Codec(messages.FromWorker, "mailbox from worker")
to_supervisor: Codec[client_messages.ToSupervisor] = Codec(client_messages.ToSupervisor, "client to supervisor")
to_client: Codec[client_messages.ToClient] = Codec(client_messages.ToClient, "supervisor to client")
