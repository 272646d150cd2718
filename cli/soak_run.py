"""Many sessions of one supervisor, stopped at random, their workers hurt at random, and what is left of them.

1. The plan (soak_plan.py) decides what is done to whom and when; the clock decides the rest.
2. Each round opens its sessions before it closes those of the round before (a supervisor without a session ends),
   asks each, and does to each what its plan says; a stop that comes after the end stops nothing. The round is over
   when every session has its result. In every second round the prompts wait until all workers are ready: in the
   others much of what is stopped is still starting.
3. A worker is hurt by its identity, number and start, as its `ready` event named it: never a stranger (G3).
4. After each round two things are counted by others than those who did the stopping: processes, by a walk over what
   is below this command, and streams, by the gateway's own state. Both have to be none.
5. What the supervisor said before its end counts, however late a busy machine brings it: the end of the last session is
   its own.
6. A result that the session's plan does not explain counts: what was done to one session must not reach another.
"""

import os
import signal
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from haltline.cli import witness
from haltline.cli.interrupts import Interrupted
from haltline.cli.lane import LANE, Lane, wait
from haltline.cli.loop import SupervisorLost
from haltline.cli.owned import numbers
from haltline.cli.soak_plan import Harm, Rates, SessionPlan, plan
from haltline.protocol import processes
from haltline.protocol.client_messages import (
    CancelRequest,
    CloseSession,
    OpenSession,
    Prompt,
    Refused,
    SessionClosed,
    SessionOpened,
    Shown,
    ToClient,
)
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.events import Result, Worker
from haltline.protocol.ids import ROLES, Role, SessionId
from haltline.protocol.kinds import IsolationWish, Rung
from haltline.protocol.processes import Identity
from haltline.protocol.settings import INTERACTIVE, SessionSettings

ROUND_S: Final = 60.0
"""A round needs about 4 s: a stop at 1.5 s, then 2 s for a worker that does not answer; 14 s where a hung one has to be
found without a stop (L6). One that takes longer is reported as stuck."""
LAST_WORDS_S: Final = 1.0
"""How long what a dead supervisor had sent may take through the kernel and the lane's thread; a hundred workers that
end at once may hold them up."""
STREAMS_S: Final = 2.0
"""How long the gateway may take to see that a stream was closed: it needs about a millisecond when it runs."""
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Of one session, and what was to be done to it."""

    ms: float
    rung: Rung
    plan: SessionPlan


class RoundSeen(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    seconds: float
    """From the first prompt to the last result."""
    results: dict[str, int]
    """How many ended for which reason."""
    stop_ms: dict[Rung, tuple[float, ...]]
    """From the request of each stop to its end, as the supervisor's receipts have it, by how far it had to go."""
    slowest: Stop | None
    """None: nothing was stopped."""
    killed: int
    """Workers that this command has killed."""
    stopped: int
    """Workers that this command has stopped, so that they answered nothing."""
    escalated: int
    """Workers that the supervisor had to kill because they did not answer."""
    replaced: int
    """Workers in whose place a new one was started during the round."""
    survivors: int
    open_streams: int
    stuck: int
    """Sessions without a result after ROUND_S."""
    unexplained: tuple[str, ...]
    """Rule 6: in words."""


class _State(msgspec.Struct, frozen=True):
    open_streams: int


class _Round:
    """What has come of one round so far."""

    def __init__(self, number: int, plans: Mapping[SessionId, SessionPlan]) -> None:
        self.number = number
        self.plans = plans
        self.running = set(plans)
        self.began = time.monotonic()
        self.cancels = {one: plan.cancel_at_s for one, plan in plans.items() if plan.cancel_at_s is not None}
        self.harms = {one: plan.harm for one, plan in plans.items() if plan.harm is not None}
        self.results: dict[SessionId, Result] = {}
        self.hurt: Counter[str] = Counter()

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self.began

    def next_s(self) -> float:
        """When something is to be done next, from the beginning; harm that waits for its worker waits for an event."""
        due = [*self.cancels.values(), *(harm.at_s for harm in self.harms.values())]
        return min((at for at in due if at > self.passed_s), default=ROUND_S)


