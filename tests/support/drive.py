"""Drives the pure core of a session without a process: the test says what happened, the core says what is to be done.

After every step the invariants that must hold whatever happens are checked, so each test of the core proves them too:

1. A step changes nothing that it was given, and its state survives the way through msgpack.
2. The LLM worker never has two attempts in hand; no call is sent twice, but for one that was handed back unrun and
   may now lead outside; nothing is sent during a stop.
3. What is sent carries the present generation; generations and counters never fall.
4. Each tool_use has exactly one tool_result, before the next request and before the result of the run.
5. Each request is a valid history.
6. Each run has exactly one result; Finish follows it at once and the run says nothing more but of its workers.
7. Whatever waits for a machine, and not for a person, has a deadline.
8. Every line names the run that it belongs to, from 1; what comes before the first prompt belongs to the first.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Self, TypedDict

import msgspec

from haltline.protocol import events, messages
from haltline.protocol.conversation import Item, Reasoning, Usage, UserMessage
from haltline.protocol.events import AnyEvent, Counters
from haltline.protocol.ids import ROLES, CallId, Role, SessionId, WorkerId
from haltline.protocol.kinds import ApprovalAnswer, CallStatus, CancelBy, Changed, Finish, Phase, Rung, StreamTimer
from haltline.protocol.messages import CallDraft, CallOutcome, Outcome
from haltline.protocol.settings import INTERACTIVE, SessionSettings
from haltline.supervisor import effects, history, session, stimuli
from haltline.supervisor.effects import AnyEffect
from haltline.supervisor.session import SessionState
from haltline.supervisor.stimuli import AnyStimulus

SETTINGS = SessionSettings(
    model="m",
    base_url="http://127.0.0.1:1/v1",
    cwd="/w/space",
    version="0",
    approval_mode="yolo",
    retry=INTERACTIVE,
    isolation="subreaper",
)

SESSION_ID = SessionId("5e551011")
USAGE = Usage(input=10, output=5)
PIDS: dict[Role, int] = {"llm": 100, "tool": 200}

Said = (
    messages.Delta
    | messages.AttemptProgress
    | messages.AttemptEnded
    | messages.AttemptFailed
    | messages.ToolStarted
    | messages.ToolEnded
    | messages.ToolLeadsOutside
    | messages.CancelAcknowledged
    | messages.CancelDone
    | messages.Heartbeat
)


def settings(**changes: object) -> SessionSettings:
    return msgspec.structs.replace(SETTINGS, **changes)


def call(name: str, arguments_raw: str, provider_id: str | None = None, *, complete: bool = True) -> CallDraft:
    return CallDraft(name=name, arguments_raw=arguments_raw, provider_id=provider_id, complete=complete)


def shell(command: str) -> CallDraft:
    return call("shell", msgspec.json.encode({"command": command}).decode())


def read(path: str) -> CallDraft:
    return call("read_file", msgspec.json.encode({"path": path}).decode())


def outcome(
    text: str = "out",
    status: CallStatus = "done",
    *,
    changed: Changed = "maybe",
    exit_code: int | None = 0,
    ms: int = 5,
) -> Outcome:
    return Outcome(status=status, changed=changed, exit_code=exit_code, text=text, ms=ms)


class Work(TypedDict):
    """What every report about a run names."""

    session_id: SessionId
    run: int
    turn: int
    generation: int


class Drive:
    """One session and its two imagined workers. Times in seconds on a clock that only the test moves."""

    def __init__(self, of: SessionSettings = SETTINGS, items: tuple[Item, ...] = ()) -> None:
        self.now = 1000.0
        self.state: SessionState = session.open_session(SESSION_ID, of, items)
        self.done_so_far: list[AnyEffect] = []
        self.recorded: list[tuple[AnyStimulus, float]] = []
        self._read_up_to = 0
        self._workers: dict[Role, int] = {"llm": 0, "tool": 0}
        self._check = Invariants()

    # What happens

    def feed(self, stimulus: AnyStimulus, after_s: float = 0.0) -> list[AnyEffect]:
        self.now += after_s
        self.recorded.append((stimulus, self.now))
        before = msgspec.msgpack.encode(self.state)
        state, done = session.step(self.state, stimulus, self.now)
        assert msgspec.msgpack.encode(self.state) == before, "the step changed its input"
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=SessionState) == state
        self._check.step(self.state, stimulus, state, done)
        self.state = state
        self.done_so_far += done
        return list(done)

    def open(self) -> Self:
        self.feed(stimuli.Opened())
        return self

    def ready(self, *roles: Role) -> Self:
        for role in roles or ROLES:
            self._workers[role] += 1
            self.feed(stimuli.WorkerReady(role=role, worker_id=self.worker_id(role), pid=self.pid(role)))
        return self

    def prompt(self, text: str = "do it") -> Self:
        self.feed(stimuli.Prompted(text=text))
        return self

    def running(self, text: str = "do it") -> Self:
        """Opened, workers ready, and the first request sent; what was shown until then is read."""
        self.open().ready().prompt(text)
        self.told()
        return self

    def say(self, *pieces: str, reasoning: bool = False) -> Self:
        for piece in pieces:
            self.said("llm", messages.Delta(**self.work(), attempt=self.attempt, text=piece, reasoning=reasoning))
        return self

    def end(
        self,
        *calls: CallDraft,
        finish: Finish | None = None,
        usage: Usage | None = USAGE,
        reasoning: tuple[Reasoning, ...] = (),
        refusal: str = "",
    ) -> Self:
        self.said(
            "llm",
            messages.AttemptEnded(
                **self.work(),
                attempt=self.attempt,
                finish=finish or ("tool_calls" if calls else "stop"),
                finish_raw="",
                calls=calls,
                reasoning=reasoning,
                usage=usage,
                refusal=refusal,
            ),
        )
        return self

    def answer(self, text: str = "done") -> Self:
        """A whole good response without calls."""
        return self.say(text).end()

    def fail(
        self,
        *,
        phase: Phase = "headers",
        status: int | None = None,
        body: str = "",
        headers: dict[str, str] | None = None,
        exception: str | None = None,
        timer: StreamTimer | None = None,
        truncated: bool = False,
        usage: Usage | None = None,
        jitter: float = 0.5,
    ) -> Self:
        self.said(
            "llm",
            messages.AttemptFailed(
                **self.work(),
                attempt=self.attempt,
                phase=phase,
                status=status,
                headers=headers or {},
                body=body,
                exception=exception,
                timer=timer,
                truncated=truncated,
                usage=usage,
            ),
            jitter=jitter,
        )
        return self

    def tool_starts(self, call_id: str, pid: int = 300) -> Self:
        self.said("tool", messages.ToolStarted(**self.work(), call_id=CallId(call_id), pid=pid))
        return self

    def tool_ends(self, call_id: str, with_outcome: Outcome | None = None) -> Self:
        self.said("tool", messages.ToolEnded(**self.work(), call_id=CallId(call_id), outcome=with_outcome or outcome()))
        return self

    def leads_outside(self, call_id: str, real: str = "/etc/secret") -> Self:
        self.said("tool", messages.ToolLeadsOutside(**self.work(), call_id=CallId(call_id), real=real))
        return self

    def runs(self, call_id: str, with_outcome: Outcome | None = None) -> Self:
        return self.tool_starts(call_id).tool_ends(call_id, with_outcome)

    def cancel(self, by: CancelBy = "signal", *, terminated: bool = False) -> Self:
        self.feed(stimuli.CancelAsked(by=by, terminated=terminated))
        return self

    def kill(self, role: Role | None = None) -> Self:
        self.feed(stimuli.KillAsked(role=role))
        return self

    def acknowledges(self, *roles: Role, usage: Usage | None = None, after_s: float = 0.0) -> Self:
        for role in roles:
            self.now += after_s
            self.said(
                role,
                messages.CancelAcknowledged(
                    session_id=SESSION_ID, generation=self.state.generation, level=1, usage=usage
                ),
            )
        return self

    def stops(
        self,
        *roles: Role,
        rung: Rung = "ack",
        killed: int = 0,
        calls: Sequence[CallOutcome] = (),
        after_s: float = 0.0,
    ) -> Self:
        for role in roles:
            self.now += after_s
            self.said(
                role,
                messages.CancelDone(
                    session_id=SESSION_ID,
                    generation=self.state.generation,
                    level=1,
                    rung=rung,
                    killed=killed,
                    survivors=0,
                    calls=tuple(calls) if role == "tool" else (),
                ),
            )
        return self

    def stopped(self) -> Self:
        """Both workers do all that a stop asks of them."""
        return self.acknowledges(*ROLES).stops(*ROLES)

    def exits(self, role: Role, words: str = "killed by signal 9") -> Self:
        self.feed(stimuli.WorkerExited(role=role, worker_id=self.worker_id(role), pid=self.pid(role), words=words))
        return self

    def swept(self, role: Role, killed: int = 0, survivors: int = 0) -> Self:
        self.feed(stimuli.Swept(role=role, worker_id=self.worker_id(role), killed=killed, survivors=survivors))
        return self

    def cannot_start(self, role: Role, words: str = "no module named x") -> Self:
        """One try to start ends before it is ready, and is swept."""
        self._workers[role] += 1
        self.feed(stimuli.WorkerStartFailed(role=role, worker_id=self.worker_id(role), words=words))
        return self.swept(role)

    def beat(self, role: Role, model_silent_ms: int | None = None) -> Self:
        self.said(role, messages.Heartbeat(progress=1, model_silent_ms=model_silent_ms))
        return self

    def answers(self, call_id: str, answer: ApprovalAnswer, words: str = "") -> Self:
        self.feed(stimuli.Answered(call_id=CallId(call_id), answer=answer, words=words))
        return self

    def said(self, role: Role, message: Said, jitter: float = 0.5) -> list[AnyEffect]:
        return self.feed(
            stimuli.FromWorker(
                role=role, worker_id=self.worker_id(role), message=message, jitter=jitter, wall_s=1_800_000_000.0
            )
        )

    def wait(self) -> Self:
        """Until the next deadline, and a Tick."""
        deadline = session.next_deadline(self.state)
        assert deadline is not None, "nothing is being waited for"
        self.now = max(self.now, deadline)
        self.feed(stimuli.Tick())
        return self

    def wait_s(self, seconds: float, beats: Iterable[Role] = ()) -> Self:
        """This long, with a Tick at each deadline on the way and a heartbeat each second of the roles named."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 1.0)
            for role in beats:
                self.beat(role)
            deadline = session.next_deadline(self.state)
            if deadline is not None and deadline <= self.now:
                self.feed(stimuli.Tick())
        return self

    # What came of it

    def told(self, *, workers: bool = False) -> list[AnyEvent]:
        """What was shown since this was last asked; of the workers' lives only where wanted."""
        fresh = self.done_so_far[self._read_up_to :]
        self._read_up_to = len(self.done_so_far)
        shown = [effect.event for effect in fresh if isinstance(effect, effects.Show)]
        return [event for event in shown if workers or not isinstance(event, events.Worker)]

    @property
    def requests(self) -> list[messages.StartAttempt]:
        return [effect.message for effect in self.done_so_far if isinstance(effect, effects.SendAttempt)]

    @property
    def sent_tools(self) -> list[messages.RunTool]:
        return [effect.message for effect in self.done_so_far if isinstance(effect, effects.SendTool)]

    @property
    def cancels(self) -> list[effects.BroadcastCancel]:
        return [effect for effect in self.done_so_far if isinstance(effect, effects.BroadcastCancel)]

    @property
    def kills(self) -> list[Role]:
        return [effect.role for effect in self.done_so_far if isinstance(effect, effects.KillWorker)]

    @property
    def result(self) -> events.Result:
        """Of the last run that ended."""
        results = [
            effect.event
            for effect in self.done_so_far
            if isinstance(effect, effects.Show) and isinstance(effect.event, events.Result)
        ]
        assert results, "no run has ended"
        return results[-1]

    # Names

    @property
    def attempt(self) -> int:
        return self.state.attempt_number

    def work(self) -> Work:
        return {
            "session_id": SESSION_ID,
            "run": self.state.run_number,
            "turn": self.state.turn,
            "generation": self.state.generation,
        }

    def worker_id(self, role: Role) -> WorkerId:
        return WorkerId(f"{role}-{self._workers[role]}")

    def pid(self, role: Role) -> int:
        return PIDS[role] + self._workers[role]


