"""The spawner and the zygote in one: forks workers, reports their ends, sweeps after them, all in virtual time.

It keeps the contract of supervisor/spawner.py. A report is something that the supervisor reads, so it waits while the
supervisor is stopped.
"""

import asyncio
import socket
from collections.abc import Callable
from random import Random

import msgspec

from haltline.protocol.boot import WorkerBoot
from haltline.protocol.ids import WorkerId
from haltline.protocol.times import DEATH_GRACE_S, gone_s
from haltline.supervisor.spawner import GONE
from sim.facts import Facts
from sim.loop import Process, Timeline, Timer
from sim.worker import Worker

FORK_S = 0.002
REPORT_S = 0.0005
_decode = msgspec.msgpack.Decoder(WorkerBoot).decode


class PretendedSpawner:
    """`make(boot)` makes a worker process that has not begun."""

    def __init__(self, timeline: Timeline, supervisor: Process, facts: Facts, rng: Random) -> None:
        self.zygote_ended = asyncio.Event()
        self.make: Callable[[WorkerBoot, Callable[[Worker, str], None]], Worker]
        self.late_sweeps = 0.0
        """Chance that a tree is seen gone only after the supervisor has given up waiting for that."""
        self._timeline = timeline
        self._supervisor = supervisor
        self._facts = facts
        self._rng = rng
        self._alive = True
        self._pids = 100
        self._asked: set[WorkerId] = set()
        """Asked for and not forked yet."""
        self._killed: set[WorkerId] = set()
        self._workers: dict[WorkerId, Worker] = {}

    def listen(
        self,
        *,
        on_spawned: Callable[[WorkerId, int], None],
        on_exited: Callable[[WorkerId, str], None],
        on_swept: Callable[[WorkerId, int, int], None],
    ) -> None:
        self._on_spawned = on_spawned
        self._on_exited = on_exited
        self._on_swept = on_swept

    def spawn(
        self,
        worker_id: WorkerId,
        role: str,  # noqa: ARG002 the boot says it too
        boot: bytes,
        listener: socket.socket | None = None,  # noqa: ARG002 of the gateway alone
        *,
        namespaced: bool = False,  # noqa: ARG002
    ) -> None:
        self._timeline.tell("supervisor", f"asks for {worker_id}")
        self._asked.add(worker_id)
        if self._alive:
            self._timeline.after(FORK_S * (0.5 + self._rng.random()), self._fork, _decode(boot))
        else:
            self._report(0.0, self._lost, worker_id)

    def kill(self, worker_id: WorkerId) -> None:
        worker = self._workers.get(worker_id)
        if worker_id in self._asked:
            self._killed.add(worker_id)
        elif worker is not None and not worker.process.dead:
            self._timeline.tell("supervisor", f"kills {worker_id}")
            self._facts.check(not worker.deliberate, f"{worker_id} is killed twice")
            self._facts.killed(worker.boot)
            worker.deliberate = True
            self._timeline.after(REPORT_S / 5, worker.die, "")

    def quit(self) -> None:
        self._timeline.after(0.01, self._zygote_left)

    def kill_zygote(self) -> None:
        self._timeline.tell("supervisor", "kills the zygote")

    def zygote_dies(self) -> None:
        if not self._alive:
            return
        self._timeline.tell("zygote", "dies")
        self._alive = False
        self._report(REPORT_S, self.zygote_ended.set)
        for worker_id in self._asked:
            self._report(REPORT_S, self._lost, worker_id)

    def _zygote_left(self) -> None:
        self._alive = False
        self._report(0.0, self.zygote_ended.set)

    def _fork(self, boot: WorkerBoot) -> None:
        if boot.worker_id not in self._asked or not self._alive:
            return
        self._asked.discard(boot.worker_id)
        self._facts.worker_born(boot)
        worker = self._workers[boot.worker_id] = self.make(boot, self._died)
        self._pids += 1
        self._report(REPORT_S, self._on_spawned, boot.worker_id, self._pids)
        if boot.worker_id in self._killed:
            worker.deliberate = True
            worker.die("")
        else:
            worker.begin()

    def _died(self, worker: Worker, words: str) -> None:
        worker_id = worker.boot.worker_id
        rng = self._rng
        self._report(REPORT_S * (1 + rng.random()), self._on_exited, worker_id, words)
        sweep_s = 0.005 + rng.random() * (0.05 if worker.deliberate else DEATH_GRACE_S)
        if not worker.plan.calm and rng.random() < self.late_sweeps:
            sweep_s += gone_s()
        self._timeline.after(sweep_s, self._swept, worker_id)

    def _swept(self, worker_id: WorkerId) -> None:
        killed = self._facts.swept(worker_id)
        self._report(REPORT_S, self._on_swept, worker_id, killed, 0)

    def _lost(self, worker_id: WorkerId) -> None:
        if worker_id in self._asked:
            self._asked.discard(worker_id)
            self._on_exited(worker_id, GONE)
            self._on_swept(worker_id, 0, 0)

    def _report(self, after_s: float, callback: Callable[..., object], *args: object) -> None:
        timer = Timer(self._timeline.now + after_s, self._supervisor, callback, args)
        timer.reader = True
        self._timeline.push(timer)
