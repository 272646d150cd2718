"""What is true in a run, kept beside the product, and the invariants that hold after each event.

 1. No work of an older generation acts: not in the supervisor, not in a worker that has heard of a newer one.
 2. A stop is over within times.stop_s of its request, less what the supervisor itself did not run.
 3. Whatever is started (worker, attempt, process tree of a call) ends once, and once only; a stop is called done only
    when nothing of the session is left. A worker is killed once at most, and a role never has two that live.
 4. A session that met no fault and no key ends as it would have alone.
 5. Each request is valid for its provider: every call has its one result, in place.
 6. A run has one result, its last line. Lines have rising seq, and each tool_use its one tool_result.
 7. No tool runs twice, and no text is shown twice or out of order.
 8. No counter passes its cap.
 9. An intent is durable before it is done, a line before it is shown.
10. A run that is going on says something, or waits for a person.
11. A stop that is asked for from another terminal is answered.
12. A worker that does as it should is not killed for what its machine, or the way to it, did.
13. One that hangs while work is due is asked to stop after times.SILENCE_S.
14. A compaction changes the history by its one switch, which the journal has, or not at all; a summary is not shown.
"""

import re
from collections import Counter, deque
from collections.abc import Callable
from typing import NoReturn

import msgspec

from haltline.protocol import codec, events, times
from haltline.protocol.boot import WorkerBoot
from haltline.protocol.client_messages import SessionClosed, Shown, ToClient
from haltline.protocol.conversation import AssistantMessage, Item, ToolCall, ToolResult, UserMessage
from haltline.protocol.exits import BUG
from haltline.protocol.ids import CallId, SessionId, WorkerId
from haltline.protocol.lines import Line
from haltline.protocol.messages import Cancel, Ready, RunTool, StartAttempt
from haltline.supervisor import cancelling, compaction
from haltline.supervisor.deadlines import grace_s
from haltline.supervisor.host import SessionHost
from sim.journal import MemoryJournal
from sim.loop import Timeline
from sim.model import SUMMARY
from sim.plan import TOOL_S, WHOLE_S, SessionPlan

PIECE = re.compile(r"\[(\d+)\.(\d+)\]")
ROUNDING_S = 0.02
GAP_NOTICED_S = 0.5
"""The supervisor looks this often whether it has been running, and is right to within it."""
SILENT_RUN_S = max(WHOLE_S, TOOL_S) + times.CALL_END_S + times.LATE_S + times.stop_s(times.GRACE_S) + 1.0
"""The longest that a run may go on without a word: an attempt to its limit, and a worker that does not stop then."""


class Violation(BaseException):
    """An invariant does not hold. No Exception: nothing in the product may swallow it."""


class SessionFacts(msgspec.Struct, kw_only=True):
    """One session as the world saw it."""

    plan: SessionPlan
    last_seq: int = 0
    run: int = 0
    running: bool = False
    asking: bool = False
    stopping: bool = False
    said_at: float = 0.0
    open_calls: set[CallId] = msgspec.field(default_factory=set)
    told_calls: set[tuple[CallId, bool]] = msgspec.field(default_factory=set)
    attempt: int = 0
    """The last that was sent."""
    turn: tuple[int, int] = (0, 0)
    """Of it: run and turn."""
    turn_attempts: int = 0
    pieces: int = 0
    """Of it that were shown."""
    results: int = 0
    prompts: int = 0
    broken: bool = False
    """It ended because its journal takes nothing."""
    closing: bool = False
    """Its owner has asked for its end."""
    closed: bool = False
    stop_seen: cancelling.Stop | None = None
    lost_before: float = 0.0
    lines_due: deque[int] = msgspec.field(default_factory=deque)
    """Told and not yet arrived."""
    text_due: str = ""
    history_before: tuple[Item, ...] = ()
    switches: int = 0
    """Of the history, in the journal."""
    killed_pids: set[int] = msgspec.field(default_factory=set)
    kills: int = 0


