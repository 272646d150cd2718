"""The zygote: single thread, everything imported, no ZeroMQ context ever; forks workers and sweeps after dead ones.

1. Requests and reports travel on one socket pair that both sides have by birth. Reports carry the worker's pidfd:
   the zygote is the parent, so the pid cannot have been given to another before it is opened.
2. Requests are read before children are reaped: a deliberate kill is known as such when its death is seen, and
   its tree gets no grace. After any other death the tools of that worker get DEATH_GRACE_S.
3. Orphans of a dead tool worker become the zygote's children. Every child that is no live worker is such an orphan.
   Those of several dead workers cannot be told apart: while two are swept, the shorter grace counts for both.
4. The supervisor's death is seen through its pidfd. Workers see it too and leave by themselves; what is left after
   ZYGOTE_PATIENCE_S is killed. The embedded gateway knows of no supervisor and is killed at once. The zygote goes when
   it has no child.
5. A worker's stderr is a pipe that the zygote reads: its last words travel with the report of its end and go to the
   log. A worker that cannot start is known at once by its end.
6. While nothing is asked of it, the zygote imports, step by step, what LLM workers need: a fork has as much of it as
   was done by then, and does the rest itself.
"""

import gc
import importlib
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from haltline.protocol import linux, processes, times, trees
from haltline.protocol.ids import WorkerId
from haltline.supervisor.chain import fork

WORDS_BYTES = 4_096
"""Kept of a worker's stderr as its last words."""
_READ_BYTES = 65_536


class Spawn(msgspec.Struct, frozen=True, kw_only=True, tag="spawn"):
    """Supervisor -> zygote. Answered by Spawned, later by Exited and Swept."""

    worker_id: WorkerId
    role: str
    boot: bytes
    """Handed to the role's entry as it is."""
    with_socket: bool = False
    """True: a listening socket comes with the request (the embedded gateway's)."""
    watches: bool = True
    """False: it does not know the supervisor and has to be ended when that dies (rule 4)."""


class Kill(msgspec.Struct, frozen=True, kw_only=True, tag="kill"):
    """Supervisor -> zygote: SIGKILL to the worker, no grace for its tree (rule 2)."""

    worker_id: WorkerId


class Quit(msgspec.Struct, frozen=True, kw_only=True, tag="quit"):
    """Supervisor -> zygote: the workers have been told to leave; as the supervisor's death, but without words."""


class Spawned(msgspec.Struct, frozen=True, kw_only=True, tag="spawned"):
    """Zygote -> supervisor, with the worker's pidfd."""

    worker_id: WorkerId
    pid: int


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag="exited"):
    worker_id: WorkerId
    pid: int
    status: int
    """Exit code, or minus the signal's number."""
    words: str


class Swept(msgspec.Struct, frozen=True, kw_only=True, tag="swept"):
    """Zygote -> supervisor, after Exited: the tree of that worker was seen empty, or who is left."""

    worker_id: WorkerId
    killed: int
    survivors: int


Request = Spawn | Kill | Quit
Report = Spawned | Exited | Swept

encode = msgspec.msgpack.Encoder().encode
decode_request: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
decode_report: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
REQUEST_BYTES = 65_536


class _Child(msgspec.Struct, kw_only=True):
    worker_id: WorkerId
    pid: int
    pidfd: int
    words_fd: int
    watches: bool
    words: bytes = b""
    deliberate: bool = False


