"""The supervisor's side of the zygote: starts workers, knows their ends, has their trees swept.

1. A worker is known by its pidfd, which came from its parent. It is killed through that, and the zygote is told
   first, so that its sweep gives no grace.
2. The zygote reports each end (Exited, with the last words) and each sweep (Swept). While it lives, its word counts.
3. Zygote dead: its children, living workers and orphans alike, have become ours. Ends are then seen through the
   pidfds, and what is below us and no living worker is swept here.
4. A zygote that says nothing of a death that the pidfd shows, or does not start a worker in time, hangs: it is
   killed, and rule 3 holds. No worker can be started after that.
5. Requests that the socket does not take wait in order; a burst of sessions outruns the zygote for a while.
"""

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from haltline.protocol import processes, times, trees
from haltline.protocol.ids import WorkerId
from haltline.supervisor import zygote

REPORT_S = 1.0
"""From a worker's death to the zygote's word of it, which takes about a millisecond (rule 4)."""
START_S = 10.0
"""From a request to the fork, which takes 1 to 3 ms; hundreds may stand in line (rule 4)."""
_REPORTS_PER_TURN = 64
GONE = "the process that starts workers is gone"


class WorkerProcess(msgspec.Struct, kw_only=True):
    """A spawned worker, until its tree was swept."""

    worker_id: WorkerId
    pid: int = 0
    """0 until the zygote reported it."""
    pidfd: int = -1
    killed: bool = False
    exited: bool = False