class Facts:
    def __init__(self, timeline: Timeline, journal: MemoryJournal) -> None:
        self.timeline = timeline
        self.journal = journal
        self.sessions: dict[SessionId, SessionFacts] = {}
        self.asked: Callable[[SessionId], int]
        """How many calls the model of a session asked for in its present run."""
        self.lost_s = 0.0
        """For how long the supervisor did not run so far."""
        self.sweeps_are_late = False
        """Then the tree of a dead worker may count as a survivor, and be gone later."""
        self.everyone_was_stopped = False
        """By the loss of the client, a wish that all stop, or the loss of the zygote."""
        self._living: dict[WorkerId, WorkerBoot] = {}
        self._ready: set[WorkerId] = set()
        self._heard: dict[WorkerId, int] = {}
        self._hangs: dict[WorkerId, float] = {}
        """Since when they do nothing at all."""
        self._given_at: dict[WorkerId, float] = {}
        """When they last got work."""
        self._attempts: dict[tuple[SessionId, int], WorkerId] = {}
        self._trees: dict[tuple[SessionId, CallId], WorkerId] = {}
        self._ran: set[tuple[SessionId, CallId]] = set()
        self._sent: Counter[tuple[str, str]] = Counter()

    def fail(self, words: str) -> NoReturn:
        raise Violation(words)

    def check(self, holds: bool, words: str) -> None:
        if not holds:
            self.fail(words)

    # Workers

    def worker_born(self, boot: WorkerBoot) -> None:
        for other in self._living.values():
            same = (other.session_id, other.role) == (boot.session_id, boot.role)
            self.check(not same, f"{boot.worker_id} is started while {other.worker_id} lives")
        self._living[boot.worker_id] = boot

    def worker_died(self, boot: WorkerBoot) -> None:
        self.check(self._living.pop(boot.worker_id, None) is not None, f"{boot.worker_id} died twice")
        for key in [key for key, worker in self._attempts.items() if worker == boot.worker_id]:
            del self._attempts[key]

    def hangs(self, boot: WorkerBoot) -> None:
        self._hangs.setdefault(boot.worker_id, self.timeline.now)

    def killed(self, boot: WorkerBoot) -> None:
        """By order of the supervisor (12)."""
        session = self.sessions[boot.session_id]
        if session.closing or self.everyone_was_stopped:
            return
        plan = session.plan
        good = plan.undisturbed or (plan.good_workers and boot.worker_id in self._ready)
        self.check(not good, f"{boot.worker_id}, which does nothing wrong, is killed")

    def swept(self, worker_id: WorkerId) -> int:
        """How many trees of the dead worker were left and are gone now."""
        left = [key for key, worker in self._trees.items() if worker == worker_id]
        for key in left:
            del self._trees[key]
        return len(left)

    def living(self) -> int:
        return len(self._living)

    def cancel_heard(self, boot: WorkerBoot, cancel: Cancel) -> None:
        before = self._heard.get(boot.worker_id, -1)
        self.check(cancel.generation >= before, f"{boot.worker_id} is told of an older cancel")
        self._heard[boot.worker_id] = cancel.generation

    def attempt_opened(self, boot: WorkerBoot, message: StartAttempt) -> None:
        self._acts(boot, message.generation)
        key = (message.session_id, message.attempt)
        self.check(key not in self._attempts, f"attempt {message.attempt} is begun twice")
        self._attempts[key] = boot.worker_id

    def attempt_closed(self, boot: WorkerBoot, message: StartAttempt) -> None:
        found = self._attempts.pop((message.session_id, message.attempt), None)
        self.check(found == boot.worker_id, f"attempt {message.attempt} ended twice")

    def call_started(self, boot: WorkerBoot, message: RunTool) -> None:
        self._acts(boot, message.generation)
        key = (message.session_id, message.call_id)
        self.check(key not in self._ran, f"{message.call_id} of {message.session_id} runs a second time")
        self._ran.add(key)
        self._trees[key] = boot.worker_id

    def call_ended(self, boot: WorkerBoot, message: RunTool) -> None:
        found = self._trees.pop((message.session_id, message.call_id), None)
        self.check(found == boot.worker_id, f"{message.call_id} ended twice")

    def _acts(self, boot: WorkerBoot, generation: int) -> None:
        heard = self._heard.get(boot.worker_id, -1)
        self.check(generation >= heard, f"{boot.worker_id} begins work of generation {generation}, has heard {heard}")

    # What the supervisor sends

    def told_worker(self, boot: WorkerBoot, data: bytes, *, subscribed: bool) -> None:
        message = codec.to_worker.decode(data)
        session = self.sessions[boot.session_id]
        if self.timeline.traced:
            self.timeline.tell("supervisor", f"to {boot.worker_id}: {short(message)}")
        match message:
            case Ready():
                self.check(subscribed, f"{boot.worker_id} is told that it is ready before its subscription came")
                self._ready.add(boot.worker_id)
            case StartAttempt():
                self._given_at[boot.worker_id] = self.timeline.now
                self._durable(session, boot.session_id, "start_attempt")
                self.check(not session.open_calls, f"a request while {session.open_calls} have no result")
                problem = invalid(message.items)
                self.check(problem is None, f"the request is not valid: {problem}")
                self.check(message.attempt > session.attempt, f"attempt {message.attempt} after {session.attempt}")
                turn = (message.run, message.turn)
                session.turn_attempts = session.turn_attempts + 1 if turn == session.turn else 1
                most = session.plan.settings.retry.attempts + 3  # and restarts of the worker
                if session.plan.long:  # one compaction of each kind, and the request after it
                    most += 2 * (compaction.SUMMARY_REQUESTS + 1)
                self.check(session.turn_attempts <= most, f"attempt {session.turn_attempts} of one turn")
                session.attempt, session.turn, session.pieces = message.attempt, turn, 0
            case RunTool():
                self._given_at[boot.worker_id] = self.timeline.now
                self._durable(session, boot.session_id, "run_tool")
                sent = (message.call_id, message.outside_allowed)
                self.check(sent not in session.told_calls, f"{message.call_id} is given out twice")
                session.told_calls.add(sent)
            case Cancel():
                self.check(self._intent(session, boot.session_id, "cancel") > 0, "a cancel that is not in the journal")
            case _:
                pass

    def _intent(self, session: SessionFacts, session_id: SessionId, name: str) -> int:
        if session.plan.settings.ephemeral:
            return 1 << 30
        return self.journal.intents[session_id, name]

    def _durable(self, session: SessionFacts, session_id: SessionId, name: str) -> None:
        self._sent[session_id, name] += 1
        durable = self._intent(session, session_id, name)
        self.check(durable >= self._sent[session_id, name], f"{name} is sent before it is in the journal")

    # What the owner is told

    def told_client(self, client: bytes, message: ToClient) -> None:
        """The supervisor says it; the way to the client may be full, so that it leaves later."""
        if self.timeline.traced:
            shown = f"{message.line.session_id} {message.line.seq}: " if isinstance(message, Shown) else ""
            body = message.line.event if isinstance(message, Shown) else message
            self.timeline.tell("supervisor", f"to {client.decode()}: {shown}{short(body)}")
        match message:
            case Shown(line=line):
                self._shown(line)
            case SessionClosed(session_id=session_id):
                self.sessions[session_id].closed = True
            case _:
                pass

    def arrived(self, line: Line) -> None:
        """It has come to the owner: nothing is missing, and of deltas only the borders may be."""
        session = self.sessions[line.session_id]
        event = line.event
        if isinstance(event, events.Message) and event.delta:
            self.check(session.text_due.startswith(event.text), f"{event.text!r} comes, {session.text_due!r} is due")
            session.text_due = session.text_due.removeprefix(event.text)
            return
        due = session.lines_due.popleft() if session.lines_due else 0
        self.check(line.seq == due, f"line {line.seq} arrives where {due} is due")

    def _shown(self, line: Line) -> None:
        session = self.sessions[line.session_id]
        event = line.event
        if isinstance(event, events.Result):
            self.check(event.exit_code != BUG, f"a bug: {event.message}")
        self.check(not session.closed, f"{event} after the session was closed")
        self.check(line.seq > session.last_seq, f"seq {line.seq} follows {session.last_seq}")
        session.last_seq = line.seq
        session.said_at = self.timeline.now
        delta = isinstance(event, events.Message) and event.delta
        if isinstance(event, events.Message) and event.delta:
            session.text_due += event.text
        else:
            session.lines_due.append(line.seq)
        if not delta and not session.plan.settings.ephemeral and not session.broken:
            durable = self.journal.durable_seq.get(line.session_id, 0)
            if durable < line.seq and isinstance(event, events.Result) and self.journal.full_disk:
                session.broken = True
                session.running = session.stopping = session.asking = False
                session.open_calls.clear()
                session.results = session.prompts
                return
            self.check(durable >= line.seq, f"line {line.seq} is shown before it is in the journal")
        self._event(session, line, event)

    def _event(self, session: SessionFacts, line: Line, event: events.AnyEvent) -> None:
        match event:
            case events.Init():
                return
            case events.Worker():
                self._worker(session, event)
                return
            case events.Message(role="user"):
                self.check(not session.running, "a run begins in a run")
                session.running, session.run = True, line.run
                session.asking = session.stopping = False
                return
            case _:
                pass
        self.check(session.running, f"{type(event).__name__} outside of a run")
        self.check(line.run == session.run, f"a line of run {line.run} in run {session.run}")
        if session.stopping:
            allowed = isinstance(event, events.CancelStep | events.ToolResult | events.Result | events.Budget) or (
                isinstance(event, events.Message | events.Reasoning) and not event.delta
            )
            self.check(allowed, f"{event} during a stop")
        match event:
            case events.Message(delta=True):
                self._pieces(session, event.text)
            case events.ToolUse(call_id=call_id):
                self.check(call_id not in session.open_calls, f"{call_id} is told twice")
                session.open_calls.add(call_id)
            case events.ToolResult(call_id=call_id):
                self.check(call_id in session.open_calls, f"{call_id} has a second result, or no call")
                session.open_calls.discard(call_id)
            case events.Approval():
                session.asking = event.answer is None
            case events.CancelStep(phase="requested"):
                self.check(not session.stopping, "a stop in a stop")
                session.stopping, session.asking = True, False
            case events.Result():
                self._result(session, line.session_id, event)
            case _:
                pass

    def _pieces(self, session: SessionFacts, text: str) -> None:
        self.check(SUMMARY not in text, "a summary is shown")
        for attempt, number in PIECE.findall(text):
            shown = (int(attempt), int(number))
            self.check(shown == (session.attempt, session.pieces), f"text {shown} is shown, {session.pieces} is due")
            session.pieces += 1

    def _worker(self, session: SessionFacts, event: events.Worker) -> None:
        if event.state != "killed":
            return
        session.kills += 1
        if event.pid is not None:
            self.check(event.pid not in session.killed_pids, f"worker {event.pid} is killed twice")
            session.killed_pids.add(event.pid)

    def _result(self, session: SessionFacts, session_id: SessionId, result: events.Result) -> None:
        self.check(not session.open_calls, f"the run ends while {session.open_calls} have no result")
        session.running = session.stopping = session.asking = False
        session.results += 1
        self.check(session.results <= session.prompts, "a second result")
        self._caps(session, result)
        survivors = result.cancel.survivors if result.cancel is not None else 0
        self.check(
            (result.cancel is not None) == (result.reason in ("cancelled", "killed") or _by_time(result)), "receipt"
        )
        if not survivors and result.reason != "worker_failed":
            attempts = [key for key in self._attempts if key[0] == session_id]
            self.check(not attempts, f"the run ends as {result.reason} with {attempts} open")
            trees = [
                key
                for key, worker in self._trees.items()
                if key[0] == session_id and not (self.sweeps_are_late and worker not in self._living)
            ]
            self.check(not trees, f"the run ends as {result.reason} with {trees} alive")
        if session.plan.undisturbed and not self.everyone_was_stopped:
            expected = self.asked(session_id)
            same = (result.reason, result.counters) == ("completed", events.Counters())
            same = same and (result.tool_calls, result.tool_runs) == (expected, expected)
            self.check(same and result.attempts == result.turns, f"a calm session ended so: {result}")

    def _caps(self, session: SessionFacts, result: events.Result) -> None:
        counters = result.counters
        caps = {
            "transport_retry": session.plan.settings.retry.run_retries,
            "empty_response": 1,
            "continuation": 3,
            "same_call": 3,
            "compaction": compaction.REACTIVE if session.plan.long else 0,
            "proactive_compaction": 0,
            "max_tokens_lowered": 0,
        }
        for name, cap in caps.items():
            self.check(getattr(counters, name) <= cap, f"{name} is {getattr(counters, name)}, at most {cap}")

    # After each event of the supervisor

    def look(self, hosts: dict[SessionId, SessionHost]) -> None:
        now = self.timeline.now
        for session_id, host in hosts.items():
            session = self.sessions.get(session_id)
            if session is None:
                continue
            self._compacting(session, session_id, host)
            stop = host._state.stop
            if stop is not None:
                if session.stop_seen is None or session.stop_seen.requested_at != stop.requested_at:
                    session.lost_before = self.lost_s
                session.stop_seen = stop
                allowed = times.stop_s(grace_s(stop.by, 1)) + (self.lost_s - session.lost_before) + ROUNDING_S
                self.check(now - stop.requested_at <= allowed, f"the stop of {session_id} takes {allowed:.1f} s")
            for seat in (host._state.llm, host._state.tool):
                if (
                    seat.worker_id is not None
                    and seat.worker_id in self._hangs
                    and seat.state == "ready"
                    and host._state.hung is None
                ):
                    self._hung(session_id, host, seat.worker_id)
            if session.running and not session.asking:
                allowed = SILENT_RUN_S + self.lost_s
                self.check(now - session.said_at <= allowed, f"{session_id} says nothing for {allowed:.0f} s")

    def _compacting(self, session: SessionFacts, session_id: SessionId, host: SessionHost) -> None:
        """14. What no journal takes can neither be told nor kept."""
        if session.plan.settings.ephemeral or self.journal.full_disk:
            return
        state = host._state
        switches = self.journal.intents[session_id, "switch_history"]
        before = session.history_before
        if switches == session.switches and (state.compaction is not None or state.phase in ("cancelling", "idle")):
            self.check(state.history[: len(before)] == before, "the history is not what it was")
        session.switches = switches
        session.history_before = state.history

    def _hung(self, session_id: SessionId, host: SessionHost, worker_id: WorkerId) -> None:
        """13: it hangs, and nobody has noticed yet."""
        session, state = self.sessions[session_id], host._state
        if worker_id.startswith("llm"):  # work that still waits for a full pipe is not given
            has_work = state.attempt is not None and state.attempt.number == session.attempt
        else:
            told = {call_id for call_id, _ in session.told_calls}
            has_work = any(call.stage == "sent" and call.call.call_id in told for call in state.calls)
        since = max(self._hangs[worker_id], self._given_at.get(worker_id, 0.0))
        if has_work and state.phase in ("streaming", "running_tools") and worker_id in self._given_at:
            allowed = times.SILENCE_S + times.HEARTBEAT_S + self.lost_s
            self.check(self.timeline.now - since <= allowed, f"{worker_id} of {session_id} hangs and is not found")


