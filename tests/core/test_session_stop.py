"""A stop in every phase, up every rung, with every outcome of an open call (F1 to F10)."""

from collections.abc import Callable

import pytest
from support.drive import Drive, outcome, read, settings, shell

from haltline.protocol import events
from haltline.protocol.conversation import AssistantMessage, ToolResult, Usage, UserMessage
from haltline.protocol.events import CancelReceipt
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import CancelBy
from haltline.protocol.messages import CallOutcome, Cancel, Delta
from haltline.supervisor import effects, feedback, session, stimuli
from haltline.supervisor.effects import BroadcastCancel

ASKING = settings(approval_mode="ask", interactive=True)


def in_starting() -> Drive:
    return Drive().open().prompt()


def in_streaming_before_text() -> Drive:
    return Drive().running()


def in_streaming_after_text() -> Drive:
    return Drive().running().say("Hel")


def in_waiting_retry() -> Drive:
    return Drive().running().fail(status=500)


def in_deciding() -> Drive:
    drive = Drive().open().ready("llm").prompt()
    return drive.end(shell("ls"))


def in_waiting_approval() -> Drive:
    return Drive(ASKING).running().end(shell("ls"))


def in_running_tools() -> Drive:
    return Drive().running().end(shell("ls")).tool_starts("c1")


PHASES: tuple[tuple[str, Callable[[], Drive]], ...] = (
    ("starting", in_starting),
    ("streaming", in_streaming_before_text),
    ("streaming", in_streaming_after_text),
    ("waiting_retry", in_waiting_retry),
    ("deciding", in_deciding),
    ("waiting_approval", in_waiting_approval),
    ("running_tools", in_running_tools),
)


@pytest.mark.parametrize(("phase", "made"), PHASES)
def test_a_cancel_ends_the_run_in_every_phase_and_the_next_prompt_is_taken_at_once(
    phase: str, made: Callable[[], Drive]
) -> None:
    """F7, F9; nothing is sent after the cancel (C7) is an invariant of the driver."""
    drive = made()
    assert drive.state.phase == phase
    sent = len(drive.requests)
    drive.cancel("key")
    assert session.ps_state(drive.state) == "cancelling"
    for role in ("llm", "tool"):
        seat = drive.state.llm if role == "llm" else drive.state.tool
        if seat.state == "ready":
            drive.acknowledges(role).stops(role)
        else:
            drive.cannot_start(role, "killed by signal 9")
    assert (drive.result.reason, drive.result.kind, drive.result.exit_code) == ("cancelled", None, 130)
    assert len(drive.requests) == sent
    drive.prompt("again")
    if drive.state.llm.state != "ready":
        drive.ready("llm")
    if drive.state.tool.state != "ready":
        drive.ready("tool")
    assert len(drive.requests) == sent + 1
    assert drive.answer().result.reason == "completed"


@pytest.mark.parametrize(("phase", "made"), PHASES)
def test_a_kill_ends_the_run_in_every_phase_with_both_workers_dead(phase: str, made: Callable[[], Drive]) -> None:
    """F4, interface: killed, 137."""
    drive = made()
    assert drive.state.phase == phase
    drive.kill()
    assert sorted(drive.kills) == ["llm", "tool"]
    for role in ("llm", "tool"):
        if drive.state.llm.pid if role == "llm" else drive.state.tool.pid:
            drive.exits(role).swept(role, killed=1)
        else:
            drive.cannot_start(role)
    assert (drive.result.reason, drive.result.exit_code) == ("killed", 137)
    assert drive.result.cancel is not None
    assert drive.result.cancel.rung == "worker_kill"


def test_a_cancel_raises_the_generation_and_is_broadcast_to_both_workers(drive: Drive) -> None:
    """F3."""
    drive.running().cancel()
    assert drive.cancels == [
        BroadcastCancel(
            message=Cancel(session_id=drive.state.session_id, generation=1, level=1, grace_s=2.0),
            roles=("llm", "tool"),
        )
    ]


