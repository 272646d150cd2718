"""All that a session knows: one value, encodable, from which every step starts.

The state is copied at the start of a step and never touched again; its parts are frozen or are replaced whole, so
the copy is shallow and costs a fifth of a microsecond. Nothing outside supervisor/session.py and the files that it
calls writes to it.
"""

import copy
from typing import Literal

import msgspec

from haltline.protocol.conversation import AssistantMessage, Item, ToolCall, Usage, UserMessage
from haltline.protocol.events import AnyEvent, Counters
from haltline.protocol.ids import Role, SessionId, WorkerId
from haltline.protocol.kinds import Phase, Purpose, Trigger
from haltline.protocol.messages import Outcome
from haltline.protocol.settings import SessionSettings
from haltline.supervisor.approval import Grants
from haltline.supervisor.budget import Ledger
from haltline.supervisor.cancelling import Stop
from haltline.supervisor.effects import AnyEffect, Show
from haltline.supervisor.failures import Failure
from haltline.supervisor.repeat import Window

SessionPhase = Literal[
    "idle",  # no run: before the first, between runs, and for good after the last
    "starting",  # a request is due and the LLM worker is not ready yet
    "streaming",  # an attempt is in flight
    "waiting_retry",  # the wait before the next attempt
    "deciding",  # a call may run and the tool worker is not ready yet
    "waiting_approval",  # a person is being asked
    "running_tools",  # calls are in the tool worker's hands
    "compacting",  # a summary of older turns is due, or is being written
    "cancelling",  # a stop is going on
]


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one worker.

    empty -> starting -> ready -> dying -> empty. `dying`: killed, or seen dead; its tree is being swept.
    """

    role: Role
    state: Literal["empty", "starting", "ready", "dying"] = "empty"
    worker_id: WorkerId | None = None
    """None until it is heard of."""
    pid: int | None = None
    failed_starts: int = 0
    """In a row, without one ready."""
    gave_up: str | None = None
    """Why this seat stays empty until the next prompt, in words for the user."""
    ended: str = ""
    """dying: what the worker, or we, said about its end."""
    dead: bool = False
    """dying: its exit was seen."""


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """Text that grows by pieces: whole blocks and a tail, so that a piece costs the same at the end as at the start."""

    blocks: tuple[str, ...] = ()
    tail: str = ""

    @property
    def text(self) -> str:
        return "".join((*self.blocks, self.tail))

    def __bool__(self) -> bool:
        return bool(self.tail or self.blocks)


BLOCK_CHARACTERS = 4096


def extended(body: Body, piece: str) -> Body:
    tail = body.tail + piece
    if len(tail) < BLOCK_CHARACTERS:
        return Body(blocks=body.blocks, tail=tail)
    return Body(blocks=(*body.blocks, tail))


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The request in flight, and what came of it."""

    number: int
    purpose: Purpose = "turn"
    phase: Phase = "connect"
    text: Body = Body()
    reasoning: Body = Body()
    emitted: int = 0
    """Deltas passed on (A2)."""
    request_tokens: int
    """Estimate, for an attempt whose provider reports none (D6)."""
    stalled_ms: int | None = None
    """Silence of the model at the last notice; None: it is not stalled."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the present turn.

    new -> asking -> cleared -> sent -> closed; closed at once where a check refuses it. sent -> outside -> asking where
    the tool worker finds that the path leads out of the workspace.
    """

    call: ToolCall
    stage: Literal["new", "asking", "cleared", "sent", "outside", "closed"] = "new"
    arguments: bytes = b""
    """cleared: the checked JSON object."""
    question: str | None = None
    leads_to: str | None = None
    """outside: where the path really leads."""
    outside_allowed: bool = False
    """cleared, or granted by the answer that is being waited for."""
    started: bool = False
    """The tool worker said that it really runs."""
    outcome: Outcome | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The work on one prompt, beside the ledger."""

    started_at: float = 0.0
    counters: Counters = Counters()
    attempts: int = 0
    tool_calls: int = 0
    tool_runs: int = 0
    text: str = ""
    """The last assistant message."""
    turn_attempts: int = 0
    turn_retries: int = 0
    """Transport retries of the present turn."""
    retry_turn: bool = False
    """The next attempt belongs to the present turn."""
    invalid_row: int = 0
    """Invalid calls in a row (I4)."""
    turn_compactions: int = 0
    """Reactive ones of the present turn (E2)."""
    proactive_in_vain: bool = False
    """One made the conversation no shorter; none is tried again."""
    max_output_tokens: int | None = None
    """Lowered because the request left no room for more (E5); None: as the settings say."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that is being had (compaction.py). All of it lies beside the history."""

    trigger: Trigger
    failure: Failure | None
    """The overflow that it answers."""
    before_tokens: int
    target_tokens: int
    folded: tuple[Item, ...]
    place: int
    """What of `folded` comes before is summarised."""
    transcript_characters: int
    """At most so many go into the request for the summary."""
    requests: int = 0
    """Sent so far."""


class Hung(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was asked to stop because its work is overdue (L6). The run goes on around it."""

    role: Role
    words: str
    usage: Usage | None = None
    """What its attempt had reported, once it acknowledged."""


class SessionState(msgspec.Struct, kw_only=True):
    session_id: SessionId
    settings: SessionSettings
    opened: bool = False
    phase: SessionPhase = "idle"
    generation: int = 0
    run_number: int = 0
    turn: int = 0
    attempt_number: int = 0
    """Of the session."""
    call_number: int = 0
    history: tuple[Item, ...] = ()
    message: AssistantMessage | None = None
    """The present turn's, until all its calls are closed (history, rule 1)."""
    calls: tuple[Call, ...] = ()
    notes: tuple[UserMessage, ...] = ()
    """What the model is told once the present turn is closed."""
    attempt: Attempt | None = None
    compaction: Compaction | None = None
    window_tokens: int = 0
    """As an error named it; 0: none did."""
    fitted_tokens: int = 0
    """Of the largest request that was answered, by our estimate."""
    token_scale: float = 1.0
    """Tokens as providers count them, by our estimate (window.py)."""
    run: Run = Run()
    ledger: Ledger = Ledger()
    window: Window = Window()
    grants: Grants = Grants()
    llm: Seat = Seat(role="llm")
    tool: Seat = Seat(role="tool")
    restarts: tuple[float, ...] = ()
    """When workers were replaced, the last RESTARTS of them."""
    hung: Hung | None = None
    stop: Stop | None = None
    deadlines: dict[str, float] = {}


class Draft:
    """The next state while it is being made, and what is to be done, in order."""

    __slots__ = ("effects", "jitter", "now", "state", "wall_s")

    def __init__(self, state: SessionState, now: float, *, jitter: float = 0.5, wall_s: float = 0.0) -> None:
        self.state = copy.copy(state)
        self.now = now
        self.jitter = jitter
        self.wall_s = wall_s
        self.effects: list[AnyEffect] = []

    def show(self, event: AnyEvent) -> None:
        """What is said before the first prompt belongs to the first run: lines count runs from 1."""
        self.effects.append(Show(event=event, run=max(1, self.state.run_number), turn=self.state.turn))

    def do(self, effect: AnyEffect) -> None:
        self.effects.append(effect)

    def seat(self, role: Role) -> Seat:
        return self.state.llm if role == "llm" else self.state.tool

    def set_seat(self, seat: Seat) -> None:
        if seat.role == "llm":
            self.state.llm = seat
        else:
            self.state.tool = seat

    def count(self, counters: Counters) -> None:
        self.state.run = msgspec.structs.replace(self.state.run, counters=counters)
