"""Failed attempts as an LLM worker would report them, for tests of what the supervisor makes of them."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import msgspec

from haltline.protocol.ids import SessionId
from haltline.protocol.kinds import Api, Kind, Phase, StreamTimer, Subkind
from haltline.protocol.messages import AttemptFailed

ERRORS = Path(__file__).resolve().parent.parent / "wire" / "data" / "errors.jsonl"

NO_FUTURE_MOMENT_S = 4_102_444_800.0
"""The year 2100: the clock of samples that state none, so that no date in them lies ahead."""

_EXCEPTION = re.compile(r"[A-Z]\w*(?:Error|Timeout): ?")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One row of errors.jsonl, what it holds and what is expected of it."""

    id: str
    provider: str
    api: Api | str
    http_status: int | None
    headers: dict[str, str]
    body: str
    in_stream: bool
    kind: Kind | str
    subkind: Subkind | None = None
    retryable: bool
    retry_after_ms: int | None
    now: float | str | None = None
    near_miss: bool
    also_ok: tuple[Kind, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.kind, *self.also_ok)

    @property
    def wall_s(self) -> float:
        match self.now:
            case None:
                return NO_FUTURE_MOMENT_S
            case str():
                return datetime.fromisoformat(self.now).timestamp()
            case _:
                return self.now

    @property
    def reported(self) -> AttemptFailed:
        """As the worker reports it: an exception's text as an exception, everything else as an answer's body."""
        if self.provider == "client" and _EXCEPTION.match(self.body):
            phase: Phase = "connect"
            if self.in_stream:
                phase = "body"
            elif self.body.startswith(("Read", "Write")):
                phase = "headers"
            return failed(phase=phase, status=self.http_status, exception=self.body)
        return failed(
            phase="body" if self.in_stream else "headers",
            status=self.http_status,
            headers=self.headers,
            body=self.body,
            in_stream=self.in_stream,
        )


def samples() -> tuple[Sample, ...]:
    """All rows that are failures. The one good answer among them never is an AttemptFailed."""
    rows = (msgspec.convert(json.loads(line), Sample) for line in ERRORS.read_text(encoding="utf-8").splitlines())
    return tuple(row for row in rows if row.kind != "none")


def failed(
    *,
    phase: Phase = "headers",
    status: int | None = None,
    headers: dict[str, str] | None = None,
    body: str = "",
    in_stream: bool = False,
    exception: str | None = None,
    timer: StreamTimer | None = None,
    truncated: bool = False,
    malformed: str | None = None,
) -> AttemptFailed:
    """An AttemptFailed of some session."""
    return AttemptFailed(
        session_id=SessionId("0a1b2c3d"),
        run=1,
        turn=1,
        generation=1,
        attempt=1,
        phase=phase,
        status=status,
        headers=headers or {},
        body=body,
        in_stream=in_stream,
        exception=exception,
        timer=timer,
        truncated=truncated,
        malformed=malformed,
    )
