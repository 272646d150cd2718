"""Which session or worker is meant by an id, or the beginning of one, that was typed. Pure.

1. A whole id means that one. Else everything that begins with what was typed is meant, and that has to be one thing.
2. A worker is also meant by the name that `ps` shows, `9f3a21bc/llm`, its session's id or the beginning of that, and
   its role; and by `llm-1`, the first that its session has had.
3. The id of a worker that is gone means a worker that was there before: nothing is left to stop.
"""

from collections.abc import Iterable, Iterator

import msgspec

from haltline.protocol.client_messages import PsRow
from haltline.protocol.ids import ROLES, Role, SessionId, WorkerId


class Target(msgspec.Struct, frozen=True, kw_only=True):
    session_id: SessionId
    worker: Role | None = None
    worker_id: WorkerId | None = None

    @property
    def id(self) -> str:
        return self.worker_id or (self.session_id if self.worker is None else f"{self.session_id}/{self.worker}")


def of_rows(rows: Iterable[PsRow]) -> tuple[Target, ...]:
    """What `ps` lists, as targets."""
    return tuple(
        Target(session_id=SessionId(row.session_id))
        if row.role == "session"
        else Target(session_id=SessionId(row.session_id), worker=row.role, worker_id=WorkerId(row.id))
        for row in rows
    )


def meant(typed: str, targets: Iterable[Target]) -> tuple[Target, ...]:
    """All that may be meant; none: nothing here."""
    targets = tuple(targets)
    exact = tuple(target for target in targets if target.id == typed)
    if exact or not typed:
        return exact
    session, slash, role = typed.partition("/")
    if slash:
        return tuple(_of_role(role, meant(session, (target for target in targets if target.worker is None))))
    begun = tuple(target for target in targets if target.id.startswith(typed) or _short(target) == typed)
    return begun or tuple(_gone_worker(typed, targets))


def session_of(typed: str) -> str:
    """The session of a worker's whole id; what was typed, where it is none."""
    typed = typed.partition("/")[0]
    role, _, rest = typed.partition("-")
    return rest.partition("-")[0] if role in ROLES and rest.count("-") > 1 else typed


def shown(row: PsRow) -> str:
    """The name of a session or a worker in `ps`, which `kill` takes."""
    return row.id if row.role == "session" else f"{row.session_id}/{row.role}"


def short(worker_id: str) -> str:
    """`llm-1` of `llm-abcdef01-1-355a240ca061`: the first that this session has had."""
    role, _, rest = worker_id.partition("-")
    return f"{role}-{rest.split('-')[1]}" if rest.count("-") > 1 else worker_id


def _short(target: Target) -> str | None:
    return None if target.worker_id is None else short(target.worker_id)


def _of_role(role: str, sessions: tuple[Target, ...]) -> Iterator[Target]:
    """Rule 2: the worker that has this role by the time that it is asked for."""
    for session in sessions:
        for known in ROLES:
            if known == role:
                yield Target(session_id=session.session_id, worker=known)


def _gone_worker(typed: str, targets: tuple[Target, ...]) -> Iterator[Target]:
    """Rule 3."""
    for target in targets:
        for role in ROLES:
            if target.worker is None and typed.startswith(f"{role}-{target.session_id}-"):
                yield Target(session_id=target.session_id, worker=role, worker_id=WorkerId(typed))
