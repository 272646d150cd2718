"""What can happen to a session: the inputs of `session.step`. The shell makes them, the journal keeps them.

Messages of the session's own workers enter the core as they are (they are frozen values); the rest is here.
Randomness enters as a value (`jitter`), never as a call.
"""

import msgspec

from haltline.protocol.ids import CallId, Role, WorkerId
from haltline.protocol.kinds import ApprovalAnswer, CancelBy
from haltline.protocol.messages import (
    AttemptEnded,
    AttemptFailed,
    AttemptProgress,
    CancelAcknowledged,
    CancelDone,
    Delta,
    Heartbeat,
    ToolEnded,
    ToolLeadsOutside,
    ToolStarted,
)


class Stimulus(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Opened(Stimulus, tag="opened", frozen=True, kw_only=True):
    """First of all: a client opened the session. Workers start."""


class Prompted(Stimulus, tag="prompted", frozen=True, kw_only=True):
    """The user gave a prompt. Only while no run is going on (the shell refuses it otherwise)."""

    text: str


class WorkerReady(Stimulus, tag="worker_ready", frozen=True, kw_only=True):
    """The worker said hello and its subscription frame was seen."""

    role: Role
    worker_id: WorkerId
    pid: int


class WorkerStartFailed(Stimulus, tag="worker_start_failed", frozen=True, kw_only=True):
    """It ended, or said nothing within its start deadline, before it was ready. `words`: its own, or ours."""

    role: Role
    worker_id: WorkerId
    words: str


class WorkerExited(Stimulus, tag="worker_exited", frozen=True, kw_only=True):
    """A worker that had been ready is dead (its pidfd says so). Its tree is being swept; Swept follows."""

    role: Role
    worker_id: WorkerId
    pid: int
    words: str


class Swept(Stimulus, tag="swept", frozen=True, kw_only=True):
    """The tree of a dead worker was seen empty, or `survivors` are left."""

    role: Role
    worker_id: WorkerId
    killed: int
    survivors: int


class FromWorker(Stimulus, tag="from_worker", frozen=True, kw_only=True):
    """A message of a proven worker of this session."""

    role: Role
    worker_id: WorkerId
    message: (
        Delta
        | AttemptProgress
        | AttemptEnded
        | AttemptFailed
        | ToolStarted
        | ToolEnded
        | ToolLeadsOutside
        | CancelAcknowledged
        | CancelDone
        | Heartbeat
    )
    jitter: float = 0.5
    """In [0, 1): drawn by the shell, used for a retry's delay."""
    wall_s: float = 0.0
    """Wall clock at arrival, seconds since the epoch: dates in `retry-after` are relative to it."""


class Tick(Stimulus, tag="tick", frozen=True, kw_only=True):
    """`now` has reached `session.next_deadline(state)`. All deadlines live in the state, so none can be stale."""

    jitter: float = 0.5


class CancelAsked(Stimulus, tag="cancel_asked", frozen=True, kw_only=True):
    """Somebody wants the run to stop. During the stop: the next level."""

    by: CancelBy
    terminated: bool = False
    """By SIGTERM: exit code 143."""


class KillAsked(Stimulus, tag="kill_asked", frozen=True, kw_only=True):
    """`kill`: role None: the session ends with reason killed, without grace; else one worker is replaced."""

    role: Role | None = None


class Answered(Stimulus, tag="answered", frozen=True, kw_only=True):
    """A person answered the approval question of `call_id`."""

    call_id: CallId
    answer: ApprovalAnswer
    words: str = ""


class Suspended(Stimulus, tag="suspended", frozen=True, kw_only=True):
    """The supervisor itself did not run for `gap_s` (suspend, SIGSTOP): deadlines move by it (L5, L6)."""

    gap_s: float


AnyStimulus = (
    Opened
    | Prompted
    | WorkerReady
    | WorkerStartFailed
    | WorkerExited
    | Swept
    | FromWorker
    | Tick
    | CancelAsked
    | KillAsked
    | Answered
    | Suspended
)
