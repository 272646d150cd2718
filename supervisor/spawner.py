"""The supervisor's side of the zygote: starts workers, knows their ends, has their trees swept.

1. A worker is known by its pidfd, which came from its parent. It is killed through that, and the zygote is told
   first, so that its sweep gives no grace.
2. The zygote reports each end (Exited, with the last words) and each sweep (Swept). While it lives, its word counts.
3. Zygote dead: its children, living workers, orphans and the spare alike, have become ours. Ends of those workers are
   then seen through the pidfds, and what is below us and is no living worker and not the spare is swept here.
4. The spare is the zygote from then on. It is asked again for the workers that were asked for and not reported: none
   of them has begun (zygote.py, rule 8). The first of them may be what it died of: it takes requests in order. A
   request over which two zygotes died is a failed start.
5. Without a spare no worker can be started any more: each is a failed start, in words, and a run that needs one ends.
6. A zygote that is stopped, or silent, while it owes something (the start of a worker, the word of a death that the
   pidfd shows, a sweep) is killed, and rule 3 holds. One that owes nothing may be stopped as long as it likes. Time is
   counted in looks, so that a supervisor that was stopped itself blames nobody.
"""

import asyncio
import os
import socket
from collections.abc import Callable

import msgspec

from haltline.protocol import deaths, marks, times, trees
from haltline.protocol.ids import WorkerId
from haltline.supervisor import zygote_messages
from haltline.supervisor.zygote_link import ZygoteLink

DEATHS = 2
"""Zygotes that may die over one request (rule 4)."""
STOPPED_LOOKS = 2
"""In a row: a single one may be a debugger that holds it for a moment."""
GONE = "the process that starts workers is gone"
DEADLY = "the process that starts workers died, twice, when it was asked for this one"


class WorkerProcess(msgspec.Struct, kw_only=True):
    """A worker that was asked for, until its tree was swept."""

    request: zygote_messages.Spawn
    listener_fd: int = -1
    """Goes with the request; kept until the worker is reported. -1: none."""
    deaths: int = 0
    """Zygotes that died when this was the first that they had been asked for and had not reported (rule 4)."""
    pid: int = 0
    """0 until the zygote reported it."""
    pidfd: int = -1
    owed_since: int = 0
    """The look at which the zygote began to owe what it owes now (rule 6)."""
    killed: bool = False
    taken_along: int = 0
    """Processes that its namespace ended with it, where it was killed by us: no sweep finds them any more."""
    dead: bool = False
    """The pidfd shows it."""
    exited: bool = False
    """Reported, or seen dead as ours."""
    ours: bool = False
    """Its zygote is dead (rule 3)."""

    @property
    def worker_id(self) -> WorkerId:
        return self.request.worker_id


def patience_s(worker: WorkerProcess) -> float | None:
    """How long the zygote may be silent about this worker; None: it owes nothing (rule 6)."""
    if worker.ours:
        return None
    if worker.exited:
        return times.gone_s()
    if worker.dead:
        return times.ZYGOTE_WORD_S
    return None if worker.pid else times.ZYGOTE_SILENCE_S