def test_a_sigterm_ends_with_its_own_exit_code(drive: Drive) -> None:
    assert drive.running().cancel("signal", terminated=True).stopped().result.exit_code == 143


def test_a_cancel_of_an_idle_session_does_nothing(drive: Drive) -> None:
    drive.open().ready()
    assert drive.feed(stimuli.CancelAsked(by="client")) == []
    assert drive.feed(stimuli.KillAsked(role=None)) != []


def test_what_an_older_generation_still_says_is_dropped(drive: Drive) -> None:
    """F3, R12: late text, a late end and a late result change nothing."""
    drive.running().say("Hel")
    work, attempt = drive.work(), drive.attempt
    drive.cancel()
    before = drive.state
    late = stimuli.FromWorker(
        role="llm",
        worker_id=drive.worker_id("llm"),
        message=Delta(**work, attempt=attempt, text="lo"),
    )
    assert drive.feed(late) == []
    assert drive.state == before
    drive.stopped().prompt("again")
    assert drive.feed(late) == []


def test_a_second_cancel_skips_the_grace_and_keeps_the_generation(drive: Drive) -> None:
    """F10."""
    drive.running().end(shell("sleep 9")).tool_starts("c1").cancel("key").cancel("key").cancel("key")
    assert [(entry.message.generation, entry.message.level, entry.message.grace_s) for entry in drive.cancels] == [
        (1, 1, 2.0),
        (1, 2, 0.0),
    ]


def test_a_worker_that_does_not_acknowledge_in_two_seconds_is_killed(drive: Drive) -> None:
    """F4; the other worker is left alone."""
    drive.running().say("Hel").cancel().acknowledges("tool").stops("tool")
    drive.told()
    before = drive.now
    drive.wait()
    assert drive.now == before + 2.0
    assert drive.kills == ["llm"]
    drive.exits("llm").swept("llm")
    llm = drive.pid("llm")
    tool = drive.pid("tool")
    shown = drive.told(workers=True)
    assert shown[:4] == [
        events.Worker(role="llm", pid=llm, state="killed", reason="it did not acknowledge the stop within 2 s"),
        events.CancelStep(phase="acknowledged", role="tool", pid=tool, ms=0.0),
        events.CancelStep(phase="done", role="llm", pid=llm, ms=2000.0, rung="worker_kill", killed=0, survivors=0),
        events.CancelStep(phase="done", role="tool", pid=tool, ms=0.0, rung="ack", killed=0, survivors=0),
    ]
    assert drive.result.cancel == CancelReceipt(
        stream_ms=2000.0, tools_ms=None, total_ms=2000.0, rung="worker_kill", killed=0, survivors=0
    )


def test_a_worker_that_acknowledges_and_does_not_finish_is_killed(drive: Drive) -> None:
    """I6: the deadline of the done is grace, kill and a margin after the acknowledgement."""
    drive.running().end(shell("x")).tool_starts("c1").cancel().acknowledges("llm", "tool").stops("llm")
    drive.wait()
    assert drive.kills == ["tool"]
    drive.exits("tool").swept("tool", killed=3)
    assert drive.result.cancel is not None
    assert (drive.result.cancel.rung, drive.result.cancel.killed) == ("worker_kill", 3)


def test_a_second_cancel_shortens_the_wait_for_an_acknowledged_worker(drive: Drive) -> None:
    drive.running().end(shell("x")).tool_starts("c1").cancel().acknowledges("llm", "tool").stops("llm")
    first = session.next_deadline(drive.state)
    assert first is not None
    drive.cancel()
    second = session.next_deadline(drive.state)
    assert second == first - 2.0


def test_a_killed_worker_that_is_never_seen_gone_is_said_to_be_left(drive: Drive) -> None:
    """F1: stopped is not said of what was not seen."""
    drive.running().cancel().acknowledges("tool").stops("tool").wait().wait()
    assert drive.result.cancel is not None
    assert drive.result.cancel.survivors == 1
    assert drive.result.message == "stopped; 1 process(es) could not be seen to end"
    assert drive.prompt("again").state.llm.state == "starting"