class Zygote:
    """State of the zygote's loop."""

    def __init__(
        self,
        requests: socket.socket,
        supervisor_pidfd: int,
        roles: Mapping[str, str],
        idle: Sequence[str],
        prepare_worker: Callable[[], None],
    ) -> None:
        self._requests = requests
        self._supervisor_pidfd = supervisor_pidfd
        self._roles = roles
        self._prepare_worker = prepare_worker
        self._idle: Iterator[None] | None = _steps(idle)
        self._children: dict[int, _Child] = {}
        self._sweeps: dict[WorkerId, trees.Sweep] = {}
        self._leave_by: float | None = None
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._poll = select.poll()
        self._wake_r, self._wake_w = os.pipe()

    def run(self) -> None:
        """Returns when the supervisor is gone and nothing is left below."""
        self._watch_children()
        self._poll.register(self._requests, select.POLLIN)
        self._poll.register(self._supervisor_pidfd, select.POLLIN)
        while True:
            ready = dict(self._poll.poll(self._patience_ms()))
            asked = ready.get(self._requests.fileno(), 0)
            if asked & select.POLLOUT:
                self._send_reports()
            if asked & ~select.POLLOUT:
                self._serve()
            if self._supervisor_pidfd in ready:
                self._begin_leaving()
            for child in [child for child in self._children.values() if child.words_fd in ready]:
                self._listen(child)
            if self._wake_r in ready:
                os.read(self._wake_r, _READ_BYTES)
                self._reap()
            self._sweep_on()
            if not ready and self._leave_by is None and self._idle is not None:
                self._preload(self._idle)
            if self._leave_by is not None and self._left():
                return

    def _watch_children(self) -> None:
        """A SIGCHLD is a byte in a pipe, so that it wakes the poll."""
        for fd in (self._wake_r, self._wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._poll.register(self._wake_r, select.POLLIN)

    def _patience_ms(self) -> float | None:
        if self._sweeps:
            return 5.0
        if self._leave_by is not None:
            return max(0.0, (self._leave_by - time.monotonic()) * 1000)
        return None if self._idle is None else 0.0

    # Requests

    def _serve(self) -> None:
        while True:
            try:
                data, fds, _flags, _address = socket.recv_fds(self._requests, REQUEST_BYTES, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it died with a report unread
                data, fds = b"", []
            if not data:
                self._begin_leaving()
                return
            match decode_request.decode(data):
                case Spawn() as spawn:
                    self._spawn(spawn, fds[0] if fds else None)
                case Kill(worker_id=worker_id):
                    self._kill(worker_id)
                case Quit():
                    self._begin_leaving()

    def _spawn(self, spawn: Spawn, extra_fd: int | None) -> None:
        words_r, words_w = os.pipe()
        os.set_blocking(words_r, False)
        entry = self._roles[spawn.role]

        def body() -> None:
            os.close(words_r)
            self._become_worker(words_w)
            module, _, name = entry.partition(":")
            run: Callable[[bytes, int | None], None] = getattr(importlib.import_module(module), name)
            run(spawn.boot, extra_fd)

        pid = fork(body)
        os.close(words_w)
        if extra_fd is not None:
            os.close(extra_fd)
        child = _Child(
            worker_id=spawn.worker_id, pid=pid, pidfd=os.pidfd_open(pid), words_fd=words_r, watches=spawn.watches
        )
        self._children[pid] = child
        self._poll.register(words_r, select.POLLIN)
        self._tell(Spawned(worker_id=spawn.worker_id, pid=pid), child.pidfd)

    def _become_worker(self, words_w: int) -> None:
        """In the fork: let go of everything that is the zygote's."""
        signal.set_wakeup_fd(-1)
        linux.reset_signals()
        self._prepare_worker()
        os.dup2(words_w, 2)
        os.close(words_w)
        self._requests.close()
        for fd in (self._wake_r, self._wake_w):
            os.close(fd)
        for child in self._children.values():
            os.close(child.pidfd)
            if child.words_fd >= 0:
                os.close(child.words_fd)

    def _kill(self, worker_id: WorkerId) -> None:
        for child in self._children.values():
            if child.worker_id == worker_id:
                child.deliberate = True
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    def _tell(self, report: Report, pidfd: int | None = None) -> None:
        """In order; a supervisor that does not read for a while holds nothing up here. One that left needs no word."""
        if self._leave_by is not None:
            return
        self._unsent.append((encode(report), () if pidfd is None else (os.dup(pidfd),)))
        self._send_reports()

    def _send_reports(self) -> None:
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                socket.send_fds(self._requests, [data], fds)
            except BlockingIOError:
                self._poll.register(self._requests, select.POLLIN | select.POLLOUT)
                return
            except (BrokenPipeError, ConnectionResetError):
                self._begin_leaving()
            self._unsent.popleft()
            for fd in fds:
                os.close(fd)
        if self._leave_by is None:
            self._poll.register(self._requests, select.POLLIN)

    # Children

    def _listen(self, child: _Child) -> None:
        """Rule 5."""
        try:
            data = os.read(child.words_fd, _READ_BYTES)
        except BlockingIOError:
            return
        child.words = (child.words + data)[-WORDS_BYTES:]
        if not data:
            self._poll.unregister(child.words_fd)
            os.close(child.words_fd)
            child.words_fd = -1

    def _reap(self) -> None:
        """Workers that ended are reported and swept after; orphans that ended are just reaped."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None:
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: _Child, status: int) -> None:
        if child.words_fd >= 0:
            self._listen(child)
        if child.words_fd >= 0:
            self._poll.unregister(child.words_fd)
            os.close(child.words_fd)
        os.close(child.pidfd)
        words = child.words.decode("utf-8", "replace").strip()
        if words:
            os.write(2, f"{child.worker_id} ended with {status}:\n{words}\n".encode())
        self._tell(Exited(worker_id=child.worker_id, pid=child.pid, status=status, words=words))
        grace_s = 0.0 if child.deliberate else times.DEATH_GRACE_S
        self._sweeps[child.worker_id] = self._sweep(grace_s)

    def _sweep(self, grace_s: float) -> trees.Sweep:
        return trees.Sweep(os.getpid(), spare=self._live, tracked=self._live, grace_s=grace_s, now=time.monotonic())

    def _live(self) -> frozenset[int]:
        return frozenset(self._children)

    def _sweep_on(self) -> None:
        """Rule 3, a round for each sweep that is due."""
        now = time.monotonic()
        for worker_id, sweep in list(self._sweeps.items()):
            if sweep.step(now) is None:
                del self._sweeps[worker_id]
                ended = sweep.result
                self._tell(Swept(worker_id=worker_id, killed=ended.killed, survivors=len(ended.survivors)))

    # The end

    def _begin_leaving(self) -> None:
        """Rule 4."""
        if self._leave_by is not None:
            return
        self._leave_by = time.monotonic() + times.ZYGOTE_PATIENCE_S
        self._poll.unregister(self._supervisor_pidfd)
        self._poll.unregister(self._requests)
        for child in self._children.values():
            if not child.watches:
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    def _left(self) -> bool:
        self._reap()
        if not processes.children(os.getpid()):
            return True
        if self._leave_by is not None and time.monotonic() >= self._leave_by:
            trees.sweep(os.getpid(), grace_s=0.0)
            return True
        return False

    def _preload(self, steps: Iterator[None]) -> None:
        """Rule 6: one step, then look for requests again."""
        if next(steps, _END) is _END:
            self._idle = None
            gc.collect()
            gc.freeze()


_END = object()


def _steps(targets: Sequence[str]) -> Iterator[None]:
    """The steps of all targets, one after the other."""
    for target in targets:
        module, _, name = target.partition(":")
        iterate: Callable[[], Iterator[None]] = getattr(importlib.import_module(module), name)
        yield from iterate()


def run(
    requests: socket.socket,
    supervisor_pidfd: int,
    *,
    roles: Mapping[str, str],
    early: Sequence[str],
    idle: Sequence[str],
    prepare_worker: Callable[[], None],
) -> None:
    """Body of the zygote process. `prepare_worker` is called in each fork, to undo what is for us alone."""
    linux.become_subreaper()
    linux.set_process_name("zygote")
    requests.setblocking(False)
    for module in early:
        importlib.import_module(module)
    gc.freeze()
    linux.set_not_dumpable()
    Zygote(requests, supervisor_pidfd, roles, idle, prepare_worker).run()
