"""The six runs of the interface, line by line, as the core tells them."""

from support.drive import PIDS, Drive, call, outcome, read, shell

from haltline.protocol import events
from haltline.protocol.conversation import AssistantMessage, ToolCall, ToolResult, Usage, UserMessage
from haltline.protocol.events import CancelReceipt, Counters
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import Reason
from haltline.supervisor import feedback, session
from haltline.supervisor.arguments import OFFERED
from haltline.supervisor.effects import Finish, SendAttempt, Show, SpawnWorker
from haltline.supervisor.stimuli import Opened, Prompted

C1 = CallId("c1")
C2 = CallId("c2")
C3 = CallId("c3")


def result(reason: Reason, **changes: object) -> events.Result:
    """A result with the values of a run that needed one attempt and nothing else."""
    values: dict[str, object] = {
        "message": "completed",
        "text": "",
        "retryable": False,
        "exit_code": 0,
        "usage": Usage(input=10, output=5),
        "counters": Counters(),
        "turns": 1,
        "attempts": 1,
        "tool_calls": 0,
        "tool_runs": 0,
        "ms": 0,
    }
    return events.Result(reason=reason, **{**values, **changes})  # type: ignore[arg-type]


def delta(text: str) -> events.Message:
    return events.Message(role="assistant", text=text, delta=True)


def whole(text: str, *, partial: bool = False) -> events.Message:
    return events.Message(role="assistant", text=text, partial=partial)


def test_init_is_first_and_both_workers_are_started(drive: Drive) -> None:
    """Interface: init is the first line; L1."""
    settings = drive.state.settings
    assert drive.feed(Opened()) == [
        Show(
            event=events.Init(
                model="m",
                api="chat",
                cwd="/w/space",
                approval_mode="yolo",
                retry="interactive",
                isolation="subreaper",
                limits=settings.run_limits,
                version="0",
            ),
            run=1,
            turn=0,
        ),
        SpawnWorker(role="llm"),
        Show(event=events.Worker(role="llm", pid=None, state="starting"), run=1, turn=0),
        SpawnWorker(role="tool"),
        Show(event=events.Worker(role="tool", pid=None, state="starting"), run=1, turn=0),
    ]


def test_every_line_of_a_session_names_a_run_from_one(drive: Drive) -> None:
    """Interface: `run` (from 1); what comes before the first prompt belongs to the first run."""
    drive.open().ready().prompt().answer().prompt().answer()
    runs = [effect.run for effect in drive.done_so_far if isinstance(effect, Show)]
    assert runs == sorted(runs)
    assert set(runs) == {1, 2}


def test_a_prompt_sends_the_whole_conversation_to_the_model(drive: Drive) -> None:
    drive.open().ready()
    done = drive.feed(Prompted(text="hello"))
    assert done[0] == Show(event=events.Message(role="user", text="hello"), run=1, turn=0)
    (sent,) = [effect.message for effect in done if isinstance(effect, SendAttempt)]
    assert sent.items == (UserMessage(text="hello"),)
    assert (sent.run, sent.turn, sent.attempt, sent.generation) == (1, 1, 1, 0)
    assert sent.tools == OFFERED


def test_a_prompt_before_the_workers_are_ready_is_sent_when_the_llm_worker_is(drive: Drive) -> None:
    drive.open().prompt()
    assert drive.requests == []
    assert session.ps_state(drive.state) == "starting"
    drive.ready("llm")
    assert len(drive.requests) == 1


def test_run_ok(drive: Drive) -> None:
    drive.running().say("Hel", "lo").end()
    assert drive.told() == [delta("Hel"), delta("lo"), whole("Hello"), result("completed", text="Hello")]
    assert drive.done_so_far[-1] == Finish()
    assert drive.state.history == (UserMessage(text="do it"), AssistantMessage(text="Hello"))


def test_run_401(drive: Drive) -> None:
    """A3: one request, then surface."""
    drive.running().fail(status=401, body='{"error":{"message":"bad key","code":"invalid_api_key"}}')
    error, end = drive.told()
    assert isinstance(error, events.Error)
    assert error == events.Error(
        kind="auth",
        subkind=None,
        phase="headers",
        emitted=0,
        provider_status=401,
        message=error.message,
        retryable=False,
        handling="surface",
    )
    assert end == result("failed", kind="auth", provider_status=401, message=error.message, exit_code=77, usage=Usage())


def test_run_429_then_ok(drive: Drive) -> None:
    """C4, C7: the wait is announced and lasts what the policy or the server says."""
    drive.running().fail(status=429, headers={"retry-after": "1"}, body='{"error":{"message":"slow down"}}')
    error, retry = drive.told()
    assert isinstance(error, events.Error)
    assert (error.kind, error.handling, error.retryable) == ("rate_limited", "retry", True)
    assert retry == events.Retry(attempt=2, of=3, wait_ms=1000, kind="rate_limited", message=error.message)
    assert session.ps_state(drive.state) == "backoff"
    assert session.next_deadline(drive.state) == drive.now + 1.0
    drive.wait().answer("Hello")
    assert drive.told() == [
        delta("Hello"),
        whole("Hello"),
        result("completed", text="Hello", attempts=2, counters=Counters(transport_retry=1), ms=1000),
    ]
    assert [request.turn for request in drive.requests] == [1, 1]


