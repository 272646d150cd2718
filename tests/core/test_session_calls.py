"""The checks that a call goes through, in their order, and how calls run (B, H, I4, J2, J3)."""

from typing import Literal

import pytest
from support.drive import Drive, call, outcome, read, settings, shell

from haltline.protocol import events
from haltline.protocol.conversation import AssistantMessage, ToolCall
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import ApprovalMode, CallStatus
from haltline.protocol.messages import ToolEnded, ToolStarted
from haltline.protocol.settings import Limits, ToolLimits
from haltline.supervisor import feedback, session

ASK = settings(approval_mode="ask", interactive=True)


def results(drive: Drive) -> list[events.ToolResult]:
    return [event for event in drive.told() if isinstance(event, events.ToolResult)]


@pytest.mark.parametrize(
    ("name", "raw", "status", "words"),
    [
        ("str_replace_editor", "{}", "refused_unknown", "shell, read_file, write_file, edit_file, glob, search"),
        ("shell", "{", "refused_arguments", "line 1, column 2 (character 1)"),
        ("shell", '{"command":1,"x":2}', "refused_schema", "command: expected str, got a number 1"),
        ("shell", "", "refused_schema", "command: expected a value (the field is required), got nothing"),
    ],
)
def test_a_call_that_cannot_run_is_fed_back_with_what_is_wrong(
    drive: Drive, name: str, raw: str, status: CallStatus, words: str
) -> None:
    """B2 to B4, R39, R44, R52: nothing runs, nothing is asked."""
    drive.running().end(call(name, raw))
    (result,) = results(drive)
    assert (result.status, result.changed, result.ok) == (status, "nothing", False)
    assert words in result.text
    assert "nothing was changed" in result.text.lower()
    assert drive.sent_tools == []
    assert len(drive.requests) == 2


def test_a_call_that_is_no_json_stays_raw_in_the_history_and_is_marked(drive: Drive) -> None:
    """K5."""
    drive.running().end(call("shell", "{"))
    assert drive.requests[-1].items[1] == AssistantMessage(
        text="", calls=(ToolCall(call_id=CallId("c1"), name="shell", arguments_raw="{", parsed=False),)
    )


def test_four_invalid_calls_in_a_row_end_the_run_and_the_fourth_is_still_fed_back(drive: Drive) -> None:
    """I4."""
    drive.running()
    for number in range(4):
        drive.end(call("shell", f'{{"command":{number}}}'))
    shown = drive.told()
    assert [event.status for event in shown if isinstance(event, events.ToolResult)] == ["refused_schema"] * 4
    assert shown[-2] == events.Budget(which="invalid_calls", used=4, allowed=4, level="tripped")
    assert (drive.result.reason, drive.result.exit_code) == ("limit", 53)
    assert drive.result.limit == events.LimitTripped(which="invalid_calls", allowed=4, used=4)
    assert len(drive.requests) == 4


def test_tools_that_do_not_exist_end_the_run_at_the_fourth(drive: Drive) -> None:
    """R44: `str_replace_editor` where only `edit_file` exists; each time the names of those that do are said."""
    drive.running()
    for number in range(4):
        drive.end(call("str_replace_editor", f'{{"path":"f{number}"}}'))
    assert [(result.status, "edit_file" in result.text) for result in results(drive)] == [("refused_unknown", True)] * 4
    assert drive.result.limit == events.LimitTripped(which="invalid_calls", allowed=4, used=4)


def test_a_valid_call_ends_the_row_and_not_the_counter(drive: Drive) -> None:
    drive.running()
    for number in range(3):
        drive.end(call("shell", f'{{"command":{number}}}'))
    drive.end(shell("ls")).runs("c4")
    drive.end(call("shell", "[]")).answer()
    assert drive.result.reason == "completed"
    assert drive.result.counters.invalid_call == 4


def test_the_same_invalid_call_for_ever_ends_at_its_fourth(drive: Drive) -> None:
    """H9 and I4: refused as a repetition, counted among the invalid as well."""
    drive.running()
    for _ in range(4):
        drive.end(call("shell", "{"))
    assert [result.status for result in results(drive)] == [
        "refused_arguments",
        "refused_arguments",
        "refused_loop",
        "refused_loop",
    ]
    assert drive.result.limit == events.LimitTripped(which="invalid_calls", allowed=4, used=4)


