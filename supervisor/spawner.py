"""The supervisor's side of the zygote: starts workers, knows their ends, has their trees swept.

1. A worker is known by its pidfd, which came from its parent. It is killed through that, and the zygote is told
   first, so that its sweep gives no grace.
2. The zygote reports each end (Exited, with the last words) and each sweep (Swept). While it lives, its word counts.
3. Zygote dead: its children, living workers and orphans alike, have become ours. Ends are then seen through the
   pidfds, and what is below us and no living worker is swept here.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable

import msgspec

from haltline.protocol import trees
from haltline.protocol.ids import WorkerId
from haltline.supervisor import zygote

_REPORTS_PER_TURN = 64


class WorkerProcess(msgspec.Struct, kw_only=True):
    """A spawned worker, until its tree was swept."""

    worker_id: WorkerId
    pid: int = 0
    """0 until the zygote reported it."""
    pidfd: int = -1
    killed: bool = False
    exited: bool = False


class Spawner:
    """`on_exited(worker_id, words)`: a worker is dead. `on_swept(worker_id, killed, survivors)`: so is its tree."""

    def __init__(
        self,
        requests: socket.socket,
        zygote_pid: int,
        *,
        on_spawned: Callable[[WorkerId, int], None],
        on_exited: Callable[[WorkerId, str], None],
        on_swept: Callable[[WorkerId, int, int], None],
    ) -> None:
        self.zygote_pid = zygote_pid
        self.zygote_alive = True
        self._requests = requests
        self._requests.setblocking(False)
        self._zygote_pidfd = os.pidfd_open(zygote_pid)
        self._on_spawned = on_spawned
        self._on_exited = on_exited
        self._on_swept = on_swept
        self._workers: dict[WorkerId, WorkerProcess] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._requests, self._read_reports)
        self._loop.add_reader(self._zygote_pidfd, self._zygote_died)
        self.zygote_ended = asyncio.Event()

    def spawn(self, worker_id: WorkerId, role: str, boot: bytes, listener: socket.socket | None = None) -> None:
        self._workers[worker_id] = WorkerProcess(worker_id=worker_id)
        with_socket = listener is not None
        request = zygote.Spawn(
            worker_id=worker_id, role=role, boot=boot, with_socket=with_socket, watches=not with_socket
        )
        fds = [] if listener is None else [listener.fileno()]
        if not self._ask(request, fds):
            self._loop.call_soon(self._lost, worker_id, "the process that starts workers is gone")

    def kill(self, worker_id: WorkerId) -> None:
        """SIGKILL, and everything under it, without grace. Does nothing if it is dead already."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.exited:
            return
        worker.killed = True
        self._ask(zygote.Kill(worker_id=worker_id), [])  # rule 1
        if worker.pidfd >= 0:
            signal.pidfd_send_signal(worker.pidfd, signal.SIGKILL)

    def pid(self, worker_id: WorkerId) -> int | None:
        worker = self._workers.get(worker_id)
        return None if worker is None or worker.pid == 0 else worker.pid

    def living(self) -> frozenset[int]:
        """Pids of the workers that are not known to be dead."""
        return frozenset(worker.pid for worker in self._workers.values() if worker.pid and not worker.exited)

    def quit(self) -> None:
        """No more workers: the zygote leaves once it has no child."""
        self._ask(zygote.Quit(), [])

    def kill_zygote(self) -> None:
        if self.zygote_alive:
            signal.pidfd_send_signal(self._zygote_pidfd, signal.SIGKILL)

    def _ask(self, request: zygote.Request, fds: list[int]) -> bool:
        """False: the zygote is gone, or its queue is full because it hangs."""
        try:
            socket.send_fds(self._requests, [zygote.encode(request)], fds)
        except (BrokenPipeError, ConnectionResetError, BlockingIOError):
            return False
        return True

    def _read_reports(self) -> None:
        for _ in range(_REPORTS_PER_TURN):
            try:
                data, fds, _flags, _address = socket.recv_fds(self._requests, zygote.REQUEST_BYTES, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data, fds = b"", []
            if not data:
                self._loop.remove_reader(self._requests)
                return
            match zygote.decode_report.decode(data):
                case zygote.Spawned(worker_id=worker_id, pid=pid):
                    self._spawned(worker_id, pid, fds[0])
                case zygote.Exited(worker_id=worker_id, words=words):
                    self._exited(worker_id, words)
                case zygote.Swept(worker_id=worker_id, killed=killed, survivors=survivors):
                    self._swept(worker_id, killed, survivors)

    def _spawned(self, worker_id: WorkerId, pid: int, pidfd: int) -> None:
        worker = self._workers[worker_id]
        worker.pid = pid
        worker.pidfd = pidfd
        os.set_inheritable(pidfd, False)
        if worker.killed:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        self._on_spawned(worker_id, pid)

    def _exited(self, worker_id: WorkerId, words: str) -> None:
        worker = self._workers.get(worker_id)
        if worker is None or worker.exited:
            return
        worker.exited = True
        if worker.pidfd >= 0:
            self._loop.remove_reader(worker.pidfd)
            os.close(worker.pidfd)
            worker.pidfd = -1
        self._on_exited(worker_id, words)

    def _swept(self, worker_id: WorkerId, killed: int, survivors: int) -> None:
        if self._workers.pop(worker_id, None) is not None:
            self._on_swept(worker_id, killed, survivors)

    def _lost(self, worker_id: WorkerId, words: str) -> None:
        self._exited(worker_id, words)
        self._swept(worker_id, 0, 0)

    # Rule 3

    def _zygote_died(self) -> None:
        self._loop.remove_reader(self._zygote_pidfd)
        self._read_reports()  # what it said before
        self.zygote_alive = False
        self.zygote_ended.set()
        for worker in list(self._workers.values()):
            if worker.pidfd >= 0:
                self._loop.add_reader(worker.pidfd, self._worker_died, worker.worker_id)
            elif worker.exited:
                self._sweep(worker)
            else:
                self._lost(worker.worker_id, "the process that starts workers died")

    def _worker_died(self, worker_id: WorkerId) -> None:
        worker = self._workers[worker_id]
        self._exited(worker_id, "")
        self._sweep(worker)

    def _sweep(self, worker: WorkerProcess) -> None:
        grace_s = 0.0 if worker.killed else zygote.ORPHAN_GRACE_S
        sweep = trees.Sweep(os.getpid(), spare=self.living, grace_s=grace_s, now=self._loop.time())
        self._sweep_on(worker.worker_id, sweep)

    def _sweep_on(self, worker_id: WorkerId, sweep: trees.Sweep) -> None:
        again_s = sweep.step(self._loop.time())
        if again_s is None:
            self._swept(worker_id, sweep.result.killed, len(sweep.result.survivors))
        else:
            self._loop.call_later(again_s, self._sweep_on, worker_id, sweep)
