"""The seam between one attempt and the wire format that it speaks. One adapter per Api (requirement D1)."""

from collections.abc import Mapping
from typing import Protocol

from haltline.protocol.ids import SessionId
from haltline.protocol.messages import StartAttempt
from haltline.worker.llm.happenings import AnyHappening, Summary
from haltline.worker.llm.sse import Event


class EventReader(Protocol):
    """Reads one response. Events are given in order; nothing is given after an ErrorReport, a Malformed or a
    Finished that was the last."""

    def take(self, event: Event) -> list[AnyHappening]: ...

    def whole(self, body: bytes) -> list[AnyHappening]:
        """A whole JSON body that came in place of a stream: an answer, an error, or Malformed."""
        ...

    def summary(self) -> Summary: ...


class Adapter(Protocol):
    @property
    def path(self) -> str:
        """Of the endpoint, under the base URL, with its leading slash."""
        ...

    def headers(self, session_id: SessionId, key: str | None) -> Mapping[str, str]: ...

    def encode(self, request: StartAttempt) -> bytes:
        """The request's body."""
        ...

    def reader(self) -> EventReader: ...