def test_a_model_that_repeats_one_call_for_ever_ends_at_its_fifth(drive: Drive) -> None:
    """H1, H8, R58: run twice, told twice, ended."""
    drive.running()
    for number in range(5):
        drive.end(shell("ls"))
        if number < 2:
            drive.runs(f"c{number + 1}")
    shown = drive.told()
    assert [event for event in shown if isinstance(event, events.Loop)] == [
        events.Loop(detector="same_call", count=3, action="feedback"),
        events.Loop(detector="same_call", count=4, action="deduct"),
        events.Loop(detector="same_call", count=5, action="stop"),
    ]
    texts = [event.text for event in shown if isinstance(event, events.ToolResult)]
    assert texts[2:] == [
        feedback.repeated("shell", 3),
        feedback.repeated_deducted("shell", 4, 5),
        feedback.repeated_stopped("shell", 5),
    ]
    assert (drive.result.reason, drive.result.detector, drive.result.exit_code) == ("loop", "same_call", 54)
    assert (drive.result.counters.same_call, drive.result.tool_calls, drive.result.tool_runs) == (3, 5, 2)
    assert drive.state.ledger.deducted_turns == 5


def test_the_next_prompt_begins_a_new_window_and_a_new_ladder(drive: Drive) -> None:
    """H8, R57."""
    drive.running()
    for number in range(5):
        drive.end(shell("ls"))
        if number < 2:
            drive.runs(f"c{number + 1}")
    drive.prompt("go on").end(shell("ls")).runs("c6").end(shell("ls")).runs("c7").end(shell("ls")).answer()
    assert drive.result.reason == "completed"
    assert drive.result.counters.same_call == 1


def test_the_deducted_turns_count_against_the_limit() -> None:
    """H8, I1."""
    drive = Drive(settings(run_limits=Limits(turns=8))).running()
    for number in range(4):
        drive.end(shell("ls"))
        if number < 2:
            drive.runs(f"c{number + 1}")
    assert drive.result.limit == events.LimitTripped(which="turns", allowed=8, used=9)


def test_repetitions_within_one_response_count(drive: Drive) -> None:
    """H1: in the order of the response; read-only ones are checked before any of them runs."""
    drive.running().end(read("a"), read("a"), read("a"))
    assert [tool.call_id for tool in drive.sent_tools] == ["c1", "c2"]
    assert [(result.call_id, result.status) for result in results(drive)] == [("c3", "refused_loop")]


def test_polling_is_let_through_ten_times(drive: Drive) -> None:
    """H2: the results change."""
    drive.running()
    for number in range(1, 11):
        drive.end(shell("tail log")).runs(f"c{number}", outcome(f"line {number}"))
    drive.end(shell("tail log"))
    assert [event for event in drive.told() if isinstance(event, events.Loop)] == [
        events.Loop(detector="same_call", count=11, action="feedback")
    ]
    assert len(drive.sent_tools) == 10


def test_slow_repetitions_are_waiting_and_after_ten_the_model_is_told_once(drive: Drive) -> None:
    """H2, R54."""
    drive.running()
    for number in range(1, 14):
        drive.end(shell("check")).runs(f"c{number}", outcome("same"))
        drive.wait_s(61, beats=("llm",))
    assert [event for event in drive.told() if isinstance(event, events.Loop)] == []
    assert [item for item in drive.state.history if item == feedback.waits_by_calling("shell")] == [
        feedback.waits_by_calling("shell")
    ]


def test_a_call_that_came_twice_under_one_id_runs_once(drive: Drive) -> None:
    """R43."""
    drive.running().end(call("glob", '{"pattern":"*"}', "x"), call("glob", '{"pattern":"*"}', "x"))
    assert [tool.call_id for tool in drive.sent_tools] == ["c1"]
    drive.runs("c1").answer()
    assert drive.result.tool_calls == 1


def test_two_different_calls_under_one_id_both_run(drive: Drive) -> None:
    """R43: our ids keep them apart."""
    drive.running().end(call("glob", '{"pattern":"*"}', "x"), call("glob", '{"pattern":"a"}', "x"))
    assert [tool.call_id for tool in drive.sent_tools] == ["c1", "c2"]


