"""The zygote: single thread, everything imported, no ZeroMQ context ever; forks workers and sweeps after dead ones.

1. Requests and reports travel on one socket pair that both sides have by birth. Reports carry the worker's pidfd:
   the zygote is the parent, so the pid cannot have been given to another before it is opened.
2. Requests are read before children are reaped: a deliberate kill is known as such when its death is seen, and
   its tree gets no grace. After any other death the tools of that worker get DEATH_GRACE_S.
3. Orphans of a dead tool worker become the zygote's children. Every child that is no live worker is such an orphan.
   Those of several dead workers cannot be told apart: while two are swept, the shorter grace counts for both. Where
   there are no subreapers they are known by their worker's cookie (protocol/marks.py).
4. The supervisor's death is seen through its pidfd. Workers see it too and leave by themselves; what is left after
   ZYGOTE_PATIENCE_S is killed. The embedded gateway knows of no supervisor and is killed at once. The zygote goes when
   it has no child.
5. A worker's stderr is a pipe that the zygote reads: its last words travel with the report of its end and go to the
   log. A worker that cannot start is known at once by its end.
6. While nothing is asked of it, the zygote imports, step by step, what LLM workers need: a fork has as much of it as
   was done by then, and does the rest itself.
7. Its spare is a fork of it that does nothing until the supervisor, which has the other end of its requests, says
   Serve: then it is the zygote. It is forked when everything is imported, whose pages it then shares; forked before
   that, it made the first request 6 ms later. One that dies is replaced, SPARES in SPARES_WINDOW_S; one that begins to
   serve has a spare of its own before it serves anybody. The end of the zygote's own work is its spare's end too.
8. A worker, or a spare, begins when the supervisor has the report of it and says so, through a pipe whose writing end
   travels with the report and is nowhere else. So what was asked for and is not reported when the zygote dies never
   begins, and may be asked for again (spawner.py); what is reported begins, whoever has died since.
9. A burst is read at once and served one fork a turn: no kill and no death waits until a hundred workers are forked,
   5 ms each and more. A worker that is killed before its turn is never forked.
"""

import contextlib
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

from haltline.protocol import deaths, linux, marks, processes, times, trees
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.ids import WorkerId
from haltline.supervisor.beginning import begin
from haltline.supervisor.chain import fork
from haltline.supervisor.namespaced import UNTRIED, Namespaces
from haltline.supervisor.pairs import message_pair
from haltline.supervisor.zygote_messages import (
    REQUEST_BYTES,
    Exited,
    Kill,
    Quit,
    Report,
    Serve,
    SpareReady,
    Spawn,
    Spawned,
    Swept,
    decode_request,
    encode,
    may_begin,
)

SPARES = 3
SPARES_WINDOW_S = 60.0
"""Rule 7: a spare that is replaced for ever would cost more than the lack of one."""
WORDS_BYTES = 4_096
"""Kept of a worker's stderr as its last words."""
_READ_BYTES = 65_536


class _Child(msgspec.Struct, kw_only=True):
    worker_id: WorkerId
    pid: int
    pidfd: int
    words_fd: int
    watches: bool
    words: bytes = b""
    deliberate: bool = False


class _Spare(msgspec.Struct, frozen=True):
    pid: int
    pidfd: int


