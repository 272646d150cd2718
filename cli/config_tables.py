"""What a configuration file may hold: its tables and keys, as written. An absent key is None."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from haltline.protocol.kinds import Api, ApprovalMode, IsolationWish

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

    turns: Annotated[_Count | None, Meta(description="Model responses.")] = None
    seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Active time in seconds; waiting for a person does not count."),
    ] = None
    tokens: Annotated[_Count | None, Meta(description="Tokens of all requests and answers together.")] = None


class TimeoutsTable(Table, frozen=True):
    """Seconds, of one request."""

    connect: Annotated[_Seconds | None, Meta(description="Connecting to the server.")] = None
    first_event: Annotated[_Seconds | None, Meta(description="Until the first event of the model.")] = None
    idle: Annotated[_Seconds | None, Meta(description="Without a byte; comments and pings count as bytes.")] = None
    progress: Annotated[_Seconds | None, Meta(description="Without an event of the model.")] = None
    request: Annotated[_Seconds | None, Meta(description="The whole request.")] = None


class BackoffTable(Table, frozen=True):
    """How failed requests are repeated; laid over the policy that `retry` names."""

    base_ms: Annotated[_Milliseconds | None, Meta(description="The first wait.")] = None
    factor: Annotated[
        Annotated[float, Meta(ge=1, le=1000)] | None,  # 1000, sixty-four times multiplied, is still a number
        Meta(description="Each wait is that many times the one before; 1: always the same."),
    ] = None
    cap_ms: Annotated[_Milliseconds | None, Meta(description="The longest wait of our own choice.")] = None
    jitter: Annotated[
        Literal["equal", "added"] | None,
        Meta(description="equal: a random wait between half and all of it; added: up to `jitter_share` of it more."),
    ] = None
    jitter_share: Annotated[Annotated[float, Meta(ge=0, le=1)] | None, Meta(description='For `jitter = "added"`.')] = (
        None
    )
    attempts: Annotated[
        _Positive | None, Meta(description="Of one turn, the first included; 1: no request is repeated.")
    ] = None
    longest_wait_ms: Annotated[
        _Milliseconds | None, Meta(description="A server that asks for more ends the run instead.")
    ] = None
    local_attempts: Annotated[
        _Positive | None, Meta(description="As `attempts`, where nothing listens on this machine or no such host is.")
    ] = None
    run_retries: Annotated[_Count | None, Meta(description="Repeated requests of one run in all.")] = None


class ToolsTable(Table, frozen=True):
    """What tools may do."""

    allowed: Annotated[tuple[str, ...] | None, Meta(description="Tools that never ask.")] = None
    timeout: Annotated[_Seconds | None, Meta(description="Seconds of one call.")] = None
    max_timeout: Annotated[_Seconds | None, Meta(description="Seconds that the model may ask for at most.")] = None
    output_bytes: Annotated[
        Annotated[int, Meta(ge=1024, le=1_048_576)] | None,
        Meta(description="Kept of a call's output, half of it from its end; the rest is counted."),
    ] = None


class ConfigFile(Table, frozen=True):
    """One file, as written."""

    model: Annotated[
        Annotated[str, Meta(min_length=1)] | None, Meta(description="`[PROVIDER/]NAME`, as `-m` takes it.")
    ] = None
    base_url: Annotated[str | None, Meta(description="The server; `/v1` included, but for `messages`.")] = None
    api: Annotated[
        Api | None,
        Meta(description="Wire format of the server that `base_url` or a model without a provider's prefix names."),
    ] = None
    key_variable: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Name of the environment variable that holds the key; it ends in `_API_KEY`."),
    ] = None
    retry: Annotated[
        Literal["interactive", "patient"] | None, Meta(description="How patiently requests are repeated.")
    ] = None
    approval_mode: Annotated[ApprovalMode | None, Meta(description="What asks before it runs.")] = None
    isolation: Annotated[
        IsolationWish | None,
        Meta(
            description="How what tools start is held. `pidns`: in a PID namespace of its own; `subreaper`: below its "
            "worker; `groups`: in groups with a cookie, as on systems without subreapers; `auto`: `pidns` where it can "
            "be had and ssh works in it, else `subreaper`. Not in a workspace's file."
        ),
    ] = None
    max_output_tokens: Annotated[_Positive | None, Meta(description="Of one response.")] = None
    window_tokens: Annotated[
        _Positive | None,
        Meta(
            description="The model's context window, input and output together. Where it is known the conversation is "
            "made shorter before it is full, not after the server has refused it."
        ),
    ] = None
    stalled_after_s: Annotated[_Seconds | None, Meta(description="Silence of the model that is told to you.")] = None
    delta_window_ms: Annotated[
        Annotated[float, Meta(ge=0, le=1000)] | None,
        Meta(description="Pieces of text are gathered this long; 0: each is shown at once."),
    ] = None
    limits: Annotated[LimitsTable, Meta(description="Of one run; 0: none.")] = LimitsTable()
    session_limits: Annotated[LimitsTable, Meta(description="Of a whole session, over its runs; 0: none.")] = (
        LimitsTable()
    )
    backoff: BackoffTable = BackoffTable()
    timeouts: TimeoutsTable = TimeoutsTable()
    tools: ToolsTable = ToolsTable()