def _by_time(result: events.Result) -> bool:
    return result.limit is not None and result.limit.which == "seconds" and result.cancel is not None


def short(message: msgspec.Struct) -> str:
    """A message or event in one line, without what is long or the same everywhere."""
    parts = [type(message).__name__]
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name in _SHOWN and value is not None:
            parts.append(f"{name}={value!r:.60}")
    return " ".join(parts)


_SHOWN = [
    "role",
    "generation",
    "level",
    "attempt",
    "turn",
    "call_id",
    "phase",
    "reason",
    "state",
    "by",
    "kind",
    "handling",
    "status",
    "text",
    "finish",
    "wait_ms",
    "rung",
    "outside_allowed",
    "survivors",
    "answer",
    "delta",
    "worker",
    "exit_code",
    "grace_s",
    "session_id",
    "what",
]


def invalid(items: tuple[Item, ...]) -> str | None:
    """What a provider would refuse in this history, judged by other code than the product's."""
    waiting: list[ToolCall] = []
    for item in items:
        if isinstance(item, ToolResult):
            if not waiting or waiting[0].call_id != item.call_id:
                return f"a result of {item.call_id} is out of place"
            waiting = waiting[1:]
        elif waiting:
            return f"{waiting[0].call_id} has no result"
        elif isinstance(item, AssistantMessage):
            waiting = list(item.calls)
            if not item.text and not waiting:
                return "an empty message"
    if waiting:
        return f"{waiting[0].call_id} has no result"
    return None if items and isinstance(items[-1], UserMessage | ToolResult) else "it does not end with an input"
