"""The two worker processes of one session, as the shell knows them: started, ready, told, ended."""

import socket
from collections.abc import Callable
from typing import Protocol

import msgspec

from haltline.protocol.boot import WorkerBoot
from haltline.protocol.endpoints import Endpoints
from haltline.protocol.ids import ROLES, Role, SessionId, WorkerId
from haltline.protocol.kinds import Isolation
from haltline.protocol.messages import Heartbeat, ToWorker
from haltline.supervisor.mailbox import Mailbox

_encode = msgspec.msgpack.Encoder().encode


class Starter(Protocol):
    """What starts and kills the processes of workers: the Spawner."""

    def spawn(
        self,
        worker_id: WorkerId,
        role: str,
        boot: bytes,
        listener: socket.socket | None = None,
        *,
        namespaced: bool = False,
    ) -> None: ...
    def kill(self, worker_id: WorkerId) -> None: ...


class WorkerHandle(msgspec.Struct, kw_only=True):
    worker_id: WorkerId
    role: Role
    started_s: float
    pid: int = 0
    """0 until the spawner reported it."""
    proven: bool = False
    """The mailbox has heard and seen it."""
    ready: bool = False
    """Both of these: it takes work."""
    killed: bool = False
    exited: bool = False
    heartbeat: Heartbeat | None = None
    heartbeat_s: float | None = None


class Workers:
    """At most one living worker per role; a dead one stays until its tree was swept."""

    def __init__(
        self,
        session_id: SessionId,
        isolation: Isolation,
        *,
        mailbox: Mailbox,
        spawner: Starter,
        endpoints: Endpoints,
        supervisor_pidfd: int,
        now: Callable[[], float],
        random_bytes: Callable[[int], bytes],
        on_started: Callable[[WorkerHandle], None],
    ) -> None:
        self._session_id = session_id
        self._isolation: Isolation = isolation
        self._mailbox = mailbox
        self._spawner = spawner
        self._endpoints = endpoints
        self._supervisor_pidfd = supervisor_pidfd
        self._now = now
        self._random_bytes = random_bytes
        self._on_started = on_started
        self._handles: dict[Role, WorkerHandle] = {}
        self._count = 0

    def start(self, role: Role) -> WorkerHandle:
        self._count += 1
        worker_id = WorkerId(f"{role}-{self._session_id}-{self._count}-{self._random_bytes(6).hex()}")
        token = self._random_bytes(16)
        handle = WorkerHandle(worker_id=worker_id, role=role, started_s=self._now())
        self._handles[role] = handle
        self._on_started(handle)
        self._mailbox.expect(worker_id, role, self._session_id, token)
        boot = WorkerBoot(
            role=role,
            session_id=self._session_id,
            worker_id=worker_id,
            token=token,
            mailbox=self._endpoints.mailbox,
            broadcast=self._endpoints.broadcast,
            supervisor_pidfd=self._supervisor_pidfd,
            isolation=self._isolation,
        )
        namespaced = role == "tool" and self._isolation == "pidns"
        self._spawner.spawn(worker_id, role, _encode(boot), namespaced=namespaced)
        return handle

    def kill(self, role: Role) -> None:
        """SIGKILL, with everything under it; nothing that it still says counts. Once: does nothing if there is none,
        or if it is dying of that already."""
        handle = self._handles.get(role)
        if handle is not None and not handle.exited and not handle.killed:
            handle.killed = True
            self._mailbox.forget(handle.worker_id)
            self._spawner.kill(handle.worker_id)

    def get(self, role: Role) -> WorkerHandle | None:
        return self._handles.get(role)

    def ready(self) -> tuple[WorkerHandle, ...]:
        """The workers that take messages, in the order of ROLES."""
        return tuple(
            handle for role in ROLES if (handle := self._handles.get(role)) and handle.ready and not handle.exited
        )

    def alive(self) -> tuple[WorkerHandle, ...]:
        return tuple(handle for handle in self._handles.values() if not handle.exited)

    def all(self) -> tuple[WorkerHandle, ...]:
        """Dead ones that were not swept yet too."""
        return tuple(self._handles.values())

    def any(self) -> bool:
        """False once all are dead and swept."""
        return bool(self._handles)

    def tell(self, role: Role, message: ToWorker) -> None:
        handle = self._handles.get(role)
        if handle is not None and handle.ready and not handle.exited:
            self._mailbox.send(handle.worker_id, message)

    def remove(self, handle: WorkerHandle) -> None:
        """Its tree was swept."""
        if self._handles.get(handle.role) is handle:
            del self._handles[handle.role]