def test_run_sigint(drive: Drive) -> None:
    """F1 to F3, F8: told in one order, whatever order it came in."""
    drive.running().say("Hel", "lo").cancel("signal")
    drive.now += 0.010
    drive.acknowledges("tool")
    drive.stops("tool", after_s=0.010)
    assert [event for event in drive.told() if isinstance(event, events.CancelStep)] == [
        events.CancelStep(phase="requested", by="signal")
    ]
    drive.acknowledges("llm", usage=Usage(input=7, output=2), after_s=0.010)
    drive.stops("llm", after_s=0.010)
    llm, tool = PIDS["llm"] + 1, PIDS["tool"] + 1
    assert drive.told() == [
        events.CancelStep(phase="acknowledged", role="llm", pid=llm, ms=30.0),
        events.CancelStep(phase="acknowledged", role="tool", pid=tool, ms=10.0),
        events.CancelStep(phase="done", role="llm", pid=llm, ms=40.0, rung="ack", killed=0, survivors=0),
        events.CancelStep(phase="done", role="tool", pid=tool, ms=20.0, rung="ack", killed=0, survivors=0),
        result(
            "cancelled",
            message="stopped",
            text="Hello",
            exit_code=130,
            usage=Usage(input=7, output=2),
            ms=40,
            cancel=CancelReceipt(stream_ms=30.0, tools_ms=None, total_ms=40.0, rung="ack", killed=0, survivors=0),
        ),
    ]
    assert drive.state.history == (
        UserMessage(text="do it"),
        AssistantMessage(text="Hello", partial=True),
        feedback.interrupted("signal", had_text=True, had_calls=False),
    )


def test_the_part_that_had_come_is_told_right_after_the_request_to_stop(drive: Drive) -> None:
    drive.running().say("Hel").told()
    drive.cancel("key")
    assert drive.told() == [events.CancelStep(phase="requested", by="key"), whole("Hel", partial=True)]


def test_run_same_call_three_times(drive: Drive) -> None:
    """H1."""
    drive.running()
    for call_id in ("c1", "c2"):
        drive.end(shell("ls")).runs(call_id)
        assert drive.told() == [
            events.ToolUse(call_id=CallId(call_id), name="shell", arguments_raw='{"command":"ls"}'),
            events.ToolStart(call_id=CallId(call_id), pid=300),
            events.ToolResult(
                call_id=CallId(call_id), ok=True, status="done", changed="maybe", exit_code=0, text="out", ms=5
            ),
        ]
    drive.end(shell("ls")).answer("It is empty.")
    assert drive.told() == [
        events.ToolUse(call_id=C3, name="shell", arguments_raw='{"command":"ls"}'),
        events.Loop(detector="same_call", count=3, action="feedback"),
        events.ToolResult(
            call_id=C3,
            ok=False,
            status="refused_loop",
            changed="nothing",
            exit_code=None,
            text=feedback.repeated("shell", 3),
            ms=0,
        ),
        delta("It is empty."),
        whole("It is empty."),
        result(
            "completed",
            text="It is empty.",
            usage=Usage(input=40, output=20),
            counters=Counters(same_call=1),
            turns=4,
            attempts=4,
            tool_calls=3,
            tool_runs=2,
        ),
    ]


def test_run_cut_call(drive: Drive) -> None:
    """E4, R41: nothing of a cut response runs."""
    drive.running().say("I write").end(call("write_file", '{"path":"a","cont', complete=False), finish="length")
    one, error, *rest = drive.told()[1:]
    assert one == whole("I write", partial=True)
    assert isinstance(error, events.Error)
    assert (error.kind, error.handling, error.emitted) == ("output_truncated", "continue", 1)
    assert rest == [
        events.ToolUse(call_id=C1, name="write_file", arguments_raw='{"path":"a","cont'),
        events.ToolResult(
            call_id=C1,
            ok=False,
            status="refused_incomplete",
            changed="nothing",
            exit_code=None,
            text=feedback.incomplete(),
            ms=0,
        ),
        events.Continuation(count=1, of=3),
    ]
    assert drive.sent_tools == []
    assert drive.requests[-1].items == (
        UserMessage(text="do it"),
        AssistantMessage(
            text="I write",
            calls=(ToolCall(call_id=C1, name="write_file", arguments_raw='{"path":"a","cont', parsed=False),),
            partial=True,
        ),
        ToolResult(call_id=C1, name="write_file", text=feedback.incomplete(), ok=False, status="refused_incomplete"),
        feedback.go_on(),
    )
    drive.answer("done")
    assert drive.result == result(
        "completed",
        text="done",
        usage=Usage(input=20, output=10),
        counters=Counters(continuation=1),
        turns=2,
        attempts=2,
        tool_calls=1,
    )


def test_results_may_come_in_any_order_and_stand_in_that_of_the_calls(drive: Drive) -> None:
    """J2, K1: read-only neighbours run side by side."""
    drive.running().end(read("a"), read("b"))
    assert [tool.call_id for tool in drive.sent_tools] == [C1, C2]
    drive.runs("c2", outcome("B")).runs("c1", outcome("A"))
    shown = [event.call_id for event in drive.told() if isinstance(event, events.ToolResult)]
    assert shown == [C2, C1]
    assert drive.requests[-1].items[2:] == (
        ToolResult(call_id=C1, name="read_file", text="A", ok=True),
        ToolResult(call_id=C2, name="read_file", text="B", ok=True),
    )