def test_a_worker_that_dies_by_itself_during_the_stop_ends_its_part(drive: Drive) -> None:
    drive.running().cancel().acknowledges("llm").stops("llm")
    drive.exits("tool").swept("tool", killed=2)
    assert drive.result.cancel is not None
    assert (drive.result.cancel.rung, drive.result.cancel.killed) == ("sweep", 2)


@pytest.mark.parametrize("killed_by_the_stop", [True, False])
def test_the_tree_of_a_namespaced_tool_worker_ended_with_it(killed_by_the_stop: bool) -> None:
    """Interface, rung: pidns. The LLM worker is in no namespace."""
    drive = Drive(settings(isolation="pidns")).running().cancel()
    if killed_by_the_stop:
        drive.acknowledges("llm").stops("llm").wait()
        assert drive.kills == ["tool"]
        drive.exits("tool").swept("tool", killed=3)
    else:
        drive.acknowledges("llm").stops("llm").exits("tool").swept("tool", killed=3)
    assert drive.result.cancel is not None
    assert (drive.result.cancel.rung, drive.result.cancel.killed) == ("pidns", 3)


def test_workers_that_the_stop_killed_while_they_started_are_told_as_killed() -> None:
    """Interface, rung: the shell kills a worker that is still starting when the stop comes (BroadcastCancel)."""
    drive = in_starting().ready("tool").cancel().acknowledges("tool").stops("tool")
    assert drive.cancels[0].roles == ("llm", "tool")
    drive.cannot_start("llm", "killed by signal 9")
    done = [event for event in drive.told() if isinstance(event, events.CancelStep) and event.phase == "done"]
    assert [(event.role, event.rung) for event in done] == [("llm", "worker_kill"), ("tool", "ack")]
    assert drive.result.cancel is not None
    assert drive.result.cancel.rung == "worker_kill"


def test_a_done_without_an_acknowledgement_stands_for_both(drive: Drive) -> None:
    drive.running().cancel().stops("llm", "tool")
    assert [event.phase for event in drive.told() if isinstance(event, events.CancelStep)] == [
        "requested",
        "acknowledged",
        "acknowledged",
        "done",
        "done",
    ]


def test_each_open_call_gets_its_one_true_result(drive: Drive) -> None:
    """F8, R74: finished, killed, never started; in the history in order of the calls."""
    drive.running().end(read("a"), read("b"), read("c"), shell("ls"))
    drive.runs("c1", outcome("A")).tool_starts("c2").tool_starts("c3").told()
    drive.cancel("key").acknowledges("llm", "tool").stops("llm")
    killed = outcome("half", "cancelled_killed", exit_code=None)
    finished = outcome("C")
    drive.stops(
        "tool",
        rung="term",
        killed=2,
        calls=(
            CallOutcome(call_id=CallId("c3"), outcome=finished),
            CallOutcome(call_id=CallId("c2"), outcome=killed),
        ),
    )
    results = [event for event in drive.told() if isinstance(event, events.ToolResult)]
    assert [(event.call_id, event.status, event.ok) for event in results] == [
        ("c2", "cancelled_killed", False),
        ("c3", "done", True),
        ("c4", "cancelled_not_started", False),
    ]
    assert drive.state.history[2:] == (
        ToolResult(call_id=CallId("c1"), name="read_file", text="A", ok=True),
        ToolResult(call_id=CallId("c2"), name="read_file", text="half", ok=False, status="cancelled_killed"),
        ToolResult(call_id=CallId("c3"), name="read_file", text="C", ok=True),
        ToolResult(
            call_id=CallId("c4"), name="shell", text=feedback.not_started(), ok=False, status="cancelled_not_started"
        ),
        feedback.interrupted("key", had_text=False, had_calls=True),
    )
    assert drive.result.cancel is not None
    assert drive.result.cancel.tools_ms is not None
    assert drive.result.cancel.stream_ms is None


def test_a_call_that_was_sent_and_never_began_is_not_started(drive: Drive) -> None:
    drive.running().end(shell("ls")).cancel().stopped()
    results = [event for event in drive.told() if isinstance(event, events.ToolResult)]
    assert [(event.status, event.changed) for event in results] == [("cancelled_not_started", "nothing")]


