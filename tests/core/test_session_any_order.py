"""Whatever happens to a session, in whatever order, the invariants of support/drive.py hold, and it can be stopped.

The stimuli below are those that a shell can make of living, dying, slow and lying workers: right ones, late ones,
repeated ones, and ones of another run, attempt, generation or worker.
"""

from collections.abc import Callable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drive import SESSION_ID, Drive, Work, call, outcome, read, shell
from support.drive import settings as session_settings
from support.long_history import talk

from haltline.protocol import messages
from haltline.protocol.conversation import AssistantMessage, Item, Usage
from haltline.protocol.ids import ROLES, CallId, Role, WorkerId
from haltline.protocol.kinds import ApprovalAnswer, Finish
from haltline.protocol.settings import Limits, SessionSettings
from haltline.supervisor import session, stimuli
from haltline.supervisor.stimuli import AnyStimulus

MODES: tuple[SessionSettings, ...] = (
    session_settings(),
    session_settings(approval_mode="ask", interactive=True),
    session_settings(run_limits=Limits(turns=3, seconds=40.0, tokens=100)),
    session_settings(window_tokens=4_000),
    session_settings(approval_mode="ask", session_limits=Limits(turns=5, seconds=90.0, tokens=300)),
)

HISTORIES: tuple[tuple[Item, ...], ...] = (
    (),
    (*talk(6), AssistantMessage(text="So far.")),
    (*talk(12, characters=2_000, said=3_000), AssistantMessage(text="So far.")),
)
"""None, one that can be folded, one that has to be summarised."""

DRAFTS = (
    (),
    (shell("ls"),),
    (read("a"), read("b")),
    (shell("ls"), shell("ls"), shell("ls"), shell("ls"), shell("ls")),
    (read("../x"), call("nope", "{}"), shell("make")),
    (call("shell", "{"), call("shell", "["), call("shell", "1"), call("shell", "{}{}")),
    (call("write_file", '{"path":"a","con', complete=False),),
    (call("shell", '{"command":"x"}', "id"), call("shell", '{"command":"x"}', "id")),
)