class Spawner:
    """Asked for nothing before `listen`."""

    def __init__(self, requests: socket.socket, zygote_pid: int) -> None:
        self.zygote_pid = zygote_pid
        self.zygote_alive = True
        self._requests = requests
        self._requests.setblocking(False)
        self._zygote_pidfd = os.pidfd_open(zygote_pid)
        self._workers: dict[WorkerId, WorkerProcess] = {}
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        """Rule 5: requests with their descriptors, which are ours to close."""
        self._loop = asyncio.get_running_loop()
        self.zygote_ended = asyncio.Event()

    def listen(
        self,
        *,
        on_spawned: Callable[[WorkerId, int], None],
        on_exited: Callable[[WorkerId, str], None],
        on_swept: Callable[[WorkerId, int, int], None],
    ) -> None:
        """Report to these from now on. `on_spawned(worker_id, pid)`; `on_exited(worker_id, words)`: a worker is dead;
        `on_swept(worker_id, killed, survivors)`: so is its tree."""
        self._on_spawned = on_spawned
        self._on_exited = on_exited
        self._on_swept = on_swept
        self._loop.add_reader(self._requests, self._read_reports)
        self._loop.add_reader(self._zygote_pidfd, self._zygote_died)

    def spawn(self, worker_id: WorkerId, role: str, boot: bytes, listener: socket.socket | None = None) -> None:
        self._workers[worker_id] = WorkerProcess(worker_id=worker_id)
        with_socket = listener is not None
        request = zygote.Spawn(
            worker_id=worker_id, role=role, boot=boot, with_socket=with_socket, watches=not with_socket
        )
        if not self.zygote_alive:
            self._loop.call_soon(self._lost, worker_id, GONE)
            return
        self._ask(request, () if listener is None else (os.dup(listener.fileno()),))
        self._loop.call_later(START_S, self._expect_start, worker_id)

    def kill(self, worker_id: WorkerId) -> None:
        """SIGKILL, and everything under it, without grace. Does nothing if it is dead already."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.exited:
            return
        worker.killed = True
        self._ask(zygote.Kill(worker_id=worker_id))  # rule 1
        if worker.pidfd >= 0:
            processes.signal_pidfd(worker.pidfd, signal.SIGKILL)

    def living(self) -> frozenset[int]:
        """Pids of the workers that are not known to be dead."""
        return frozenset(worker.pid for worker in self._workers.values() if worker.pid and not worker.exited)

    def quit(self) -> None:
        """No more workers: the zygote leaves once it has no child."""
        self._ask(zygote.Quit())

    def kill_zygote(self) -> None:
        processes.signal_pidfd(self._zygote_pidfd, signal.SIGKILL)

    def _ask(self, request: zygote.Request, fds: tuple[int, ...] = ()) -> None:
        self._unsent.append((zygote.encode(request), fds))
        self._send_requests()

    def _send_requests(self) -> None:
        """Rule 5. A zygote that is gone needs no request: its death is seen through its pidfd."""
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                socket.send_fds(self._requests, [data], fds)
            except BlockingIOError:
                self._loop.add_writer(self._requests, self._send_requests)
                return
            except (BrokenPipeError, ConnectionResetError):
                pass
            self._unsent.popleft()
            for fd in fds:
                os.close(fd)
        self._loop.remove_writer(self._requests)

    def _expect_start(self, worker_id: WorkerId) -> None:
        """Rule 4."""
        worker = self._workers.get(worker_id)
        if worker is not None and worker.pid == 0 and not worker.exited:
            self.kill_zygote()

    def _expect_report(self, worker_id: WorkerId) -> None:
        """The pidfd shows a death: the zygote's word of it, with the last words, follows (rule 4)."""
        worker = self._workers[worker_id]
        self._loop.remove_reader(worker.pidfd)
        self._loop.call_later(REPORT_S, self._miss_report, worker_id)

    def _miss_report(self, worker_id: WorkerId) -> None:
        worker = self._workers.get(worker_id)
        if worker is not None and not worker.exited:
            self.kill_zygote()

    def _read_reports(self) -> bool:
        """True: there may be more."""
        for _ in range(_REPORTS_PER_TURN):
            try:
                data, fds, _flags, _address = socket.recv_fds(self._requests, zygote.REQUEST_BYTES, 1)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                data, fds = b"", []
            if not data:
                self._loop.remove_reader(self._requests)
                return False
            match zygote.decode_report.decode(data):
                case zygote.Spawned(worker_id=worker_id, pid=pid):
                    self._spawned(worker_id, pid, fds[0])
                case zygote.Exited(worker_id=worker_id, words=words):
                    self._exited(worker_id, words)
                case zygote.Swept(worker_id=worker_id, killed=killed, survivors=survivors):
                    self._swept(worker_id, killed, survivors)
        return True

    def _spawned(self, worker_id: WorkerId, pid: int, pidfd: int) -> None:
        worker = self._workers[worker_id]
        worker.pid = pid
        worker.pidfd = pidfd
        os.set_inheritable(pidfd, False)
        self._loop.add_reader(pidfd, self._expect_report, worker_id)
        if worker.killed:
            processes.signal_pidfd(pidfd, signal.SIGKILL)
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
        while self._read_reports():  # what it said before
            continue
        self.zygote_alive = False
        self.zygote_ended.set()
        for worker in list(self._workers.values()):
            if worker.pidfd >= 0:
                self._loop.add_reader(worker.pidfd, self._worker_died, worker.worker_id)  # in place of rule 2's
            elif worker.exited:
                self._sweep(worker)
            else:
                self._lost(worker.worker_id, GONE)

    def _worker_died(self, worker_id: WorkerId) -> None:
        worker = self._workers[worker_id]
        self._exited(worker_id, "")
        self._sweep(worker)

    def _sweep(self, worker: WorkerProcess) -> None:
        grace_s = 0.0 if worker.killed else times.DEATH_GRACE_S
        sweep = trees.Sweep(os.getpid(), spare=self.living, grace_s=grace_s, now=self._loop.time())
        self._sweep_on(worker.worker_id, sweep)

    def _sweep_on(self, worker_id: WorkerId, sweep: trees.Sweep) -> None:
        again_s = sweep.step(self._loop.time())
        if again_s is None:
            self._swept(worker_id, sweep.result.killed, len(sweep.result.survivors))
        else:
            self._loop.call_later(again_s, self._sweep_on, worker_id, sweep)
