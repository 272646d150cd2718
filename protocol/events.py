"""Events that people and programs see: one JSON object per line of `-o stream-json`, one row each in the journal.

The contract of this module is public: fields are added, never renamed. Absent is null. The envelope
(`v`, `type`, `seq`, `ts`, `session_id`, `run`, `turn`) is put around the event by protocol/lines.py.
"""

from typing import Literal

import msgspec

from haltline.protocol.conversation import Usage
from haltline.protocol.ids import CallId, Role
from haltline.protocol.kinds import (
    Api,
    ApprovalMode,
    CallStatus,
    CancelBy,
    Changed,
    Detector,
    Handling,
    Kind,
    LimitName,
    Phase,
    Reason,
    Rung,
    Subkind,
    Trigger,
)
from haltline.protocol.settings import Limits


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of all public events."""


class Init(Event, tag="init", frozen=True, kw_only=True):
    """First line of a session."""

    model: str
    api: Api
    cwd: str
    approval_mode: ApprovalMode
    retry: str
    isolation: str
    limits: Limits
    version: str


class Message(Event, tag="message", frozen=True, kw_only=True):
    """User: the prompt once, delta false. Assistant: deltas, then the whole once with delta false."""

    role: Literal["user", "assistant"]
    text: str
    delta: bool = False
    partial: bool = False


class Reasoning(Event, tag="reasoning", frozen=True, kw_only=True):
    text: str
    delta: bool = False
    partial: bool = False
    role: Literal["assistant"] = "assistant"


class ToolUse(Event, tag="tool_use", frozen=True, kw_only=True):
    """Once per call, after the response ended, well or by length."""

    call_id: CallId
    name: str
    arguments_raw: str


class ToolStart(Event, tag="tool_start", frozen=True, kw_only=True):
    """Only when it really starts. `pid`: as this machine calls it, also where the tool itself sees another number."""

    call_id: CallId
    pid: int | None


class ToolResult(Event, tag="tool_result", frozen=True, kw_only=True):
    """Exactly one per tool_use, before the next request or `result`. `ok` only for done with exit code 0."""

    call_id: CallId
    ok: bool
    status: CallStatus
    changed: Changed
    exit_code: int | None
    text: str
    ms: int


class Error(Event, tag="error", frozen=True, kw_only=True):
    """One per failed attempt. A cancel is no error."""

    kind: Kind
    subkind: Subkind | None
    phase: Phase
    emitted: int
    provider_status: int | None
    message: str
    retryable: bool
    handling: Handling


class Retry(Event, tag="retry", frozen=True, kw_only=True):
    """After its error: `attempt` is the one that follows, `of` the attempts allowed in all."""

    attempt: int
    of: int
    wait_ms: int
    kind: Kind
    message: str


class Compaction(Event, tag="compaction", frozen=True, kw_only=True):
    """The conversation was made shorter, or could not be by a tenth. Tokens of the next request, measured the same way
    before and after."""

    trigger: Trigger
    before_tokens: int
    after_tokens: int
    ok: bool


class Continuation(Event, tag="continuation", frozen=True, kw_only=True):
    count: int
    of: int


class Loop(Event, tag="loop", frozen=True, kw_only=True):
    detector: Detector
    count: int
    action: Literal["feedback", "ask", "deduct", "stop"]


class Budget(Event, tag="budget", frozen=True, kw_only=True):
    which: LimitName
    used: float
    allowed: float
    level: Literal["warning", "tripped"]


class Approval(Event, tag="approval", frozen=True, kw_only=True):
    """A question (`answer` null) and later its answer (same call_id, `answer` and `by` set)."""

    call_id: CallId
    question: str
    answer: str | None = None
    by: str | None = None


WorkerState = Literal["starting", "ready", "stalled", "killed", "exited", "replaced"]
"""replaced: a new worker is being started in the place of one that was lost; ready follows."""


class Worker(Event, tag="worker", frozen=True, kw_only=True):
    role: Role
    pid: int | None
    state: WorkerState
    reason: str | None = None
    silent_ms: int | None = None


class CancelStep(Event, tag="cancel", frozen=True, kw_only=True):
    """`requested` {by}; then per worker `acknowledged` and `done`."""

    phase: Literal["requested", "acknowledged", "done"]
    by: CancelBy | None = None
    role: Role | None = None
    pid: int | None = None
    ms: float | None = None
    rung: Rung | None = None
    killed: int | None = None
    survivors: int | None = None


class LimitTripped(msgspec.Struct, frozen=True, kw_only=True):
    which: LimitName
    allowed: float
    used: float


class CancelReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """How a stop went. Milliseconds from the request, measured in the supervisor; null: nothing of the kind was
    open."""

    stream_ms: float | None
    tools_ms: float | None
    total_ms: float
    rung: Rung
    killed: int
    survivors: int


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Every way back has its own counter (I4); none is ever lowered."""

    transport_retry: int = 0
    empty_response: int = 0
    continuation: int = 0
    compaction: int = 0
    proactive_compaction: int = 0
    max_tokens_lowered: int = 0
    stop_hook: int = 0
    invalid_call: int = 0
    worker_restart: int = 0
    same_call: int = 0
    same_failure: int = 0
    see_saw: int = 0
    cycle: int = 0
    no_progress: int = 0
    drift: int = 0


class Result(Event, tag="result", frozen=True, kw_only=True):
    """Last line of a run."""

    reason: Reason
    kind: Kind | None = None
    subkind: Subkind | None = None
    limit: LimitTripped | None = None
    detector: Detector | None = None
    message: str
    text: str
    retryable: bool
    provider_status: int | None = None
    exit_code: int
    usage: Usage
    counters: Counters
    turns: int
    attempts: int
    tool_calls: int
    tool_runs: int
    ms: int
    cancel: CancelReceipt | None = None


AnyEvent = (
    Init
    | Message
    | Reasoning
    | ToolUse
    | ToolStart
    | ToolResult
    | Error
    | Retry
    | Compaction
    | Continuation
    | Loop
    | Budget
    | Approval
    | Worker
    | CancelStep
    | Result
)