class Happenings:
    """Turns drawn numbers into stimuli that fit, or nearly fit, the session as it is."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        self.spawned: dict[Role, int] = {"llm": 0, "tool": 0}

    def make(self, kind: int, number: int) -> AnyStimulus:
        table: tuple[Callable[[int], AnyStimulus], ...] = (
            self.prompt,
            self.ready,
            self.ready,
            self.start_failed,
            self.exited,
            self.swept,
            self.delta,
            self.delta,
            self.ended,
            self.ended,
            self.failed,
            self.tool_started,
            self.tool_ended,
            self.tool_ended,
            self.tool_led_outside,
            self.acknowledged,
            self.done,
            self.heartbeat,
            self.tick,
            self.tick,
            self.cancel,
            self.kill,
            self.answer,
            self.answer,
            self.suspended,
        )
        if kind < len(table):
            return table[kind](number)
        return self.fitting(number)(number)

    def fitting(self, number: int) -> Callable[[int], AnyStimulus]:
        """What is likely to come in this phase, so that stories get somewhere."""
        match self.drive.state.phase:
            case "idle":
                return self.prompt
            case "starting" | "deciding":
                return self.ready
            case "streaming" | "compacting":
                return (self.delta, self.ended, self.ended, self.failed)[number % 4]
            case "waiting_retry":
                return self.tick
            case "waiting_approval":
                return self.answer
            case "running_tools":
                return (self.tool_started, self.tool_ended, self.tool_led_outside)[number % 3]
            case "cancelling":
                return (self.acknowledged, self.done, self.swept, self.tick)[number % 4]

    def role(self, number: int) -> Role:
        return ROLES[number % 2]

    def worker(self, role: Role, number: int) -> WorkerId:
        """Mostly the worker of the seat, now and then an older one."""
        seat = self.drive.state.llm if role == "llm" else self.drive.state.tool
        if seat.worker_id is None or number % 11 == 10:
            return WorkerId(f"{role}-{self.spawned[role]}")
        return seat.worker_id

    def work(self, number: int) -> Work:
        work = self.drive.work()
        if number % 13 == 12:
            work["generation"] -= 1
        if number % 17 == 16:
            work["run"] -= 1
        return work

    def say(self, role: Role, number: int, message: messages.FromWorker) -> AnyStimulus:
        assert not isinstance(message, messages.Hello)
        return stimuli.FromWorker(role=role, worker_id=self.worker(role, number), message=message)

    def prompt(self, number: int) -> AnyStimulus:
        return stimuli.Prompted(text=f"prompt {number}")

    def ready(self, number: int) -> AnyStimulus:
        role = self.role(number)
        self.spawned[role] += 1
        worker_id = WorkerId(f"{role}-{self.spawned[role]}")
        return stimuli.WorkerReady(role=role, worker_id=worker_id, pid=100 + self.spawned[role])

    def start_failed(self, number: int) -> AnyStimulus:
        role = self.role(number)
        self.spawned[role] += 1
        return stimuli.WorkerStartFailed(role=role, worker_id=WorkerId(f"{role}-{self.spawned[role]}"), words="no")

    def exited(self, number: int) -> AnyStimulus:
        role = self.role(number)
        return stimuli.WorkerExited(role=role, worker_id=self.worker(role, number), pid=1, words="gone")

    def swept(self, number: int) -> AnyStimulus:
        role = self.role(number)
        return stimuli.Swept(role=role, worker_id=self.worker(role, number), killed=number % 3, survivors=0)

    def delta(self, number: int) -> AnyStimulus:
        text = "x" * (number % 7 + 1) * (1000 if number % 5 == 0 else 1)
        message = messages.Delta(**self.work(number), attempt=self.drive.attempt, text=text, reasoning=number % 4 == 0)
        return self.say("llm", number, message)

    def ended(self, number: int) -> AnyStimulus:
        finish: tuple[Finish, ...] = ("stop", "tool_calls", "tool_calls", "length", "content_filter")
        return self.say(
            "llm",
            number,
            messages.AttemptEnded(
                **self.work(number),
                attempt=self.drive.attempt - (number % 19 == 18),
                finish=finish[number % len(finish)],
                finish_raw="",
                calls=DRAFTS[number % len(DRAFTS)],
                reasoning=(),
                usage=Usage(input=number % 50, output=1) if number % 2 else None,
            ),
        )

    def failed(self, number: int) -> AnyStimulus:
        status = (429, 500, 401, 400, None, 413)[number % 6]
        body = '{"error":{"code":"tool_use_failed","message":"x"}}' if status == 400 else ""
        return self.say(
            "llm",
            number,
            messages.AttemptFailed(
                **self.work(number),
                attempt=self.drive.attempt,
                phase="headers" if status else "body",
                status=status,
                body=body,
                truncated=status is None,
                calls=DRAFTS[number % len(DRAFTS)],
            ),
        )

    def call_id(self, number: int) -> CallId:
        sent = [entry.call.call_id for entry in self.drive.state.calls if entry.stage == "sent"]
        return sent[number % len(sent)] if sent else CallId(f"c{number % 5 + 1}")

    def tool_started(self, number: int) -> AnyStimulus:
        message = messages.ToolStarted(**self.work(number), call_id=self.call_id(number), pid=300)
        return self.say("tool", number, message)

    def tool_ended(self, number: int) -> AnyStimulus:
        text = f"out {number % 3}"
        message = messages.ToolEnded(**self.work(number), call_id=self.call_id(number), outcome=outcome(text))
        return self.say("tool", number, message)

    def tool_led_outside(self, number: int) -> AnyStimulus:
        message = messages.ToolLeadsOutside(**self.work(number), call_id=self.call_id(number), real="/etc/x")
        return self.say("tool", number, message)

    def acknowledged(self, number: int) -> AnyStimulus:
        role = self.role(number)
        generation = self.drive.state.generation - (number % 7 == 6)
        usage = Usage(input=1) if number % 3 == 0 else None
        message = messages.CancelAcknowledged(session_id=SESSION_ID, generation=generation, level=1, usage=usage)
        return self.say(role, number, message)

    def done(self, number: int) -> AnyStimulus:
        role = self.role(number)
        entry = messages.CallOutcome(call_id=self.call_id(number), outcome=outcome("cut", "cancelled_killed"))
        message = messages.CancelDone(
            session_id=SESSION_ID,
            generation=self.drive.state.generation - (number % 7 == 6),
            level=1,
            rung="term",
            killed=1,
            survivors=0,
            calls=(entry,) if role == "tool" and number % 3 else (),
        )
        return self.say(role, number, message)

    def heartbeat(self, number: int) -> AnyStimulus:
        message = messages.Heartbeat(progress=number, model_silent_ms=number * 300)
        return self.say(self.role(number), number, message)

    def tick(self, number: int) -> AnyStimulus:
        deadline = session.next_deadline(self.drive.state)
        if deadline is not None and number % 3:
            self.drive.now = max(self.drive.now, deadline)
        return stimuli.Tick(jitter=number % 10 / 10)

    def cancel(self, number: int) -> AnyStimulus:
        return stimuli.CancelAsked(by="key", terminated=number % 2 == 0)

    def kill(self, number: int) -> AnyStimulus:
        return stimuli.KillAsked(role=(None, "llm", "tool")[number % 3])

    def answer(self, number: int) -> AnyStimulus:
        asked = [entry.call.call_id for entry in self.drive.state.calls if entry.stage == "asking"]
        call_id = asked[0] if asked else CallId("c1")
        answers: tuple[ApprovalAnswer, ...] = ("yes", "always_tool", "no", "always_all")
        return stimuli.Answered(call_id=call_id, answer=answers[number % 4])

    def suspended(self, number: int) -> AnyStimulus:
        self.drive.now += number
        return stimuli.Suspended(gap_s=float(number))


@settings(max_examples=300)
@given(
    mode=st.sampled_from(MODES),
    items=st.sampled_from(HISTORIES),
    story=st.lists(st.tuples(st.integers(0, 49), st.integers(0, 100)), max_size=80),
)
def test_the_invariants_hold_in_any_order_and_a_stop_always_ends(
    mode: SessionSettings, items: tuple[Item, ...], story: list[tuple[int, int]]
) -> None:
    """P5, P6, E3, F7, F9, K1; R12, R74."""
    drive = Drive(mode, items).open()
    happenings = Happenings(drive)
    for index, (kind, number) in enumerate(story):
        drive.feed(happenings.make(kind, number), after_s=0.01 * (index % 3))
    drive.cancel("key")
    for _ in range(12):
        if not session.is_running(drive.state):
            break
        drive.wait()
    assert not session.is_running(drive.state), "nothing but time passed, and the stop did not end"
    drive.prompt("once more")
    assert session.is_running(drive.state) or drive.result.reason in ("limit", "worker_failed")
    assert replayed(mode, items, drive.recorded) == drive.state


def replayed(
    mode: SessionSettings, items: tuple[Item, ...], recorded: list[tuple[AnyStimulus, float]]
) -> session.SessionState:
    """Design 5: the journal is the list of stimuli; read back and stepped through, it gives the same state."""
    state = session.open_session(SESSION_ID, mode, items)
    for stimulus, now in recorded:
        read_back: AnyStimulus = msgspec.msgpack.decode(msgspec.msgpack.encode(stimulus), type=AnyStimulus)
        state, _ = session.step(state, read_back, now)
    return state
