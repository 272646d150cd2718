"""Ways to break the product in memory, each of which the simulator has to notice: proof that it can fail.

Each is a rule that somebody could forget. Those at the end are faults that the simulator has found, put back.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest.mock import patch

import msgspec
import zmq

from haltline.protocol.ids import Role, WorkerId
from haltline.protocol.messages import Cancel, Delta, RunTool, StartAttempt, ToWorker
from haltline.supervisor import attempt_ends, calls, compaction, deadlines, ends, retry, sending
from haltline.supervisor.deadlines import Deadlines
from haltline.supervisor.effects import Show
from haltline.supervisor.host import SessionHost
from haltline.supervisor.mailbox import Expected, Mailbox
from haltline.supervisor.runtime import Supervisor
from haltline.supervisor.sockets import Frames, LoopSocket
from haltline.supervisor.state import Draft, SessionState
from haltline.supervisor.workers import Workers
from haltline.worker.actor import Actor

Breakage = Callable[[], AbstractContextManager[None]]


def instead(*targets: tuple[object, str, Callable[..., object]]) -> Breakage:
    """Each `owner.name` is replaced."""

    @contextmanager
    def broken() -> Generator[None]:
        with ExitStack() as stack:
            for owner, name, replacement in targets:
                stack.enter_context(patch.object(owner, name, replacement))
            yield

    return broken


def nothing(*_arguments: object, **_named: object) -> None:
    """What a forgotten step does."""


def around(
    owner: object, name: str, before: Callable[..., None] = nothing, after: Callable[..., None] = nothing
) -> Breakage:
    """`owner.name` as it is, with something before or after it, with the same arguments."""
    real: Callable[..., object] = getattr(owner, name)

    def whole(*arguments: object, **named: object) -> object:
        before(*arguments, **named)
        result = real(*arguments, **named)
        after(*arguments, **named)
        return result

    return instead((owner, name, whole))


def _any_generation(actor: Actor, message: ToWorker) -> None:
    if isinstance(message, StartAttempt | RunTool):
        actor.generation = message.generation


def _any_attempt(state: SessionState, _message: object) -> bool:
    return state.phase == "streaming" and state.attempt is not None


def _again(workers: Workers, role: Role) -> None:
    handle = workers.get(role)
    if handle is not None and not handle.exited:
        workers._spawner.kill(handle.worker_id)


def _without_subscription(_mailbox: Mailbox, _worker_id: WorkerId, expected: Expected) -> None:
    expected.subscribed = True


def _send_and_forget_the_edge(socket: LoopSocket, frames: Frames) -> bool:
    try:
        socket._socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        return False
    except zmq.ZMQError:
        return True
    return True


def _drop_where_full(mailbox: Mailbox, worker_id: WorkerId, data: bytes) -> None:
    mailbox._router.send((worker_id.encode(), data))


def _show_without_commit(host: SessionHost) -> None:
    host._send_lines()


def _run_lost_calls_again(d: Draft) -> None:
    for call in d.state.calls:
        if call.stage == "sent":
            ends.set_call(d, msgspec.structs.replace(call, stage="cleared"))
    d.state.phase = "deciding"


def _without(kind: str, real: Callable[[Deadlines, str, float], dict[str, float]]) -> Callable[..., object]:
    def with_deadline(held: Deadlines, name: str, at: float) -> dict[str, float]:
        return dict(held) if name.startswith(kind) else real(held, name, at)

    return with_deadline


def _to_everybody(mailbox: Mailbox, _worker_ids: object, cancel: Cancel) -> None:
    for worker_id in mailbox._proven:
        mailbox.send(worker_id, cancel)


def _retry_for_ever(*_arguments: object, **_named: object) -> retry.Wait:
    return retry.Wait(ms=10, attempt=2, of=3)


def _end_without_receipts(host: SessionHost) -> None:
    if host._closing:
        host._dismiss_workers()


def _starts_stay(held: Deadlines, gap_s: float) -> dict[str, float]:
    return {name: at if name.startswith("start") else at + gap_s for name, at in held.items()}


def _ready_without_birth(host: SessionHost, handle: object) -> None:
    host._worker_ready(handle)  # type: ignore[arg-type]


def _open_again(supervisor: Supervisor, *_arguments: object) -> None:
    supervisor._client_lost = False


def _close_twice(host: SessionHost) -> None:
    host._closed = False


def _fold_in_place(d: Draft, *_arguments: object) -> None:
    if d.state.compaction is not None:
        d.state.history = d.state.compaction.folded


def _shown_like_any(state: SessionState, message: Delta) -> Show | None:
    if state.attempt is not None:
        state.attempt = msgspec.structs.replace(state.attempt, purpose="turn")
    return _delta(state, message)


_delta = sending.delta


BREAKAGES: dict[str, Breakage] = {
    "a worker takes work of any generation": around(Actor, "_handle", before=_any_generation),
    "the core takes word of any attempt": instead(
        (sending, "is_current", _any_attempt), (attempt_ends, "is_current", _any_attempt)
    ),
    "a cancel is not said again": instead((SessionHost, "_say_again", nothing)),
    "a worker is killed twice": around(Workers, "kill", after=_again),
    "a gap of the supervisor is not noticed": instead((Supervisor, "_notice_gap", nothing)),
    "a run ends twice": around(ends, "complete", after=ends.complete),
    "a worker is ready without its subscription": around(Mailbox, "_prove", before=_without_subscription),
    "a send eats the edge": instead((LoopSocket, "send", _send_and_forget_the_edge)),
    "an intent is not durable": instead((SessionHost, "_commit", _show_without_commit)),
    "a call whose worker died runs again": instead((calls, "lost", _run_lost_calls_again)),
    "mail for a full pipe is dropped": instead((Mailbox, "_send", _drop_where_full)),
    "an acknowledgement has no deadline": instead(
        (deadlines, "with_deadline", _without("ack", deadlines.with_deadline))
    ),
    "a hung worker has no deadline": instead((deadlines, "with_deadline", _without("hang", deadlines.with_deadline))),
    "overdue work has no deadline": instead((deadlines, "with_deadline", _without("work", deadlines.with_deadline))),
    "a cancel reaches the neighbours": instead((Mailbox, "broadcast", _to_everybody)),
    "a request is retried for ever": instead((retry, "plan", _retry_for_ever)),
    "a second terminal gets no receipt": instead((SessionHost, "_finished", _end_without_receipts)),
    "a session closes twice": around(SessionHost, "_close_if_empty", after=_close_twice),
    "a session is opened for a client that is gone": around(Supervisor, "_open", before=_open_again),
    "a worker is ready before it is born": instead((SessionHost, "worker_proven", _ready_without_birth)),
    "a compaction folds the history itself": around(compaction, "_take", after=_fold_in_place),
    "a summary is shown": instead((sending, "delta", _shown_like_any)),
    "a suspension counts against a start": instead((deadlines, "moved", _starts_stay)),
}
