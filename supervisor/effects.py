"""What a session wants done: the outputs of `session.step`, performed in order by the runtime.

All but Show and SessionFailed are intents: the journal holds the stimulus that caused them before they are performed.
"""

import msgspec

from haltline.protocol.conversation import Item
from haltline.protocol.events import AnyEvent
from haltline.protocol.ids import Role
from haltline.protocol.messages import Cancel, RunTool, StartAttempt


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Show(Effect, frozen=True, kw_only=True):
    """Record the event, give it its `seq`, send it to the session's owner."""

    event: AnyEvent
    run: int
    turn: int


class SpawnWorker(Effect, frozen=True, kw_only=True):
    """Start a worker of this role. Answered by WorkerReady or WorkerStartFailed."""

    role: Role


class SendAttempt(Effect, frozen=True, kw_only=True):
    """To the LLM worker, which is ready."""

    message: StartAttempt


class SwitchHistory(Effect, frozen=True, kw_only=True):
    """The state holds these items in the place of its history from now on. Written down whole: no row before it
    says what a summary says."""

    items: tuple[Item, ...]


class SendTool(Effect, frozen=True, kw_only=True):
    """To the tool worker, which is ready."""

    message: RunTool


class BroadcastCancel(Effect, frozen=True, kw_only=True):
    """To the ready workers among `roles`: broadcast first, then addressed; resent until acknowledged.
    Workers of these roles that are still starting are killed (there is nothing to lose in them)."""

    message: Cancel
    roles: tuple[Role, ...]


class KillWorker(Effect, frozen=True, kw_only=True):
    """SIGKILL by pidfd, and everything under it, without grace. Answered by WorkerExited, then Swept."""

    role: Role
    reason: str


class Finish(Effect, frozen=True, kw_only=True):
    """The run is over and its Result has been shown. The session may take the next prompt."""


AnyEffect = Show | SpawnWorker | SendAttempt | SwitchHistory | SendTool | BroadcastCancel | KillWorker | Finish
