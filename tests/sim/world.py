"""One run: the real supervisor, hosts, lanes, core and actors, and everything around them pretended."""

from collections.abc import Callable
from random import Random
from typing import TypeVar

import msgspec

from haltline.protocol import times
from haltline.protocol.boot import WorkerBoot
from haltline.protocol.client_messages import SessionOpened, ToClient
from haltline.protocol.endpoints import Endpoints, ipc
from haltline.protocol.ids import SessionId
from haltline.supervisor.clients import ClientId, ClientLane
from haltline.supervisor.runtime import LINGER_MS, Supervisor
from haltline.supervisor.sources import Sources
from sim.facts import Facts, SessionFacts, Violation
from sim.journal import MemoryJournal
from sim.loop import START_S, Process, Timeline
from sim.model import Model
from sim.plan import Plan, SessionPlan, of_seed
from sim.sockets import Network
from sim.spawner import PretendedSpawner
from sim.terminals import Owner, Terminal, Visitor
from sim.worker import Worker

ENDPOINTS = Endpoints("/run/sim")
T = TypeVar("T", bound=Terminal)
WALL_S = 1_800_000_000.0
MOST_STEPS = 60_000
MOST_S = 600.0
CLIENT_DIED_LATEST_S = 60.0
"""A client that is not told to die dies at last, so that each run ends."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a seed."""

    seed: int
    steps: int
    virtual_s: float
    problem: str | None = None


def run(seed: int, trace: Callable[[float, str, str], None] | None = None) -> Ran:
    """Never raises: what the run does wrong, whatever it is, is its problem."""
    return run_plan(of_seed(seed), trace)


def run_plan(plan: Plan, trace: Callable[[float, str, str], None] | None = None) -> Ran:
    """As run, of a plan that no seed need stand for. With a trace, a bug of the product's own is raised."""
    timeline = Timeline(trace)
    problem = None
    try:
        World(plan, timeline).run()
    except Violation as violation:
        problem = str(violation)
    except Exception as error:
        if trace is not None:
            raise
        problem = f"{type(error).__name__}: {error}"
    return Ran(seed=plan.seed, steps=timeline.steps, virtual_s=timeline.now - START_S, problem=problem)


