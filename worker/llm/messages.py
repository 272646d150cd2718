"""Anthropic messages."""

from collections.abc import Mapping

from haltline.protocol.ids import SessionId
from haltline.protocol.messages import StartAttempt
from haltline.worker.llm import messages_request
from haltline.worker.llm.adapter import EventReader
from haltline.worker.llm.messages_stream import MessagesReader

VERSION = "2023-06-01"
"""Of the format; every request names it."""


class MessagesAdapter:
    """See adapter.Adapter."""

    @property
    def path(self) -> str:
        return "/v1/messages"

    def headers(self, session_id: SessionId, key: str | None) -> Mapping[str, str]:
        headers = {"x-session-id": session_id, "anthropic-version": VERSION}
        return headers if key is None else {**headers, "x-api-key": key}

    def encode(self, request: StartAttempt) -> bytes:
        return messages_request.encode(request)

    def reader(self) -> EventReader:
        return MessagesReader()
