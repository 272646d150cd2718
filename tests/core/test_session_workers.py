"""Workers that die, hang, or do not start; a supervisor that did not run (L2, L3, L5, L6)."""

from support.drive import Drive, outcome, read, settings, shell

from haltline.protocol import events, times
from haltline.protocol.ids import Role
from haltline.protocol.messages import CallOutcome, Cancel, CancelAcknowledged, CancelDone, Delta
from haltline.protocol.settings import NO_LIMITS, Limits, StreamLimits
from haltline.supervisor import session, stimuli
from haltline.supervisor.effects import BroadcastCancel, SpawnWorker

LONG = settings(run_limits=Limits(seconds=0))


def spawned(drive: Drive) -> list[Role]:
    return [effect.role for effect in drive.done_so_far if isinstance(effect, SpawnWorker)]


def worker_lines(drive: Drive) -> list[tuple[Role, str, str | None]]:
    return [
        (event.role, event.state, event.reason)
        for event in drive.told(workers=True)
        if isinstance(event, events.Worker)
    ]


def test_an_llm_worker_lost_before_text_is_replaced_and_the_request_sent_again(drive: Drive) -> None:
    """L2: same turn; counted as worker_restart and not as a retry of the transport (I4)."""
    drive.running().exits("llm")
    shown = drive.told(workers=True)
    assert [(event.state, event.reason) for event in shown if isinstance(event, events.Worker)] == [
        ("exited", "killed by signal 9")
    ]
    (error,) = [event for event in shown if isinstance(event, events.Error)]
    assert (error.kind, error.subkind, error.handling) == ("network", "reset", "retry")
    assert shown[-1] == events.Retry(attempt=2, of=4, wait_ms=0, kind="network", message=error.message)
    assert len(drive.requests) == 1
    drive.swept("llm")
    assert worker_lines(drive) == [("llm", "replaced", "killed by signal 9")]
    drive.ready("llm").answer()
    assert (drive.result.reason, drive.result.attempts, drive.result.turns) == ("completed", 2, 1)
    assert drive.result.counters == events.Counters(worker_restart=1)


def test_an_llm_worker_lost_after_text_surfaces_with_the_text_kept(drive: Drive) -> None:
    """L2, A6."""
    drive.running().say("Hel").exits("llm")
    assert (drive.result.reason, drive.result.kind, drive.result.text) == ("failed", "stream_truncated", "Hel")
    drive.swept("llm").prompt()
    assert spawned(drive) == ["llm", "tool", "llm"]


def test_of_a_traceback_only_its_last_line_is_told(drive: Drive) -> None:
    """L3: by the event, by the failure and by the result; the zygote has logged the whole."""
    traceback = 'Traceback (most recent call last):\n  File "/srv/a/main.py", line 1, in main\nModuleNotFoundError: x\n'
    drive.running().exits("llm", traceback)
    shown = drive.told(workers=True)
    assert [event.reason for event in shown if isinstance(event, events.Worker)] == ["ModuleNotFoundError: x"]
    assert [event.message for event in shown if isinstance(event, events.Error)] == [
        "the worker that held the request to 127.0.0.1:1 ended: ModuleNotFoundError: x"
    ]
    drive.swept("llm")
    for _ in range(3):
        drive.cannot_start("llm", traceback)
    assert drive.result.message == "the LLM worker could not be started, 3 times: ModuleNotFoundError: x"


def test_the_fourth_loss_within_a_minute_ends_the_run(drive: Drive) -> None:
    """L2: 3 in 60 s."""
    drive.running()
    for _ in range(3):
        drive.exits("llm").swept("llm").ready("llm")
    drive.exits("llm").swept("llm")
    assert (drive.result.reason, drive.result.exit_code, drive.result.kind) == ("worker_failed", 79, None)
    assert drive.result.counters.worker_restart == 3
    assert [event.handling for event in drive.told() if isinstance(event, events.Error)][-1] == "surface"


def test_losses_further_apart_are_replaced_for_ever() -> None:
    drive = Drive(LONG).running()
    for _ in range(6):
        drive.wait_s(31.0, beats=("llm",)).exits("llm").swept("llm").ready("llm")
    assert drive.answer().result.reason == "completed"


def test_a_tool_worker_lost_with_a_call_running_leaves_its_outcome_unknown(drive: Drive) -> None:
    """L2, K3, C1: said only when its tree is gone; never run again; the next call runs in the new worker."""
    drive.running().end(shell("a"), shell("b")).tool_starts("c1").exits("tool")
    assert [event for event in drive.told() if isinstance(event, events.ToolResult)] == []
    drive.swept("tool", killed=2)
    (result,) = [event for event in drive.told() if isinstance(event, events.ToolResult)]
    assert (result.call_id, result.status, result.changed) == ("c1", "outcome_unknown", "maybe")
    drive.ready("tool")
    assert [tool.call_id for tool in drive.sent_tools] == ["c1", "c2"]
    drive.runs("c2").answer()
    assert (drive.result.reason, drive.result.counters.worker_restart) == ("completed", 1)


