"""What a configuration file may hold: its tables and keys, as written. An absent key is None."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from haltline.protocol.kinds import Api, ApprovalMode

_Seconds = Annotated[float, Meta(gt=0)]
_Milliseconds = Annotated[float, Meta(gt=0, le=86_400_000)]
"""A day at most: longer is a slip of the unit."""
MOST: Final = 10**12
"""Of anything that is counted: more is a slip, and no message could carry it all."""
_Count = Annotated[int, Meta(ge=0, le=MOST)]
_Positive = Annotated[int, Meta(ge=1, le=MOST)]


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables."""


class LimitsTable(Table, frozen=True):
    """Of one run, or of a whole session; 0 means none."""

    turns: _Count | None = None
    seconds: Annotated[float, Meta(ge=0)] | None = None
    tokens: _Count | None = None


class TimeoutsTable(Table, frozen=True):
    """Seconds, of one request."""

    connect: _Seconds | None = None
    first_event: _Seconds | None = None
    idle: _Seconds | None = None
    progress: _Seconds | None = None
    request: _Seconds | None = None


class BackoffTable(Table, frozen=True):
    """Laid over the policy that `retry` names (protocol/settings.py, RetryPolicy)."""

    base_ms: _Milliseconds | None = None
    factor: Annotated[float, Meta(ge=1, le=1000)] | None = None
    """1: the same wait each time. 1000, sixty-four times multiplied, is still a number."""
    cap_ms: _Milliseconds | None = None
    jitter: Literal["equal", "added"] | None = None
    jitter_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    attempts: _Positive | None = None
    """Of one turn, the first included; 1: no retry."""
    longest_wait_ms: _Milliseconds | None = None
    local_attempts: _Positive | None = None
    run_retries: _Count | None = None


class ToolsTable(Table, frozen=True):
    allowed: tuple[str, ...] | None = None
    timeout: _Seconds | None = None
    max_timeout: _Seconds | None = None
    output_bytes: Annotated[int, Meta(ge=1024, le=1_048_576)] | None = None


class ConfigFile(Table, frozen=True):
    """One file, as written."""

    model: Annotated[str, Meta(min_length=1)] | None = None
    base_url: str | None = None
    api: Api | None = None
    key_variable: Annotated[str, Meta(min_length=1)] | None = None
    retry: Literal["interactive", "patient"] | None = None
    approval_mode: ApprovalMode | None = None
    max_output_tokens: _Positive | None = None
    stalled_after_s: _Seconds | None = None
    delta_window_ms: Annotated[float, Meta(ge=0, le=1000)] | None = None
    """0: every delta at once."""
    limits: LimitsTable = LimitsTable()
    session_limits: LimitsTable = LimitsTable()
    backoff: BackoffTable = BackoffTable()
    timeouts: TimeoutsTable = TimeoutsTable()
    tools: ToolsTable = ToolsTable()
