"""What the gateway remembers of its sessions: how many requests came, and how large the first one was.

A session is the `x-session-id` of the request, else the model and the first user message. It belongs to no connection.
"""

import hashlib
from collections.abc import Mapping

import msgspec

from haltline.gateway.conversation import Request, Turn

SESSION_HEADER = "x-session-id"


def session_of(request: Request, headers: Mapping[str, str]) -> str:
    """The name of the session that a request belongs to."""
    named = headers.get(SESSION_HEADER)
    if named:
        return named
    digest = hashlib.sha256(f"{request.model}\n{request.first_user_text}".encode("utf-8", "replace")).hexdigest()
    return f"anonymous-{digest[:12]}"


class _Memory(msgspec.Struct):
    requests: int
    first_body_bytes: int


class Sessions:
    """Counts requests by session and scenario."""

    def __init__(self) -> None:
        self._memories: dict[tuple[str, str], _Memory] = {}

    def next_turn(self, session: str, scenario: str, request: Request) -> Turn:
        """Count one request, and say what its script decides from."""
        memory = self._memories.setdefault(
            (session, scenario), _Memory(requests=0, first_body_bytes=request.body_bytes)
        )
        memory.requests += 1
        return Turn(request=request, n=memory.requests, first_body_bytes=memory.first_body_bytes)