def test_an_idle_tool_worker_lost_during_a_stream_is_replaced_beside_it(drive: Drive) -> None:
    drive.running().say("Hel").exits("tool").swept("tool").ready("tool").say("lo").end()
    assert (drive.result.reason, drive.result.text) == ("completed", "Hello")


def test_a_tool_worker_lost_too_often_ends_the_run_only_where_it_is_needed(drive: Drive) -> None:
    drive.running()
    for _ in range(3):
        drive.exits("tool").swept("tool").ready("tool")
    drive.exits("tool").swept("tool").end(shell("ls"))
    assert drive.result.reason == "worker_failed"
    assert "tool worker ended 4 times in 60 s" in drive.result.message
    assert [event.status for event in drive.told() if isinstance(event, events.ToolResult)] == ["cancelled_not_started"]
    drive.prompt("again").ready("tool").end(shell("ls")).runs("c2").answer()
    assert (drive.result.reason, drive.result.tool_runs) == ("completed", 1)


def test_between_runs_a_lost_worker_is_replaced_by_the_next_prompt(drive: Drive) -> None:
    drive.running().answer().exits("llm").swept("llm")
    assert spawned(drive) == ["llm", "tool"]
    drive.prompt()
    assert spawned(drive) == ["llm", "tool", "llm"]
    assert drive.ready("llm").answer().result.reason == "completed"


def test_a_prompt_during_the_sweep_of_a_lost_worker_waits_for_it(drive: Drive) -> None:
    drive.running().answer().exits("llm").prompt()
    assert spawned(drive) == ["llm", "tool"]
    drive.swept("llm")
    assert spawned(drive) == ["llm", "tool", "llm"]


def test_three_failed_starts_surface_with_the_words_of_the_worker(drive: Drive) -> None:
    """L3, R94, R97."""
    drive.open().ready("tool").prompt()
    for _ in range(3):
        drive.cannot_start("llm", "ImportError: no module x")
    assert (drive.result.reason, drive.result.exit_code) == ("worker_failed", 79)
    assert drive.result.message == "the LLM worker could not be started, 3 times: ImportError: no module x"
    assert spawned(drive) == ["llm", "tool", "llm", "llm"]
    assert drive.result.counters.worker_restart == 0
    drive.prompt("again").ready("llm").answer()
    assert drive.result.reason == "completed"


def test_a_worker_that_is_not_ready_in_time_is_a_failed_start(drive: Drive) -> None:
    """L3, I6: its death, which follows the kill, is no second one."""
    drive.open().ready("tool").prompt()
    for kills in (1, 2, 3):
        drive.wait()
        assert drive.kills == ["llm"] * kills
        drive.cannot_start("llm", "")
    assert drive.result.reason == "worker_failed"
    assert drive.result.message == "the LLM worker could not be started, 3 times: it was not ready within 10 s"
    assert spawned(drive) == ["llm", "tool", "llm", "llm"]


def test_a_start_is_not_late_because_the_machine_was_suspended(drive: Drive) -> None:
    """L5."""
    drive.open().prompt()
    drive.now += 60.0
    drive.feed(stimuli.Suspended(gap_s=60.0))
    drive.feed(stimuli.Tick())
    assert drive.kills == []
    drive.ready()
    assert len(drive.requests) == 1


def test_one_worker_can_be_killed_and_the_session_goes_on(drive: Drive) -> None:
    """Interface: kill --worker."""
    drive.running().kill("llm")
    assert worker_lines(drive) == [("llm", "killed", "killed on request")]
    drive.exits("llm").swept("llm").ready("llm").answer()
    assert drive.result.reason == "completed"


def test_a_killed_worker_whose_end_is_never_seen_is_replaced_in_the_end(drive: Drive) -> None:
    drive.running().kill("llm").wait().ready("llm").answer()
    assert drive.result.reason == "completed"


def test_a_message_of_a_worker_that_was_replaced_is_dropped(drive: Drive) -> None:
    """R12."""
    drive.running()
    old = drive.worker_id("llm")
    drive.exits("llm").swept("llm").ready("llm")
    before = drive.state
    late = stimuli.FromWorker(
        role="llm",
        worker_id=old,
        message=Delta(**drive.work(), attempt=drive.attempt, text="late"),
    )
    assert drive.feed(late) == []
    assert drive.feed(stimuli.WorkerExited(role="llm", worker_id=old, pid=1, words="late")) == []
    assert drive.feed(stimuli.Swept(role="llm", worker_id=old, killed=0, survivors=0)) == []
    assert drive.state == before


def test_an_attempt_without_a_limit_is_never_overdue() -> None:
    """Settings: 0 is off, on both sides."""
    drive = Drive(settings(stream=StreamLimits(whole_s=0.0), run_limits=NO_LIMITS)).running()
    drive.wait_s(3600.0, beats=("llm",))
    assert not drive.cancels


