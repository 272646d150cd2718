"""OpenAI responses."""

from collections.abc import Mapping

from haltline.protocol.ids import SessionId
from haltline.protocol.messages import StartAttempt
from haltline.worker.llm import responses_request
from haltline.worker.llm.adapter import EventReader
from haltline.worker.llm.responses_stream import ResponsesReader


class ResponsesAdapter:
    """See adapter.Adapter."""

    @property
    def path(self) -> str:
        return "/responses"

    def headers(self, session_id: SessionId, key: str | None) -> Mapping[str, str]:
        headers = {"x-session-id": session_id}
        return headers if key is None else {**headers, "authorization": f"Bearer {key}"}

    def encode(self, request: StartAttempt) -> bytes:
        return responses_request.encode(request)

    def reader(self) -> EventReader:
        return ResponsesReader()