class Spawner:
    """Asked for nothing before `listen`."""

    def __init__(self, requests: socket.socket, zygote_pid: int, *, chain: str) -> None:
        """`chain`: its name (marks.py)."""
        self._chain = chain
        self._zygote: ZygoteLink | None = ZygoteLink(zygote_pid, deaths.of_child(zygote_pid), requests)
        """None: dead, and there was no spare (rule 5)."""
        self._spare: ZygoteLink | None = None
        self._quitting = False
        self._workers: dict[WorkerId, WorkerProcess] = {}
        self._loop = asyncio.get_running_loop()
        self._looks = 0
        self._last_report = 0
        """The look before which the zygote last said something."""
        self._stopped_looks = 0
        self._looking: asyncio.TimerHandle | None = None
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
        if self._zygote is not None:
            self._zygote.listen(self._on_report, self._zygote_died)

    def spawn(
        self,
        worker_id: WorkerId,
        role: str,
        boot: bytes,
        listener: socket.socket | None = None,
        *,
        namespaced: bool = False,
    ) -> None:
        with_socket = listener is not None
        request = zygote_messages.Spawn(
            worker_id=worker_id,
            role=role,
            boot=boot,
            with_socket=with_socket,
            namespaced=namespaced,
            watches=not with_socket,
        )
        listener_fd = -1 if listener is None else os.dup(listener.fileno())
        worker = self._workers[worker_id] = WorkerProcess(request=request, listener_fd=listener_fd)
        if self._zygote is None:
            self._loop.call_soon(self._lost, worker_id, GONE)
        else:
            self._request(self._zygote, worker)

    def kill(self, worker_id: WorkerId) -> None:
        """SIGKILL, and everything under it, without grace. Does nothing if it is dead already."""
        worker = self._workers.get(worker_id)
        if worker is None or worker.exited:
            return
        if worker.request.namespaced and worker.pid and not worker.killed:
            worker.taken_along = len(trees.descendants(worker.pid))
        worker.killed = True
        if self._zygote is not None and not worker.ours:
            self._zygote.ask(zygote_messages.Kill(worker_id=worker_id))  # rule 1
        if worker.pidfd >= 0:
            deaths.kill(worker.pidfd)

    def living(self) -> frozenset[int]:
        """Pids of the workers that are not known to be dead."""
        return frozenset(worker.pid for worker in self._workers.values() if worker.pid and not worker.exited)

    def quit(self) -> None:
        """No more workers: the zygote leaves once it has no child."""
        self._quitting = True
        if self._zygote is not None:
            self._zygote.ask(zygote_messages.Quit())

    def kill_zygote(self) -> None:
        """It, and its spare, which is of no use without a supervisor."""
        for link in (self._zygote, self._spare):
            if link is not None:
                link.kill()

    def _request(self, to: ZygoteLink, worker: WorkerProcess) -> None:
        to.ask(worker.request, () if worker.listener_fd < 0 else (os.dup(worker.listener_fd),))
        self._expect(worker)

    # Reports

    def _on_report(self, report: zygote_messages.Report, fds: list[int]) -> None:
        self._last_report = self._looks + 1
        match report:
            case zygote_messages.Spawned(worker_id=worker_id, pid=pid):
                zygote_messages.let_begin(fds[1])
                self._spawned(worker_id, pid, fds[0])
            case zygote_messages.Exited(worker_id=worker_id, words=words):
                self._exited(worker_id, words)
            case zygote_messages.Swept(worker_id=worker_id, killed=killed, survivors=survivors):
                self._swept(worker_id, killed, survivors)
            case zygote_messages.SpareReady(pid=pid):
                zygote_messages.let_begin(fds[1])
                if self._spare is not None:
                    self._spare.close()
                self._spare = ZygoteLink(pid, deaths.came(fds[0], pid), socket.socket(fileno=fds[2]))

    def _spawned(self, worker_id: WorkerId, pid: int, pidfd: int) -> None:
        worker = self._workers[worker_id]
        worker.pid = pid
        worker.pidfd = deaths.came(pidfd, pid)
        _close_listener(worker)
        self._loop.add_reader(pidfd, self._seen_dead, worker)
        if worker.killed:
            deaths.kill(pidfd)
        self._on_spawned(worker_id, pid)

    def _seen_dead(self, worker: WorkerProcess) -> None:
        """The pidfd shows a death: the zygote's word of it, with the last words, follows."""
        worker.dead = True
        self._loop.remove_reader(worker.pidfd)
        self._expect(worker)

    def _exited(self, worker_id: WorkerId, words: str) -> None:
        worker = self._workers.get(worker_id)
        if worker is None or worker.exited:
            return
        worker.exited = True
        _close_listener(worker)
        if worker.pidfd >= 0:
            self._loop.remove_reader(worker.pidfd)
            os.close(worker.pidfd)
            worker.pidfd = -1
        self._expect(worker)
        self._on_exited(worker_id, words)

    def _swept(self, worker_id: WorkerId, killed: int, survivors: int) -> None:
        worker = self._workers.pop(worker_id, None)
        if worker is not None:
            self._on_swept(worker_id, killed + worker.taken_along, survivors)

    def _lost(self, worker_id: WorkerId, words: str) -> None:
        self._exited(worker_id, words)
        self._swept(worker_id, 0, 0)

    # Rule 6

    def _expect(self, worker: WorkerProcess) -> None:
        """From now on the zygote owes something about this worker."""
        worker.owed_since = self._looks
        if self._looking is None and not worker.ours:
            self._looking = self._loop.call_later(times.ZYGOTE_LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        owing = [worker for worker in self._workers.values() if patience_s(worker) is not None]
        if self._zygote is None or not owing:
            self._stopped_looks = 0
            return
        self._looks += 1
        self._stopped_looks = self._stopped_looks + 1 if self._zygote.is_stopped() else 0
        if self._stopped_looks >= STOPPED_LOOKS or any(self._is_overdue(worker) for worker in owing):
            self._zygote.kill()
        self._looking = self._loop.call_later(times.ZYGOTE_LOOK_S, self._look)

    def _is_overdue(self, worker: WorkerProcess) -> bool:
        limit_s = patience_s(worker)
        silent_s = (self._looks - max(worker.owed_since, self._last_report)) * times.ZYGOTE_LOOK_S
        return limit_s is not None and silent_s >= limit_s

    # Rules 3 to 5

    def _zygote_died(self) -> None:
        """Its reports have all been read."""
        assert self._zygote is not None, "a zygote dies once"
        self._zygote.close()
        self._zygote = self._successor()
        if self._zygote is None:
            self.zygote_ended.set()
        unreported = [worker for worker in self._workers.values() if not worker.pid and not worker.exited]
        for worker in unreported[:1]:
            worker.deaths += 1
        for worker in list(self._workers.values()):
            if worker.pidfd >= 0:
                worker.ours = True
                self._loop.add_reader(worker.pidfd, self._worker_died, worker)  # in place of rule 2's
            elif worker.exited and not worker.ours:
                worker.ours = True
                self._sweep(worker)
            elif not worker.exited:
                self._ask_again(worker)
        self._sweep_rest()

    def _successor(self) -> ZygoteLink | None:
        """The spare, told that it is the zygote now."""
        spare, self._spare = self._spare, None
        if spare is None:
            return None
        if self._quitting or not spare.is_alive():
            spare.kill()
            spare.close()
            return None
        spare.listen(self._on_report, self._zygote_died)
        spare.ask(zygote_messages.Serve())
        return spare

    def _ask_again(self, worker: WorkerProcess) -> None:
        """Rule 4."""
        if self._zygote is None or worker.killed:
            self._lost(worker.worker_id, GONE)
        elif worker.deaths >= DEATHS:
            self._lost(worker.worker_id, DEADLY)
        else:
            self._request(self._zygote, worker)

    def _worker_died(self, worker: WorkerProcess) -> None:
        self._exited(worker.worker_id, "")
        self._sweep(worker)

    def _sweep(self, worker: WorkerProcess) -> None:
        """A dead worker of ours, and what is left of its tree."""
        grace_s = times.NO_GRACE_S if worker.killed else times.DEATH_GRACE_S
        sweep = self._sweep_here(grace_s, marks.look_for_tools_of(self._chain, worker.worker_id))
        self._sweep_on(sweep, lambda: self._swept(worker.worker_id, sweep.result.killed, len(sweep.result.survivors)))

    def _sweep_rest(self) -> None:
        """What the dead zygote was ending, and what it had forked and not let begin."""
        self._sweep_on(self._sweep_here(times.DEATH_GRACE_S, None), lambda: None)

    def _sweep_here(self, grace_s: float, look: Callable[[], marks.MarkedLook] | None) -> trees.Sweep:
        return trees.Sweep(os.getpid(), spare=self._spared, grace_s=grace_s, now=self._loop.time(), look=look)

    def _spared(self) -> frozenset[int]:
        zygotes = () if self._zygote is None else (self._zygote.pid,)
        return self.living().union(zygotes)

    def _sweep_on(self, sweep: trees.Sweep, then: Callable[[], None]) -> None:
        again_s = sweep.step(self._loop.time())
        if again_s is None:
            then()
        else:
            self._loop.call_later(again_s, self._sweep_on, sweep, then)


def _close_listener(worker: WorkerProcess) -> None:
    if worker.listener_fd >= 0:
        os.close(worker.listener_fd)
        worker.listener_fd = -1