def test_an_attempt_that_never_ends_is_ended_by_the_supervisor() -> None:
    """L6: the worker's limit, 1 s for its end, and 2 s; asked to stop, it does; the attempt failed by that limit."""
    drive = Drive(settings(stream=StreamLimits(whole_s=30.0))).running().say("Hel")
    drive.told()
    drive.wait_s(32.0, beats=("llm",))
    assert not drive.cancels
    drive.wait_s(1.0, beats=("llm",))
    assert drive.cancels == [
        BroadcastCancel(message=Cancel(session_id=drive.state.session_id, generation=1, grace_s=2.0), roles=("llm",))
    ]
    assert worker_lines(drive) == [("llm", "stalled", "its work did not end at its limit")]
    drive.acknowledges("llm").stops("llm")
    assert (drive.result.reason, drive.result.kind, drive.result.subkind) == (
        "failed",
        "stream_idle",
        "whole_request",
    )
    assert drive.result.text == "Hel"
    assert drive.kills == []


def test_an_llm_worker_without_heartbeat_is_asked_then_killed_then_replaced(drive: Drive) -> None:
    """L6: 10 s of silence, 2 s for an acknowledgement; before text the request is sent again."""
    start = drive.running().now
    drive.wait()
    assert drive.now - start == 10.0
    drive.wait()
    assert drive.now - start == 12.0
    assert drive.kills == ["llm"]
    drive.exits("llm").swept("llm").ready("llm").answer()
    assert (drive.result.reason, drive.result.counters.worker_restart) == ("completed", 1)
    assert drive.requests[-1].generation == 1


def test_a_tool_worker_without_heartbeat_loses_its_calls_and_the_run_goes_on(drive: Drive) -> None:
    """L6."""
    drive.running().end(shell("spin")).tool_starts("c1").wait().wait()
    assert drive.kills == ["tool"]
    drive.exits("tool").swept("tool")
    assert [event.status for event in drive.told() if isinstance(event, events.ToolResult)] == ["outcome_unknown"]
    assert len(drive.requests) == 2


def test_a_tool_call_that_is_overdue_ends_as_the_worker_says(drive: Drive) -> None:
    """L6: timeout, end of its tree and 2 s; a living worker is not killed (L5)."""
    drive.running().end(read("a"), read("b")).runs("c2").tool_starts("c1")
    start = drive.now
    while not drive.cancels:
        drive.wait_s(1.0, beats=("tool",))
    assert drive.now - start == 30.0 + times.LIMIT_GRACE_S + times.STORM_S + times.LATE_S
    killed = outcome("half", "cancelled_killed", exit_code=None)
    drive.acknowledges("tool").stops("tool", calls=(CallOutcome(call_id=drive.sent_tools[0].call_id, outcome=killed),))
    results = [event for event in drive.told() if isinstance(event, events.ToolResult)]
    assert [(event.call_id, event.status) for event in results] == [("c2", "done"), ("c1", "cancelled_killed")]
    assert drive.kills == []
    assert drive.answer().result.reason == "completed"


def test_a_worker_that_acknowledges_and_does_not_finish_is_killed_too(drive: Drive) -> None:
    drive.running().wait().acknowledges("llm").wait()
    assert drive.kills == ["llm"]


def test_only_the_worker_that_was_asked_can_answer_the_quiet_stop(drive: Drive) -> None:
    """F3: neither the other worker nor an older generation ends it."""
    drive.running().wait()
    assert session.ps_state(drive.state) == "stalled"
    before = drive.state
    drive.acknowledges("tool").stops("tool")
    older = CancelAcknowledged(session_id=before.session_id, generation=0, level=1)
    drive.said("llm", older)
    drive.said(
        "llm", CancelDone(session_id=before.session_id, generation=0, level=1, rung="ack", killed=0, survivors=0)
    )
    assert drive.state == before


def test_a_silent_worker_without_work_is_left_alone(drive: Drive) -> None:
    """L5, L6: only while work is due."""
    drive.running().end(shell("x")).tool_starts("c1")
    drive.wait_s(30.0, beats=("tool",))
    assert drive.cancels == []


def test_a_cancel_overtakes_the_quiet_stop_of_a_hung_worker(drive: Drive) -> None:
    drive.running().wait().cancel("key")
    assert [(entry.message.generation, entry.roles) for entry in drive.cancels] == [
        (1, ("llm",)),
        (2, ("llm", "tool")),
    ]
    assert drive.stopped().result.reason == "cancelled"


def test_time_in_which_the_supervisor_did_not_run_counts_against_nobody(drive: Drive) -> None:
    """L5, L6, R83."""
    drive.running().beat("llm")
    before = session.next_deadline(drive.state)
    assert before is not None
    drive.feed(stimuli.Suspended(gap_s=30.0), after_s=30.0)
    assert session.next_deadline(drive.state) == before + 30.0
    assert drive.feed(stimuli.Tick()) == []
    assert drive.answer().result.reason == "completed"


def test_time_in_which_the_supervisor_did_not_run_is_not_active_time() -> None:
    """L5, I3."""
    drive = Drive(settings(run_limits=Limits(seconds=20.0))).running()
    drive.feed(stimuli.Suspended(gap_s=30.0), after_s=30.0)
    drive.wait_s(5.0, beats=("llm",))
    assert drive.answer().result.reason == "completed"
