"""The gateway's log: one JSON line for each thing that happened, written at once.

Rules:
1. A line is one `write` on an unbuffered descriptor, so that a reader who saw the effect can read the cause.
2. No key is ever written: an authorization value becomes "present".
"""

import os
import time
from datetime import UTC, datetime
from typing import Literal

import msgspec

SECRET_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "proxy-authorization", "cookie"})

What = Literal["request", "response", "piece", "end", "disconnect"]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Which request a line is about."""

    id: str
    """Unique in this server."""
    connection: int
    """Number of the TCP connection, from 1."""
    session: str
    scenario: str
    n: int
    """Number of the request in its session and scenario, from 1; 0 where no scenario was found."""


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    event: What
    mono: float
    """time.monotonic(), seconds: comparable between processes of one machine."""
    wall: str
    """RFC 3339, UTC, microseconds."""
    id: str
    connection: int
    session: str
    scenario: str
    n: int
    status: int | None
    """HTTP status of the response; None: not sent yet."""
    path: str | None = None
    headers: dict[str, str] | None = None
    body: msgspec.Raw | None = None
    """request: the body as JSON, or as a string if it was none."""
    index: int | None = None
    """piece: number in the response, from 0."""
    text: str | None = None
    """piece: what was sent."""
    reason: str | None = None
    """end: finished, hung up, reset, cut. disconnect: how the client left."""
    pieces: int | None = None
    """end, disconnect: how many pieces were sent before."""


class Log:
    """Writes lines to a file, which is begun anew; without a path, nowhere."""

    def __init__(self, path: str | None) -> None:
        self._fd = None
        if path is not None:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(
        self,
        event: What,
        origin: Origin,
        *,
        status: int | None = None,
        path: str | None = None,
        headers: tuple[tuple[str, str], ...] | None = None,
        body: bytes | None = None,
        index: int | None = None,
        text: str | None = None,
        reason: str | None = None,
        pieces: int | None = None,
    ) -> None:
        if self._fd is None:
            return
        line = Line(
            event=event,
            mono=time.monotonic(),
            wall=datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            id=origin.id,
            connection=origin.connection,
            session=origin.session,
            scenario=origin.scenario,
            n=origin.n,
            status=status,
            path=path,
            headers=None if headers is None else _without_secrets(headers),
            body=None if body is None else _one_line(body),
            index=index,
            text=text,
            reason=reason,
            pieces=pieces,
        )
        os.write(self._fd, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _without_secrets(headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    shown = {"authorization": "absent"}
    for name, value in headers:
        shown[name] = "present" if name in SECRET_HEADERS else value
    return shown


def _one_line(body: bytes) -> msgspec.Raw:
    """The body as JSON without line ends; a string of it where it is no JSON."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = body.decode("utf-8", "replace")
    return msgspec.Raw(msgspec.json.encode(value))
