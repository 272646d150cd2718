"""Every number that a user may change, with unit, default and reason.

Each is a key of the configuration files (cli/config_tables.py); those of one run are options too. The exception is
`usd`: no price is built in, so no cost can be limited."""

from typing import Literal

import msgspec

from haltline.protocol.kinds import Api, ApprovalMode, IsolationWish


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Timers of one attempt, seconds (D4); 0 is off, in the worker and in what the supervisor waits for it."""

    connect_s: float = 10.0
    first_event_s: float = 120.0
    """Thinking models may take 100 s to their first token (R31)."""
    silence_s: float = 60.0
    """No byte at all; comments and pings feed it."""
    progress_s: float = 180.0
    """No model event; comments and pings do not feed it."""
    whole_s: float = 900.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Hard limits; 0 means none (I1)."""

    turns: int = 100
    seconds: float = 3600.0
    tokens: int = 2_000_000
    usd: float = 0.0


NO_LIMITS = Limits(turns=0, seconds=0.0, tokens=0)
"""Default of a session, as against a run."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long to wait between attempts of one turn (C4, C5)."""

    name: Literal["interactive", "patient"]
    base_ms: float
    factor: float
    cap_ms: float
    jitter: Literal["equal", "added"]
    """equal: uniform in [window/2, window]. added: window plus up to `jitter_share` of it."""
    jitter_share: float = 0.25
    attempts: int
    longest_wait_ms: float = 120_000.0
    """A longer wait is surfaced at once (C6)."""
    local_attempts: int = 3
    """Connection refused on loopback, no such host: at most two retries in any policy (C5)."""
    run_retries: int = 20
    """Retries of all turns of a run together (I4)."""


INTERACTIVE = RetryPolicy(name="interactive", base_ms=400.0, factor=2.0, cap_ms=8_000.0, jitter="equal", attempts=3)
PATIENT = RetryPolicy(name="patient", base_ms=2_000.0, factor=2.0, cap_ms=30_000.0, jitter="added", attempts=6)


class ToolLimits(msgspec.Struct, frozen=True, kw_only=True):
    timeout_s: float = 30.0
    """Absolute limit of one call (G5)."""
    max_timeout_s: float = 600.0
    """A call may ask for more than the default, up to this."""
    output_bytes: int = 32_768
    """Kept of a call's output, head and tail together; the rest is counted (G6)."""


STALLED_AFTER_S = 5.0
"""Silence of the model after which the user is told (D4)."""
DELTA_WINDOW_MS = 20.0
"""Deltas are gathered this long after the first, which goes at once; 0: off (design: 15 to 30)."""


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a session needs to know. Holds the name of the key's variable, never the key (J4)."""

    model: str
    api: Api = "chat"
    base_url: str
    key_variable: str | None = None
    """Environment variable that the LLM worker reads; None: requests carry no key."""
    max_output_tokens: int | None = None
    window_tokens: int = 0
    """The model's context window, input and output together; 0: not known until an error names it (E6)."""
    cwd: str
    approval_mode: ApprovalMode = "ask"
    interactive: bool = False
    """True: a person can answer questions on the client's terminal."""
    allowed_tools: tuple[str, ...] = ()
    """Tools that never ask."""
    retry: RetryPolicy = PATIENT
    isolation: IsolationWish = "auto"
    """What is wanted; the supervisor puts what the session gets in its place."""
    run_limits: Limits = Limits()
    session_limits: Limits = NO_LIMITS
    stream: StreamLimits = StreamLimits()
    tools: ToolLimits = ToolLimits()
    system_prompt: str = ""
    """Empty: the supervisor's own words (feedback.system_prompt)."""
    stalled_after_s: float = STALLED_AFTER_S
    delta_window_ms: float = DELTA_WINDOW_MS
    ephemeral: bool = False
    inject: str = ""
    """Scenario of the embedded gateway: a worker shows those of its faults that no gateway can. Else empty."""
    version: str