class Invariants:
    """What must hold after every step; the numbers are those of the module's docstring."""

    def __init__(self) -> None:
        self._attempt: int | None = None
        self._sent: set[tuple[CallId, bool]] = set()
        """With whether it might lead outside."""
        self._open: list[CallId] = []
        self._generation = 0
        self._counters = Counters()
        self._run = 0
        self._ended: Literal["no", "shown", "finished"] = "finished"

    def step(
        self, before: SessionState, stimulus: AnyStimulus, after: SessionState, done: tuple[AnyEffect, ...]
    ) -> None:
        self._facts(before, stimulus)
        for effect in done:
            self._effect(after, effect)
        assert after.generation >= self._generation
        self._generation = after.generation
        assert self._ended != "shown", "Finish must follow the result at once"
        assert (after.phase == "idle") == (self._ended == "finished")
        if after.phase not in ("idle", "waiting_approval"):
            assert after.deadlines, f"{after.phase} has no deadline"
        if after.phase == "idle":
            assert all(name.startswith(("start:", "gone:")) for name in after.deadlines)
            assert after.history == () or history.check((*after.history, UserMessage(text="next"))) is None
        if after.run_number == before.run_number and after.phase != "idle":
            self._not_lower(after.run.counters)

    def _facts(self, before: SessionState, stimulus: AnyStimulus) -> None:
        """What the imagined LLM worker has in hand, and whether a run begins."""
        match stimulus:
            case stimuli.FromWorker(message=messages.AttemptEnded() | messages.AttemptFailed() as message):
                if message.attempt == self._attempt and stimulus.worker_id == before.llm.worker_id:
                    self._attempt = None
            case stimuli.FromWorker(role="llm", message=messages.CancelDone() as message):
                if stimulus.worker_id == before.llm.worker_id and message.generation == before.generation:
                    self._attempt = None
            case stimuli.WorkerExited(role="llm") | stimuli.Swept(role="llm") | stimuli.Tick():
                if before.llm.state == "dying" or isinstance(stimulus, stimuli.WorkerExited):
                    self._attempt = None
            case _:
                pass

    def _effect(self, after: SessionState, effect: AnyEffect) -> None:
        match effect:
            case effects.SendAttempt(message=message):
                assert self._attempt is None, "two attempts in flight"
                assert not self._open, f"a request while {self._open} have no result"
                assert message.generation == after.generation
                assert history.check(message.items) is None
                self._attempt = message.attempt
            case effects.SendTool(message=message):
                sent = (message.call_id, message.outside_allowed)
                assert sent not in self._sent, "a call was sent twice"
                assert (message.call_id, True) not in self._sent, "a call that might lead outside was sent again"
                assert message.call_id in self._open
                assert message.generation == after.generation
                self._sent.add(sent)
            case effects.Show():
                self._event(effect)
            case effects.Finish():
                assert self._ended == "shown"
                self._ended = "finished"
            case effects.SwitchHistory(items=items):
                assert history.check(items) is None
            case effects.SpawnWorker() | effects.BroadcastCancel() | effects.KillWorker():
                pass

    def _event(self, effect: effects.Show) -> None:
        match effect.event:
            case events.Message(role="user"):
                assert self._ended == "finished"
                assert effect.run == self._run + 1
                self._run = effect.run
                self._ended = "no"
                self._counters = Counters()
            case events.ToolUse(call_id=call_id):
                assert call_id not in self._open
                self._open.append(call_id)
            case events.ToolResult(call_id=call_id):
                self._open.remove(call_id)
            case events.Result(counters=counters):
                assert self._ended == "no"
                assert not self._open, f"the run ended while {self._open} have no result"
                self._ended = "shown"
                self._not_lower(counters)
            case events.Init() | events.Worker():
                pass
            case _:
                assert self._ended == "no", f"{effect.event} outside of a run"
        assert effect.run == max(1, self._run)

    def _not_lower(self, counters: Counters) -> None:
        for name in Counters.__struct_fields__:
            assert getattr(counters, name) >= getattr(self._counters, name), f"counter {name} fell"
        self._counters = counters