def test_writing_calls_run_in_order_and_alone(drive: Drive) -> None:
    """J2."""
    drive.running().end(shell("a"), read("x"), read("y"), shell("b"))
    sent = [len(drive.sent_tools)]
    for call_id in ("c1", "c3", "c2"):
        drive.runs(call_id)
        sent.append(len(drive.sent_tools))
    assert sent == [1, 3, 3, 4]
    assert [tool.call_id for tool in drive.sent_tools] == ["c1", "c2", "c3", "c4"]


def test_a_refused_call_does_not_hold_up_its_neighbours(drive: Drive) -> None:
    drive.running().end(read("a"), call("read_file", "{"), read("b"))
    assert [tool.call_id for tool in drive.sent_tools] == ["c1", "c3"]


def test_a_failed_tool_is_not_ok_and_the_run_goes_on(drive: Drive) -> None:
    """B6."""
    drive.running().end(shell("false")).runs("c1", outcome("no", exit_code=1))
    (result,) = results(drive)
    assert (result.ok, result.status, result.exit_code) == (False, "done", 1)
    assert len(drive.requests) == 2


def test_a_call_may_ask_for_a_longer_limit_up_to_the_maximum() -> None:
    """G5."""
    drive = Drive(settings(tools=ToolLimits(timeout_s=30.0, max_timeout_s=100.0))).running()
    drive.end(
        call("shell", '{"command":"a"}'),
    ).runs("c1")
    drive.end(call("shell", '{"command":"b","timeout_s":60}')).runs("c2")
    drive.end(call("shell", '{"command":"c","timeout_s":1e9}'))
    assert [tool.timeout_s for tool in drive.sent_tools] == [30.0, 60.0, 100.0]


@pytest.mark.parametrize("field", ["run", "turn", "generation"])
def test_a_report_about_a_call_of_other_work_is_dropped(
    drive: Drive, field: Literal["run", "turn", "generation"]
) -> None:
    """F3, R12."""
    drive.running().end(shell("ls"))
    before = drive.state
    work = drive.work()
    work[field] += 1
    drive.said("tool", ToolStarted(**work, call_id=CallId("c1"), pid=1))
    drive.said("tool", ToolEnded(**work, call_id=CallId("c1"), outcome=outcome()))
    drive.said("tool", ToolEnded(**drive.work(), call_id=CallId("c9"), outcome=outcome()))
    assert drive.state == before


def test_the_tool_worker_may_become_ready_later(drive: Drive) -> None:
    drive.open().ready("llm").prompt().end(shell("ls"))
    assert (drive.state.phase, drive.sent_tools) == ("deciding", [])
    drive.ready("tool")
    assert [tool.call_id for tool in drive.sent_tools] == ["c1"]
    assert session.current_tool(drive.state) == 'shell {"command":"ls"}'


def test_a_question_is_asked_and_its_answer_lets_the_call_run() -> None:
    """J3."""
    drive = Drive(ASK).running().end(shell("make"))
    assert drive.told()[-1] == events.Approval(call_id=CallId("c1"), question="Allow shell: make")
    assert session.ps_state(drive.state) == "waiting"
    drive.answers("c9", "yes")
    assert drive.sent_tools == []
    drive.answers("c1", "yes")
    assert drive.told() == [
        events.Approval(call_id=CallId("c1"), question="Allow shell: make", answer="yes", by="user")
    ]
    assert [tool.call_id for tool in drive.sent_tools] == ["c1"]
    drive.runs("c1").end(shell("make")).told()
    assert drive.state.phase == "waiting_approval"


def test_a_denied_call_is_fed_back_with_the_words_of_the_user() -> None:
    drive = Drive(ASK).running().end(shell("rm x")).answers("c1", "no", "not that file")
    (result,) = results(drive)
    assert (result.status, result.text) == ("denied", feedback.denied_by_user("not that file"))


@pytest.mark.parametrize("answer", ["always_tool", "always_all"])
def test_an_answer_for_the_session_is_remembered_over_runs(answer: str) -> None:
    drive = Drive(ASK).running().end(shell("a"))
    drive.answers("c1", "always_tool" if answer == "always_tool" else "always_all").runs("c1").answer()
    drive.prompt().end(shell("b"))
    assert [tool.call_id for tool in drive.sent_tools] == ["c1", "c2"]