class World:
    def __init__(self, plan: Plan, timeline: Timeline) -> None:
        self.plan = plan
        self.timeline = timeline
        self.rng = Random(plan.seed + 1)
        self.journal = MemoryJournal()
        self.facts = Facts(timeline, self.journal)
        self.facts.asked = lambda session_id: self._models[session_id].asked
        self.network = Network(timeline)
        self.process = Process(timeline, "supervisor")
        self.ended = False
        self.left_at: float | None = None
        """When the supervisor had no session any more and began to leave."""
        self.client_left_at: float | None = None
        self._models: dict[SessionId, Model] = {}
        self._plans: dict[SessionId, SessionPlan] = {}
        self.process.perform(self._start)

    def _start(self) -> None:
        """In the supervisor's process."""
        rng = self.rng
        token, other = rng.randbytes(16), rng.randbytes(16)
        self.spawner = PretendedSpawner(self.timeline, self.process, self.facts, rng)
        self.spawner.make = self._worker
        self.spawner.late_sweeps = rng.choice((0.0, 0.0, 0.0, 0.2))
        self.facts.sweeps_are_late = self.spawner.late_sweeps > 0
        self.supervisor = Supervisor(
            self.network.context(self.process),
            ENDPOINTS,
            self.spawner,
            token=token,
            supervisor_pidfd=3,
            open_journal=lambda _path: self.journal,
            sources=Sources(wall_s=lambda: WALL_S + self.timeline.now, jitter=rng.random, random_bytes=rng.randbytes),
        )
        self.supervisor.grant(other)
        self._listen_in(self.supervisor._clients)
        self.process.create_task(self._serve())
        self.visitor = self._terminal(Visitor, "visitor", other)
        self.visitor.begin()
        self.owner = self._terminal(Owner, "owner", token, full=rng.choice((0.0, 0.0, 0.02)))
        self.owner.begin(self.plan, self.visitor, self._prompted)
        self._faults()

    def _terminal(self, kind: type[T], name: str, token: bytes, *, full: float = 0.0) -> T:
        return kind(
            name,
            token,
            timeline=self.timeline,
            network=self.network,
            facts=self.facts,
            address=ipc(ENDPOINTS.clients),
            rng=self.rng,
            full=full,
        )

    async def _serve(self) -> None:
        """As supervisor/main.py does it."""
        await self.supervisor.ended()
        self.left_at = self.timeline.now
        await self.supervisor.leave()
        self.ended = True

    def _worker(self, boot: WorkerBoot, on_death: Callable[[Worker, str], None]) -> Worker:
        plan = self._plans[boot.session_id]
        return Worker(
            boot,
            plan,
            Random(plan.seed * 1_000 + int(boot.worker_id.split("-")[2]) * 2 + (boot.role == "llm")),
            self._models[boot.session_id],
            timeline=self.timeline,
            network=self.network,
            facts=self.facts,
            on_death=on_death,
        )

    def _listen_in(self, lane: ClientLane) -> None:
        """Sees what is said to clients before the lane has to keep any of it back."""
        send = lane.send

        def listened(client: ClientId, message: ToClient) -> None:
            if isinstance(message, SessionOpened):
                self._opened(message.session_id)
            self.facts.told_client(client, message)
            send(client, message)

        lane.send = listened  # type: ignore[method-assign]

    def _opened(self, session_id: SessionId) -> None:
        model = self.supervisor._hosts[session_id].settings.model
        plan = self._plans[session_id] = next(plan for plan in self.plan.sessions if plan.settings.model == model)
        self.facts.sessions[session_id] = SessionFacts(plan=plan)
        self._models[session_id] = Model(plan, Random(plan.seed))

    def _prompted(self, session_id: SessionId) -> None:
        self._models[session_id].prompted()

    def _faults(self) -> None:
        plan, line = self.plan, self.timeline
        for when, seconds in plan.supervisor_stops:
            line.after(when, self._stop_supervisor, seconds)
        for when, seconds in plan.suspends:
            line.after(when, self._suspend, seconds)
        if plan.zygote_dies_s is not None:
            line.after(plan.zygote_dies_s, self._zygote_dies)
        for _ in range(plan.looks):
            line.after(self.rng.random() * 2, self.visitor.look)
        for session in plan.sessions:
            if session.breaks_journal_after_s is not None:
                line.after(session.breaks_journal_after_s, self._disk_full)
        line.after(CLIENT_DIED_LATEST_S if plan.client_dies_s is None else plan.client_dies_s, self._client_dies)

    def _stop_supervisor(self, seconds: float) -> None:
        self.facts.lost_s += seconds
        self.process.stop_for(seconds)

    def _suspend(self, seconds: float) -> None:
        self.timeline.tell("machine", f"is suspended for {seconds:.1f} s")
        self.facts.lost_s += seconds
        self.timeline.jump(seconds)

    def _zygote_dies(self) -> None:
        self.facts.everyone_was_stopped = True
        self.spawner.zygote_dies()

    def _disk_full(self) -> None:
        self.timeline.tell("disk", "is full")
        self.facts.everyone_was_stopped = True
        self.journal.full_disk = True

    def _client_dies(self) -> None:
        """The owner is killed; the supervisor sees it by a descriptor."""
        if self.owner.gone:
            return
        self.timeline.tell("owner", "dies")
        self.facts.everyone_was_stopped = True
        self.owner.leave()
        self.client_left_at = self.timeline.now
        if not self.ended:
            self.process.call_soon(self.supervisor.client_left).reader = True

    def run(self) -> None:
        line, facts = self.timeline, self.facts
        hosts = self.supervisor._hosts
        while not self.ended:
            facts.check(line.step(), "nothing is to come, and the supervisor has not ended")
            if line.acted is self.process:
                facts.look(hosts)
            facts.check(line.steps < MOST_STEPS, "it never ends")
            if self.client_left_at is not None:
                allowed = times.client_lost_s() + times.closed_s() + facts.lost_s + 1.0
                facts.check(line.now - self.client_left_at < allowed, "the supervisor outlives its client")
        last_words = line.now + LINGER_MS / 1000
        while line.now < last_words and line.step():
            pass
        self._check_quiet()

    def _check_quiet(self) -> None:
        """Nothing is left, neither of processes nor of promises."""
        facts, supervisor = self.facts, self.supervisor
        facts.check(facts.living() == 0, "workers live on after the end")
        facts.check(not facts._attempts and not facts._trees, "attempts or trees are left")
        facts.check(self.journal.out_of_order is None, str(self.journal.out_of_order))
        facts.check(not supervisor._hosts, "sessions are remembered")
        remembered = supervisor._by_worker  # of a tree that was given up the sweep is still awaited
        facts.check(not remembered or facts.sweeps_are_late, f"workers are remembered: {list(remembered)}")
        mailbox = supervisor._mailbox
        facts.check(not (mailbox._expected or mailbox._proven or mailbox._full), "the mailbox remembers workers")
        left = [timer for timer in self.timeline.pending(self.process) if not timer.reader]
        facts.check(not left, f"timers are left: {left}")
        for session in facts.sessions.values():
            facts.check(not session.running or session.broken or self.owner.gone, "a run has no result")
        if not self.owner.gone:
            unanswered = self.visitor.unanswered(self.left_at or self.timeline.now)
            facts.check(unanswered == 0, f"the second terminal waits for {unanswered} answers")