class Soak:
    """`gateway_url`: base URL of a scripted gateway in a process of its own. `ours`: the sessions (of the kernel) of
    this command, its guard and its supervisor. `version` goes into the settings."""

    def __init__(
        self,
        lane: Lane,
        signals_fd: int,
        supervisor_fd: int,
        *,
        gateway_url: str,
        ours: frozenset[int],
        cwd: str,
        seed: int,
        rates: Rates,
        isolation: IsolationWish,
        version: str,
    ) -> None:
        self._lane = lane
        self._signals_fd = signals_fd
        self._supervisor_fd = supervisor_fd
        self._ours = ours
        self._gateway_url = gateway_url
        self._cwd = cwd
        self._seed = seed
        self._rates = rates
        self._isolation: IsolationWish = isolation
        self._version = version
        self._sessions: list[SessionId] = []
        self._workers: dict[tuple[SessionId, Role], Identity] = {}
        """Ready and not known to be gone."""
        self._lives: Counter[str] = Counter()
        """Of workers, in this round: states that were told."""

    def round(self, number: int, count: int) -> RoundSeen:
        """Rule 2. Raises ConfigurationProblem where a session is refused or does not open in time, SupervisorLost,
        Interrupted."""
        before, self._sessions = self._sessions, []
        plans = plan(self._seed, number, count, self._rates)
        self._open(plans)
        self._close(before)
        if number % 2 == 0:
            self._await_workers()
        self._lives.clear()
        return self._run(number, dict(zip(self._sessions, plans, strict=True)))

    def close(self) -> None:
        """After the last round."""
        self._close(self._sessions)

    def _open(self, plans: tuple[SessionPlan, ...]) -> None:
        for one in plans:
            self._lane.send(OpenSession(settings=self._settings(one.scenario), journal=""))
        for message in self._until(time.monotonic() + ROUND_S):
            if isinstance(message, SessionOpened):  # in the order in which they were asked for
                self._sessions.append(message.session_id)
            elif isinstance(message, Refused):
                raise ConfigurationProblem(message.words)
            if len(self._sessions) == len(plans):
                return
        raise ConfigurationProblem(f"{len(self._sessions)} of {len(plans)} sessions opened within {ROUND_S:g} s")

    def _await_workers(self) -> None:
        """All of them, or those that are ready in time: what is missing shows in the round."""
        wanted = len(ROLES) * len(self._sessions)
        if len(self._workers) == wanted:  # they came while the sessions before were being closed
            return
        for _ in self._until(time.monotonic() + ROUND_S):
            if len(self._workers) == wanted:
                return

    def _run(self, number: int, plans: Mapping[SessionId, SessionPlan]) -> RoundSeen:
        this = _Round(number, plans)
        for session_id in plans:
            self._lane.send(Prompt(session_id=session_id, text=f"round {number}"))
        while this.running and this.passed_s < ROUND_S:
            self._do(this)
            for message in self._until(this.began + this.next_s()):
                if isinstance(message, Shown):
                    self._hear(this, message)
                if not this.running or (isinstance(message, Shown) and isinstance(message.line.event, Worker)):
                    break
        return self._seen(this)

    def _do(self, this: _Round) -> None:
        """Rule 1, and rule 3: what is due."""
        for session_id, at_s in list(this.cancels.items()):
            if at_s <= this.passed_s:
                del this.cancels[session_id]
                self._lane.send(CancelRequest(session_id=session_id, by="client"))
        for session_id, harm in list(this.harms.items()):
            identity = self._workers.get((session_id, harm.role))
            if harm.at_s <= this.passed_s and identity is not None:
                del this.harms[session_id]
                this.hurt[harm.how] += _hurt(identity, harm)

    def _hear(self, this: _Round, message: Shown) -> None:
        event, session_id = message.line.event, message.line.session_id
        if isinstance(event, Result) and session_id in this.running:
            this.results[session_id] = event
            this.running.discard(session_id)

    def _close(self, sessions: list[SessionId]) -> None:
        left = set(sessions)
        for session_id in sessions:
            self._lane.send(CloseSession(session_id=session_id))
        for message in self._until(time.monotonic() + (ROUND_S if left else 0.0)):
            if isinstance(message, SessionClosed):
                left.discard(message.session_id)
            if not left:
                break
        self._workers = {key: one for key, one in self._workers.items() if key[0] not in sessions}

    def _until(self, deadline: float) -> Iterator[ToClient]:
        """What arrives up to the deadline (monotonic); keeps book of the workers."""
        while (left_s := deadline - time.monotonic()) > 0:
            ready = wait(self._lane, reading=(self._signals_fd, self._supervisor_fd), timeout_s=left_s)
            for number in numbers(self._signals_fd):
                raise Interrupted(number)
            while (message := self._lane.receive()) is not None:
                if isinstance(message, Shown) and isinstance(message.line.event, Worker):
                    self._note(message.line.session_id, message.line.event)
                yield message
            if self._supervisor_fd in ready and LANE not in ready and LANE not in self._last_words():
                raise SupervisorLost

    def _last_words(self) -> frozenset[int]:
        """Rule 5."""
        return wait(self._lane, reading=(), timeout_s=LAST_WORDS_S)

    def _note(self, session_id: SessionId, event: Worker) -> None:
        self._lives[event.state] += 1
        identity = processes.identify(event.pid) if event.state == "ready" and event.pid is not None else None
        if identity is not None:
            self._workers[session_id, event.role] = identity
        elif event.state in ("killed", "exited", "replaced"):
            self._workers.pop((session_id, event.role), None)

    def _seen(self, this: _Round) -> RoundSeen:
        seconds = this.passed_s
        stops = [
            Stop(ms=result.cancel.total_ms, rung=result.cancel.rung, plan=this.plans[one])
            for one, result in this.results.items()
            if result.cancel is not None
        ]
        stop_ms: defaultdict[Rung, tuple[float, ...]] = defaultdict(tuple)
        for stop in stops:
            stop_ms[stop.rung] += (stop.ms,)
        return RoundSeen(
            number=this.number,
            seconds=round(seconds, 3),
            results=dict(Counter(result.reason for result in this.results.values())),
            stop_ms=dict(stop_ms),
            slowest=max(stops, key=lambda stop: stop.ms, default=None),
            killed=this.hurt["kill"],
            stopped=this.hurt["stop"],
            escalated=self._lives["killed"],
            replaced=self._lives["replaced"],
            survivors=0 if this.running else self._survivors(),
            open_streams=self._open_streams(),
            stuck=len(this.running),
            unexplained=tuple(
                f"{one} ({this.plans[one].words}) ended as {result.reason}: {result.message}"
                for one, result in this.results.items()
                if not this.plans[one].explains(result.reason)
            ),
        )

    def _survivors(self) -> int:
        """Rule 4: living processes below this one that are in no session of ours. Tools, and whatever they start, have
        sessions of their own; zygote and workers stay in the supervisor's."""
        return sum(process.session not in self._ours for process in witness.below(os.getpid()))

    def _open_streams(self) -> int:
        """Rule 4. The last of them may have been closed a moment ago."""
        deadline = time.monotonic() + STREAMS_S
        while True:
            with urllib.request.urlopen(self._gateway_url.removesuffix("/v1") + "/_haltline/state") as answer:
                left = msgspec.json.decode(answer.read(), type=_State).open_streams
            if not left or time.monotonic() >= deadline:
                return left

    def _settings(self, scenario: str) -> SessionSettings:
        return SessionSettings(
            model=scenario,
            base_url=self._gateway_url,
            cwd=self._cwd,
            approval_mode="yolo",
            retry=INTERACTIVE,
            ephemeral=True,
            isolation=self._isolation,
            version=self._version,
        )


def _hurt(identity: Identity, harm: Harm) -> bool:
    """Rule 3. False: it was gone already."""
    return processes.signal_identity(identity, _SIGNALS[harm.how])