class Zygote:
    """State of the zygote's loop."""

    def __init__(
        self,
        requests: socket.socket,
        supervisor_pidfd: int,
        roles: Mapping[str, str],
        idle: Iterator[None] | None,
        prepare_worker: Callable[[], None],
        namespaces: Namespaces,
        *,
        chain: str,
        is_spare: bool = False,
    ) -> None:
        """`idle`: the steps of rule 6 that are not done yet. `chain`: its name (marks.py)."""
        self._requests = requests
        self._supervisor_pidfd = supervisor_pidfd
        self._roles = roles
        self._prepare_worker = prepare_worker
        self._namespaces = namespaces
        self._chain = chain
        self._idle = idle
        self._is_spare = is_spare
        self._spawns: deque[tuple[Spawn, int | None]] = deque()
        """Rule 9: asked for and not forked, with the socket that came along."""
        self._children: dict[int, _Child] = {}
        self._sweeps: dict[WorkerId, trees.Sweep] = {}
        self._leave_by: float | None = None
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        """Reports that wait for room in the socket, with descriptors of their own."""
        self._spare: _Spare | None = None
        self._spare_deaths: tuple[float, ...] = ()
        """Of the last SPARES_WINDOW_S, monotonic."""
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
            self._spawn_next()
            if self._supervisor_pidfd in ready:
                self._begin_leaving()
            for child in [child for child in self._children.values() if child.words_fd in ready]:
                self._listen(child)
            if self._wake_r in ready:
                os.read(self._wake_r, _READ_BYTES)
                self._reap()
            self._sweep_on()
            if not ready and not self._spawns and self._leave_by is None and not self._is_spare:
                self._use_quiet_moment()
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
        if self._spawns:
            return 0.0
        if self._sweeps:
            return 5.0
        if self._leave_by is not None:
            return max(0.0, (self._leave_by - time.monotonic()) * 1000)
        if self._is_spare:
            return None
        if self._idle is not None:
            return 0.0
        return None if self._spare is not None else max(0.0, (self._spare_at() - time.monotonic()) * 1000)

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
            match decode_request(data):
                case Spawn() as spawn:
                    self._spawns.append((spawn, fds[0] if fds else None))
                case Kill(worker_id=worker_id):
                    self._kill(worker_id)
                case Quit():
                    self._begin_leaving()
                case Serve():
                    self._is_spare = False
                    linux.set_process_name("zygote")
                    self._fork_spare()  # first of all: what killed its predecessor may be the next request

    def _spawn_next(self) -> None:
        """Rule 9."""
        if self._spawns:
            self._spawn(*self._spawns.popleft())

    def _spawn(self, spawn: Spawn, extra_fd: int | None) -> None:
        words_r, words_w = os.pipe()
        go_r, go_w = os.pipe()
        os.set_blocking(words_r, False)
        entry = self._roles[spawn.role]

        def body() -> None:
            os.close(words_r)
            os.close(go_w)
            self._become_worker(words_w)
            if not may_begin(go_r):
                return
            begin(entry, spawn.boot, extra_fd, watched_fd=self._supervisor_pidfd)

        try:
            pid = self._namespaces.fork(body, words_w) if spawn.namespaced else fork(body)
        except ConfigurationProblem as problem:
            _close(words_r, go_w)
            self._never(spawn, None, str(problem))
            return
        finally:
            _close(words_w, go_r, -1 if extra_fd is None else extra_fd)
        child = _Child(
            worker_id=spawn.worker_id, pid=pid, pidfd=deaths.of_child(pid), words_fd=words_r, watches=spawn.watches
        )
        self._children[pid] = child
        self._poll.register(words_r, select.POLLIN)
        self._tell(Spawned(worker_id=spawn.worker_id, pid=pid), (os.dup(child.pidfd), go_w))

    def _never(self, spawn: Spawn, extra_fd: int | None, words: str) -> None:
        """It was not forked, and will not be."""
        if extra_fd is not None:
            os.close(extra_fd)
        self._tell(Exited(worker_id=spawn.worker_id, pid=0, status=1, words=words))
        self._tell(Swept(worker_id=spawn.worker_id, killed=0, survivors=0))

    def _become_worker(self, words_w: int) -> None:
        """In the fork of a worker."""
        self._let_go()
        linux.reset_signals()
        self._prepare_worker()
        self._namespaces.let_go()
        os.dup2(words_w, 2)
        os.close(words_w)

    def _let_go(self) -> None:
        """In a fork: close everything that is the zygote's."""
        signal.set_wakeup_fd(-1)
        self._requests.close()
        for fd in (self._wake_r, self._wake_w):
            os.close(fd)
        for child in self._children.values():
            os.close(child.pidfd)
            if child.words_fd >= 0:
                os.close(child.words_fd)
        for _, fds in self._unsent:
            _close(*fds)
        for _, extra_fd in self._spawns:
            _close(-1 if extra_fd is None else extra_fd)
        if self._spare is not None:
            os.close(self._spare.pidfd)

    def _kill(self, worker_id: WorkerId) -> None:
        """Rules 2 and 9."""
        for waiting in [waiting for waiting in self._spawns if waiting[0].worker_id == worker_id]:
            self._spawns.remove(waiting)
            self._never(*waiting, "")
        for child in self._children.values():
            if child.worker_id == worker_id:
                child.deliberate = True
                deaths.kill(child.pidfd)

    def _tell(self, report: Report, fds: tuple[int, ...] = ()) -> None:
        """In order; a supervisor that does not read for a while holds nothing up here. One that left needs no word.
        `fds` go with it, and are not ours any more."""
        if self._leave_by is not None:
            _close(*fds)
            return
        self._unsent.append((encode(report), fds))
        self._send_reports()

    def _send_reports(self) -> None:
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                socket.send_fds(self._requests, [data], fds)
            except BlockingIOError:
                self._poll.register(self._requests, select.POLLIN | select.POLLOUT)
                return
            except ConnectionError:
                self._begin_leaving()
            self._unsent.popleft()
            _close(*fds)
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
            elif self._spare is not None and self._spare.pid == pid:
                os.close(self._spare.pidfd)
                self._spare = None  # rule 7
                self._spare_deaths = (*self._spare_deaths, time.monotonic())[-SPARES:]

    def _ended(self, child: _Child, status: int) -> None:
        if child.words_fd >= 0:
            self._listen(child)
        if child.words_fd >= 0:
            self._poll.unregister(child.words_fd)
            os.close(child.words_fd)
        os.close(child.pidfd)
        words = child.words.decode("utf-8", "replace").strip()
        if words:
            with contextlib.suppress(OSError):  # a disk that takes no log costs the words there, not the zygote
                os.write(2, f"{child.worker_id} ended with {status}:\n{words}\n".encode())
        self._tell(Exited(worker_id=child.worker_id, pid=child.pid, status=status, words=words))
        grace_s = 0.0 if child.deliberate else times.DEATH_GRACE_S
        self._sweeps[child.worker_id] = self._sweep(child.worker_id, grace_s)

    def _sweep(self, worker_id: WorkerId, grace_s: float) -> trees.Sweep:
        return trees.Sweep(
            os.getpid(),
            spare=self._live,
            tracked=self._live,
            grace_s=grace_s,
            now=time.monotonic(),
            look=marks.look_for_tools_of(self._chain, worker_id),
        )

    def _live(self) -> frozenset[int]:
        spare = () if self._spare is None else (self._spare.pid,)
        return frozenset((*self._children, *spare))

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
        while self._spawns:
            self._never(*self._spawns.popleft(), "")
        self._poll.unregister(self._supervisor_pidfd)
        self._poll.unregister(self._requests)
        for child in self._children.values():
            if not child.watches:
                deaths.kill(child.pidfd)
        if self._spare is not None:
            deaths.kill(self._spare.pidfd)

    def _left(self) -> bool:
        self._reap()
        if not processes.children(os.getpid()):
            return True
        if self._leave_by is not None and time.monotonic() >= self._leave_by:
            trees.sweep(os.getpid(), grace_s=0.0)
            return True
        return False

    # Quiet moments

    def _use_quiet_moment(self) -> None:
        """One step of what is to be done beside the work, then requests are looked for again."""
        if self._idle is not None:
            self._preload(self._idle)
        elif self._spare is None and time.monotonic() >= self._spare_at():
            self._fork_spare()

    def _preload(self, steps: Iterator[None]) -> None:
        """Rule 6."""
        if next(steps, _END) is not _END:
            return
        self._idle = None
        gc.collect()
        gc.freeze()

    def _spare_at(self) -> float:
        """When there may be a new spare (rule 7)."""
        return self._spare_deaths[0] + SPARES_WINDOW_S if len(self._spare_deaths) == SPARES else 0.0

    def _fork_spare(self) -> None:
        """Rule 7."""
        ours, theirs = message_pair()
        go_r, go_w = os.pipe()

        def body() -> None:
            ours.close()
            os.close(go_w)
            self._let_go()
            if not may_begin(go_r):
                return
            linux.become_subreaper()
            linux.set_process_name("spare")
            theirs.setblocking(False)
            Zygote(
                theirs,
                self._supervisor_pidfd,
                self._roles,
                self._idle,
                self._prepare_worker,
                self._namespaces,
                chain=self._chain,
                is_spare=True,
            ).run()

        try:
            pid = fork(body)
        except ConfigurationProblem:  # no room for another process: as if it had died
            self._spare_deaths = (*self._spare_deaths, time.monotonic())[-SPARES:]
            _close(go_w, ours.detach())
        else:
            self._spare = _Spare(pid, deaths.of_child(pid))
            self._tell(SpareReady(pid=pid), (os.dup(self._spare.pidfd), go_w, ours.detach()))
        os.close(go_r)
        theirs.close()


_END = object()


def _close(*fds: int) -> None:
    """-1 stands for none."""
    for fd in fds:
        if fd >= 0:
            os.close(fd)


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
    chain: str,
    namespaces: Namespaces = UNTRIED,
) -> None:
    """Body of the zygote process. `prepare_worker` is called in each fork, to undo what is for us alone."""
    linux.become_subreaper()
    linux.set_process_name("zygote")
    requests.setblocking(False)
    for module in early:
        importlib.import_module(module)
    gc.freeze()
    linux.set_not_dumpable()
    Zygote(requests, supervisor_pidfd, roles, _steps(idle), prepare_worker, namespaces, chain=chain).run()
