"""Messages between the supervisor and its workers: mailbox (ROUTER to DEALER) and broadcast (XPUB to SUB).

Life of a worker:   Hello -> (supervisor sees its subscription frame) -> Ready -> work ... -> Shutdown.
Life of an attempt: StartAttempt -> AttemptProgress, Delta ... -> AttemptEnded | AttemptFailed.
Life of a call:     RunTool -> ToolStarted -> ToolEnded (a call that never started: ToolEnded alone).
                    RunTool -> ToolLeadsOutside (-> RunTool once more, with outside_allowed).
Life of a cancel:   Cancel (broadcast, then addressed, resent) -> CancelAcknowledged -> CancelDone.

A generation is raised by the supervisor whenever it stops or supersedes work in a session. A worker refuses
work of a generation older than the newest it has heard of, and the supervisor refuses its reports.
"""

import msgspec

from haltline.protocol.conversation import Item, Reasoning, ToolSpec, Usage
from haltline.protocol.ids import PROTOCOL_VERSION, CallId, Role, SessionId
from haltline.protocol.kinds import Api, CallStatus, Changed, Finish, Phase, Purpose, Rung, StreamTimer
from haltline.protocol.settings import StreamLimits, ToolLimits


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base. `v` is the protocol version of the sender."""

    v: int = PROTOCOL_VERSION


class Hello(Message, tag="hello", frozen=True, kw_only=True):
    """Worker -> supervisor, first message on the mailbox; answered by Ready once the subscription frame is seen."""

    role: Role
    session_id: SessionId
    token: bytes
    """One-time, 16 bytes, inherited at the fork. Another token, or a second use, is refused."""


class Ready(Message, tag="ready", frozen=True, kw_only=True):
    """Supervisor -> worker: proven and subscribed; work may follow."""

    cwd: str
    delta_window_ms: float
    tools: ToolLimits
    key_variable: str | None = None
    inject: str = ""
    """Fault to be shown by the tool worker itself; `tool_error`: the first write_file fails. Else empty."""


class Heartbeat(Message, tag="heartbeat", frozen=True, kw_only=True):
    """Worker -> supervisor, every times.HEARTBEAT_S from the working loop itself, so that a stuck loop is silent."""

    progress: int
    """Rises with every step of work done: wire reads and model events, or bytes of tool output."""
    model_silent_ms: int | None = None
    """LLM worker with an attempt open: time since its last model event (or since its start)."""
    pss_kib: int = 0
    """The worker's own measure: others cannot read it (not dumpable). 0: not measured."""
    cpu_ms: int = 0


class Work(Message, frozen=True, kw_only=True):
    """Base of everything that belongs to a run."""

    session_id: SessionId
    run: int
    turn: int
    generation: int


class StartAttempt(Work, tag="start_attempt", frozen=True, kw_only=True):
    """Supervisor -> LLM worker. One at a time. Answered by AttemptEnded or AttemptFailed, exactly one,
    unless a Cancel comes between."""

    attempt: int
    """From 1, rising over the whole session; names the attempt in every answer."""
    api: Api
    base_url: str
    model: str
    system: str
    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...]
    max_output_tokens: int | None
    limits: StreamLimits
    purpose: Purpose = "turn"
    """The worker does the same for both; the journal tells them apart."""


class OfAttempt(Work, frozen=True, kw_only=True):
    attempt: int


class Delta(OfAttempt, tag="delta", frozen=True, kw_only=True):
    """LLM worker -> supervisor. Some text, in order. Everything of an attempt arrives before its end."""

    text: str
    reasoning: bool = False


class AttemptProgress(OfAttempt, tag="attempt_progress", frozen=True, kw_only=True):
    """LLM worker -> supervisor, when the phase changes, at most four times an attempt."""

    phase: Phase


class CallDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A call as assembled from the stream."""

    name: str
    arguments_raw: str
    provider_id: str | None = None
    complete: bool = True
    """False: the response was cut inside it."""


class AttemptEnded(OfAttempt, tag="attempt_ended", frozen=True, kw_only=True):
    """LLM worker -> supervisor: the response ended with a positive end signal."""

    finish: Finish
    finish_raw: str
    calls: tuple[CallDraft, ...]
    reasoning: tuple[Reasoning, ...]
    """Finished blocks, in the form in which the provider wants them back."""
    usage: Usage | None
    """None: the provider sent none."""
    refusal: str = ""


class AttemptFailed(OfAttempt, tag="attempt_failed", frozen=True, kw_only=True):
    """LLM worker -> supervisor: facts about an attempt that did not end well. No judgement (design 5)."""

    phase: Phase
    status: int | None = None
    """HTTP status, None where no response came."""
    headers: dict[str, str] = {}
    """Lower-case names; only those that matter: retry-after*, x-should-retry, content-type, *ratelimit*, date."""
    body: str = ""
    """Start of the error body, or the data of the in-stream error event; at most 16 KiB."""
    in_stream: bool = False
    """True: `body` came inside a stream that had begun with 200."""
    exception: str | None = None
    """`ClassName: message` of the transport's exception, causes after ` <- `."""
    timer: StreamTimer | None = None
    truncated: bool = False
    """The body ended or broke after the headers without an end signal."""
    malformed: str | None = None
    """What could not be read: an event above 8 MiB, a body that is neither stream nor answer nor error."""
    calls: tuple[CallDraft, ...] = ()
    """What had been assembled; none of it may run."""
    usage: Usage | None = None


class RunTool(Work, tag="run_tool", frozen=True, kw_only=True):
    """Supervisor -> tool worker, after the call passed every check and was journaled as started."""

    call_id: CallId
    name: str
    arguments: bytes
    """A JSON object that has passed the tool's schema."""
    timeout_s: float
    outside_allowed: bool = False
    """True: paths outside the workspace were approved for this call."""


class OfCall(Work, frozen=True, kw_only=True):
    call_id: CallId


class ToolStarted(OfCall, tag="tool_started", frozen=True, kw_only=True):
    """Tool worker -> supervisor: it really runs now. `pid`: of the process group's leader, or of the worker
    itself for tools that need no process; as the supervisor calls it. None: there is no telling."""

    pid: int | None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one call. `text` is what the model reads: bounded, valid Unicode, no path or errno of ours."""

    status: CallStatus
    changed: Changed
    exit_code: int | None
    text: str
    ms: int


class ToolEnded(OfCall, tag="tool_ended", frozen=True, kw_only=True):
    """Tool worker -> supervisor: exactly one per RunTool that was not cancelled and did not lead outside; its process
    tree is gone."""

    outcome: Outcome


class ToolLeadsOutside(OfCall, tag="tool_leads_outside", frozen=True, kw_only=True):
    """Tool worker -> supervisor, in place of ToolStarted and ToolEnded: with links resolved the call's path lies
    outside the workspace, which was not approved. Nothing was run and the call is the supervisor's again (J1)."""

    real: str
    """Where the path leads, absolute."""


class Cancel(Message, tag="cancel", frozen=True, kw_only=True):
    """Supervisor -> workers of a session, first as broadcast on their topics, then addressed, then resent each
    CANCEL_RESEND_S until acknowledged. Told apart by (generation, level); a repeated one is acknowledged again
    and changes nothing. Everything of a generation below `generation` is refused from here on."""

    session_id: SessionId
    generation: int
    level: int = 1
    """1: tools get SIGTERM and `grace_s`. 2: a second press, no grace left."""
    grace_s: float


CANCEL_RESEND_S = 0.25


class CancelAcknowledged(Message, tag="cancel_acknowledged", frozen=True, kw_only=True):
    """Worker -> supervisor, from the loop that did it: older work is refused, streams are closed, groups signalled."""

    session_id: SessionId
    generation: int
    level: int
    streams_closed: int = 0
    usage: Usage | None = None
    """LLM worker: what the interrupted attempt had reported, if it had."""


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    call_id: CallId
    outcome: Outcome


class CancelDone(Message, tag="cancel_done", frozen=True, kw_only=True):
    """Worker -> supervisor: nothing that it started is alive (`survivors` = 0), or who is left.

    `calls` holds the outcome of every call of the cancelled turn that the worker had been given, also of those
    whose ToolEnded may have crossed with the cancel: the supervisor closes open calls from it (F8)."""

    session_id: SessionId
    generation: int
    level: int
    rung: Rung
    killed: int
    survivors: int
    calls: tuple[CallOutcome, ...] = ()


class Shutdown(Message, tag="shutdown", frozen=True, kw_only=True):
    """Supervisor -> worker: the session is over; leave at once with status 0."""


ToWorker = Ready | StartAttempt | RunTool | Cancel | Shutdown
FromWorker = (
    Hello
    | Heartbeat
    | Delta
    | AttemptProgress
    | AttemptEnded
    | AttemptFailed
    | ToolStarted
    | ToolEnded
    | ToolLeadsOutside
    | CancelAcknowledged
    | CancelDone
)