@pytest.mark.parametrize("mode", ["ask", "auto-edit", "plan"])
def test_with_nobody_there_what_would_be_asked_is_denied_and_fed_back(mode: ApprovalMode) -> None:
    """J3."""
    drive = Drive(settings(approval_mode=mode)).running().end(shell("make"))
    assert results(drive)[0].text == feedback.denied("plan" if mode == "plan" else "nobody")
    assert len(drive.requests) == 2


def test_a_path_outside_the_workspace_is_asked_about_even_to_read() -> None:
    """J1."""
    drive = Drive(ASK).running().end(read("../secret"))
    assert drive.told()[-1] == events.Approval(
        call_id=CallId("c1"), question="Allow read_file outside the workspace: ../secret"
    )
    drive.answers("c1", "yes")
    assert [(tool.call_id, tool.outside_allowed) for tool in drive.sent_tools] == [("c1", True)]


def test_a_call_that_leads_outside_by_a_link_is_asked_about_and_sent_again() -> None:
    """J1: symlinks resolved. One tool_start and one tool_result, for the one time that it ran."""
    drive = Drive(ASK).running().end(read("link/x"))
    drive.told()
    drive.leads_outside("c1", "/etc/x")
    question = "Allow read_file outside the workspace: link/x, which leads to /etc/x"
    assert drive.told() == [events.Approval(call_id=CallId("c1"), question=question)]
    assert session.ps_state(drive.state) == "waiting"
    drive.answers("c1", "yes").runs("c1")
    assert [(tool.call_id, tool.outside_allowed) for tool in drive.sent_tools] == [("c1", False), ("c1", True)]
    told = drive.told()
    assert [type(event) for event in told] == [events.Approval, events.ToolStart, events.ToolResult]
    assert drive.state.run.tool_runs == 1


@pytest.mark.parametrize("mode", ["ask", "auto-edit", "plan"])
def test_a_call_that_leads_outside_by_a_link_is_denied_where_nobody_can_be_asked(mode: ApprovalMode) -> None:
    """J1, J3."""
    drive = Drive(settings(approval_mode=mode)).running().end(read("link/x")).leads_outside("c1")
    (result,) = results(drive)
    assert (result.status, result.text) == ("denied", feedback.denied("nobody_outside"))
    assert len(drive.requests) == 2


def test_neighbours_of_a_call_that_leads_outside_end_before_it_is_asked_about() -> None:
    drive = Drive(ASK).running().end(read("a"), read("link/x"), read("link/y"))
    drive.leads_outside("c2").leads_outside("c3")
    assert session.ps_state(drive.state) == "running"
    drive.runs("c1")
    assert [event.call_id for event in drive.told() if isinstance(event, events.Approval)] == ["c2"]
    drive.answers("c2", "always_all")
    assert [(tool.call_id, tool.outside_allowed) for tool in drive.sent_tools[3:]] == [("c2", True), ("c3", True)]
    drive.runs("c3").runs("c2")
    assert len(drive.requests) == 2


def test_a_call_that_leads_outside_is_not_started_when_the_stop_comes_first() -> None:
    """F8."""
    drive = Drive(ASK).running().end(read("link/x"))
    drive.cancel().leads_outside("c1").stopped()
    assert [result.status for result in results(drive)] == ["cancelled_not_started"]


def test_a_call_that_was_allowed_outside_cannot_be_handed_back(drive: Drive) -> None:
    drive.running().end(read("link/x")).leads_outside("c1").runs("c1")
    assert [tool.outside_allowed for tool in drive.sent_tools] == [True]
    assert [result.status for result in results(drive)] == ["done"]


def test_a_looping_call_is_not_asked_about_a_third_time() -> None:
    """H9."""
    drive = Drive(ASK).running()
    for number in (1, 2):
        drive.end(shell("make")).answers(f"c{number}", "yes").runs(f"c{number}")
    drive.told()
    drive.end(shell("make"))
    assert [event for event in drive.told() if isinstance(event, events.Approval)] == []


def test_neighbours_run_only_when_the_question_about_one_of_them_is_answered() -> None:
    """J2: all checks first."""
    drive = Drive(ASK).running().end(read("a"), read("../b"), read("c"))
    assert drive.sent_tools == []
    drive.answers("c2", "no")
    assert [tool.call_id for tool in drive.sent_tools] == ["c1", "c3"]