def test_a_call_whose_worker_was_killed_in_the_stop_has_an_unknown_outcome(drive: Drive) -> None:
    """F8, K3."""
    drive.running().end(shell("ls")).tool_starts("c1").cancel().acknowledges("llm").stops("llm").wait()
    drive.exits("tool").swept("tool")
    results = [event for event in drive.told() if isinstance(event, events.ToolResult)]
    assert [(event.status, event.changed) for event in results] == [("outcome_unknown", "maybe")]


def test_reasoning_that_was_cut_does_not_enter_the_history(drive: Drive) -> None:
    """D7, R47, R48: half a thought and an empty message are never sent."""
    drive.running().say("hm", reasoning=True).cancel().stopped()
    assert drive.state.history == (
        UserMessage(text="do it"),
        feedback.interrupted("signal", had_text=False, had_calls=False),
    )
    assert events.Reasoning(text="hm", partial=True) in drive.told()


def test_an_interrupted_attempt_without_usage_is_charged_by_estimate(drive: Drive) -> None:
    """D6, R62."""
    usage = drive.running().say("word " * 100).cancel().stopped().result.usage
    assert usage.estimated
    assert usage.output == 125
    assert drive.prompt().say("x").cancel().acknowledges(
        "llm", usage=Usage(input=3, output=1)
    ).stopped().result.usage == Usage(input=3, output=1)


def test_a_kill_during_a_stop_ends_it_at_once(drive: Drive) -> None:
    drive.running().end(shell("x")).tool_starts("c1").cancel().acknowledges("llm", "tool").stops("llm").kill().kill()
    assert drive.kills == ["tool"]
    drive.exits("tool").swept("tool", killed=1)
    assert (drive.result.reason, drive.result.exit_code) == ("killed", 137)


def test_one_worker_can_be_killed_during_a_stop(drive: Drive) -> None:
    drive.running().cancel().kill("llm")
    assert drive.kills == ["llm"]
    drive.acknowledges("tool").stops("tool").exits("llm").swept("llm")
    assert drive.result.reason == "cancelled"


def test_the_partial_answer_is_kept_and_the_model_learns_of_the_interruption(drive: Drive) -> None:
    """F8."""
    drive.running().say("Half an ans").cancel().stopped().prompt("go on")
    assert drive.requests[-1].items == (
        UserMessage(text="do it"),
        AssistantMessage(text="Half an ans", partial=True),
        feedback.interrupted("signal", had_text=True, had_calls=False),
        UserMessage(text="go on"),
    )


@pytest.mark.parametrize("by", ["key", "signal", "client", "lost_client"])
def test_the_model_learns_who_stopped_the_run(drive: Drive, by: CancelBy) -> None:
    drive.running().cancel(by).stopped()
    assert drive.state.history[-1] == feedback.interrupted(by, had_text=False, had_calls=False)


def test_the_model_learns_that_the_run_was_killed_whoever_had_begun_to_stop_it(drive: Drive) -> None:
    drive.running().cancel("key").kill().exits("llm").swept("llm").exits("tool").swept("tool")
    assert drive.state.history[-1] == feedback.interrupted("killed", had_text=False, had_calls=False)


def test_a_stop_during_the_sweep_of_a_dead_worker_waits_for_it(drive: Drive) -> None:
    drive.running().end(shell("x")).tool_starts("c1").exits("tool").cancel().acknowledges("llm").stops("llm")
    assert session.is_running(drive.state)
    assert [effect for effect in drive.done_so_far if isinstance(effect, effects.KillWorker)] == []
    drive.swept("tool")
    assert drive.result.reason == "cancelled"


def test_a_lost_client_leaves_its_tools_one_second(drive: Drive) -> None:
    """G2: nothing is alive 2 s after the death of the client, tools that ignore SIGTERM included."""
    drive.running().end(shell("sleep 9")).tool_starts("c1").cancel("lost_client")
    assert [entry.message.grace_s for entry in drive.cancels] == [1.0]
