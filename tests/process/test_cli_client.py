"""The terminal's side of a session, against a supervisor that the test plays over the real lane."""

import json
import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from support.client_stage import OK, SESSION, WITHIN_S, Acting, Stage, staged

from haltline.cli.client import Client, Left
from haltline.cli.interrupts import Interrupted
from haltline.cli.json_views import ResultView, StreamView
from haltline.cli.loop import SupervisorLost
from haltline.cli.outlet import FULL_BYTES
from haltline.cli.pieces import View
from haltline.cli.run import one_run
from haltline.cli.session_settings import Decided
from haltline.cli.text_view import TextView
from haltline.protocol import events
from haltline.protocol.client_messages import (
    Answer,
    CancelRequest,
    ClientHello,
    CloseSession,
    Listing,
    ListRequest,
    OpenSession,
    Prompt,
    Refused,
    SessionClosed,
    SessionOpened,
)
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.ids import CallId
from haltline.protocol.settings import SessionSettings

SETTINGS = SessionSettings(model="m", base_url="http://127.0.0.1", cwd="/", version="0", interactive=True)
DECIDED = Decided(settings=SETTINGS, embedded_gateway=True)
CANCELLED = msgspec.structs.replace(OK, reason="cancelled", exit_code=130)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path) as made:
        yield made


def plain() -> TextView:
    return TextView(out_terminal=False, err_terminal=False)


def delta(text: str) -> events.Message:
    return events.Message(role="assistant", text=text, delta=True)


def running(stage: Stage, client: Client) -> Acting:
    """The client in the middle of its run."""
    stage.bind()
    return running_already_bound(stage, client)


def running_already_bound(stage: Stage, client: Client) -> Acting:
    acting = Acting(lambda: one_run(client, DECIDED, "the prompt", journal="/j"))
    stage.welcome()
    assert stage.hear(OpenSession).prompt == "the prompt"
    stage.say(SessionOpened(session_id=SESSION))
    stage.until_open(client)
    return acting


def closed(stage: Stage) -> None:
    """The orderly end."""
    assert stage.hear(CloseSession) == CloseSession(session_id=SESSION)
    stage.say(SessionClosed(session_id=SESSION))
    stage.everything_ends()


def reader_leaves(stage: Stage) -> None:
    """Nobody has the other end of stdout any more."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, stage.out_r)
    os.close(null)


def result_line(stage: Stage) -> dict[str, object]:
    last: dict[str, object] = json.loads(stage.out.splitlines()[-1])
    assert last["type"] == "result"
    return last


def test_a_run_from_its_hello_to_its_exit_code(stage: Stage) -> None:
    client = stage.client(plain())
    acting = Acting(lambda: one_run(client, DECIDED, "the prompt", journal="/j"))
    stage.bind()
    assert stage.welcome() == ClientHello(token=stage.owned.token)
    assert stage.hear(OpenSession) == OpenSession(
        settings=SETTINGS, journal="/j", prompt="the prompt", embedded_gateway=True
    )
    stage.say(SessionOpened(session_id=SESSION))
    stage.show(delta("one "), delta("two"), events.Message(role="assistant", text="one two"), OK)
    closed(stage)
    assert (acting.result(), stage.out, stage.err) == (0, b"one two\n", b"")


def test_a_worker_that_is_ready_too_late_is_not_heard_after_the_result(stage: Stage) -> None:
    """interface.md: `result` is the last line. A worker that was being replaced may be ready behind it."""
    acting = running(stage, stage.client(StreamView()))
    stage.show(OK, events.Worker(role="tool", pid=1, state="ready"))
    closed(stage)
    assert acting.result() == 0
    assert result_line(stage)["reason"] == "completed"


def test_what_is_said_of_workers_between_two_runs_waits_for_the_second(stage: Stage) -> None:
    """interface.md: `result` is the last line, and `seq` rises."""
    client = stage.client(StreamView())
    opened(stage, client).result()
    stage.show(events.Worker(role="tool", pid=None, state="starting"))
    reading = Acting(lambda: client.read_line(prompt="> "))
    stage.until_out('"starting"')
    stage.type("one\n")
    reading.result()
    run = Acting(lambda: client.run("one"))
    stage.hear(Prompt)
    stage.show(OK, events.Worker(role="llm", pid=1, state="ready"))
    run.result()
    reading = Acting(lambda: client.read_line(prompt="> "))
    stage.show(events.Worker(role="tool", pid=2, state="ready"))
    stage.type("two\n")
    reading.result()
    assert result_line(stage)["seq"] == 2
    run = Acting(lambda: client.run("two"))
    stage.hear(Prompt)
    stage.show(OK)
    run.result()
    closing = Acting(client.close)
    closed(stage)
    closing.result()
    assert [json.loads(line)["seq"] for line in stage.out.splitlines()] == [1, 2, 3, 4, 5]


def test_the_supervisors_own_words_about_why_it_cannot_start(stage: Stage) -> None:
    acting = Acting(lambda: stage.client(plain()).start())
    stage.bind(b"failed: the journal is not a database\n")
    with pytest.raises(ConfigurationProblem, match=r"^the journal is not a database$"):
        acting.result()


def test_a_session_that_is_refused_says_why(stage: Stage) -> None:
    acting = Acting(lambda: one_run(stage.client(plain()), DECIDED, "p", journal="/j"))
    stage.bind()
    stage.welcome()
    stage.hear(OpenSession)
    stage.say(Refused(words="the journal is read-only"))
    with pytest.raises(ConfigurationProblem, match=r"^the journal is read-only$"):
        acting.result()


def test_three_presses_ask_ask_again_and_leave(stage: Stage) -> None:
    """F10: `stopping` is said at once, and the last line is a result."""
    acting = running(stage, stage.client(StreamView()))
    stage.show(delta("one"))
    stage.until_out("one")
    stage.press(signal.SIGINT)
    stage.until_err("stopping\n")
    assert stage.hear(CancelRequest) == CancelRequest(session_id=SESSION, by="signal", exit_code=130)
    stage.press(signal.SIGINT)
    stage.until_err("stopping at once, without grace\n")
    assert stage.hear(CancelRequest) == CancelRequest(session_id=SESSION, by="signal", exit_code=130)
    stage.press(signal.SIGINT)
    with pytest.raises(Left) as left:
        acting.result()
    assert left.value.exit_code == 130
    last = result_line(stage)
    assert (last["reason"], last["exit_code"], last["text"], last["seq"]) == ("cancelled", 130, "one", 2)


def test_a_terminate_is_a_cancel_with_its_own_exit_code(stage: Stage) -> None:
    acting = running(stage, stage.client(ResultView()))
    stage.press(signal.SIGTERM)
    assert stage.hear(CancelRequest) == CancelRequest(session_id=SESSION, by="signal", exit_code=143)
    stage.show(msgspec.structs.replace(CANCELLED, exit_code=143))
    closed(stage)
    assert acting.result() == 143
    assert stage.out.count(b"\n") == 1


@pytest.mark.parametrize("when", ["before ready", "before welcome", "before the session"])
def test_a_press_while_everything_starts_ends_the_wait(stage: Stage, when: str) -> None:
    """F7: while workers start."""
    acting = Acting(lambda: one_run(stage.client(StreamView()), DECIDED, "p", journal="/j"))
    if when != "before ready":
        stage.bind()
        stage.hear(ClientHello) if when == "before welcome" else stage.welcome()
    if when == "before the session":
        stage.hear(OpenSession)
    stage.press(signal.SIGINT)
    stage.guard.kill()
    assert acting.result() == 130
    assert result_line(stage)["reason"] == "cancelled"


def test_a_supervisor_that_dies_leaves_the_result_to_the_client(stage: Stage) -> None:
    """interface.md: stdout belongs to the client. What had been sent before the death is shown."""
    acting = running(stage, stage.client(StreamView()))
    stage.show(delta("one"), events.ToolUse(call_id=CallId("c1"), name="shell", arguments_raw="{}"))
    stage.everything_ends()
    assert acting.result() == 79
    last = result_line(stage)
    assert {name: last[name] for name in ("reason", "exit_code", "text", "seq", "session_id", "tool_calls")} == {
        "reason": "worker_failed",
        "exit_code": 79,
        "text": "one",
        "seq": 3,
        "session_id": SESSION,
        "tool_calls": 1,
    }


def test_a_result_that_was_sent_before_the_supervisor_died_counts(stage: Stage) -> None:
    acting = running(stage, stage.client(StreamView()))
    stage.show(delta("one"), OK)
    stage.everything_ends()
    assert acting.result() == 0
    assert stage.out.count(b'"type":"result"') == 1


@pytest.mark.parametrize("view", [plain, StreamView, ResultView])
def test_a_bug_in_a_session_is_told_with_the_path_of_its_log(stage: Stage, view: Callable[[], View]) -> None:
    """interface.md: `1 a bug of ours (with a log path)`, whatever stdout carries."""
    acting = running(stage, stage.client(view()))
    log = stage.supervisor_writes("Traceback\n")
    stage.show(msgspec.structs.replace(OK, reason="failed", exit_code=1, message="the log has the details"))
    closed(stage)
    assert acting.result() == 1
    assert stage.err == f"haltline: the log has the details: {log}\n".encode()
    if stage.out:
        assert result_line(stage)["message"] == f"the log has the details: {log}"


def test_a_supervisor_that_never_comes_up_is_no_hanging_client(stage: Stage) -> None:
    acting = Acting(lambda: stage.client(plain()).start())
    stage.guard.kill()
    with pytest.raises(SupervisorLost):
        acting.result()


def test_a_client_that_was_stopped_while_everything_started_finds_what_came(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl+Z, a cup of tea, `fg`: every deadline has passed."""
    monkeypatch.setattr("haltline.cli.starting.STARTED_WITHIN_S", -1.0)
    monkeypatch.setattr("haltline.cli.client.OPENED_WITHIN_S", -1.0)
    stage.bind()
    acting = running_already_bound(stage, stage.client(plain()))
    stage.show(OK)
    closed(stage)
    assert acting.result() == 0


def test_a_mute_supervisor_does_not_hold_a_stop_for_ever(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haltline.cli.client.STOPPED_WITHIN_S", 0.05)
    acting = running(stage, stage.client(StreamView()))
    stage.press(signal.SIGTERM)
    stage.hear(CancelRequest)
    stage.guard.kill()
    assert acting.result() == 79
    assert "said nothing" in str(result_line(stage)["message"])


def test_a_mute_supervisor_does_not_hold_a_command_whose_reader_has_left(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`haltline run ... | head -1`, and nobody there to press Ctrl+C."""
    monkeypatch.setattr("haltline.cli.client.STOPPED_WITHIN_S", 0.05)
    acting = running(stage, stage.client(plain()))
    reader_leaves(stage)
    stage.show(delta("one"))
    stage.hear(CancelRequest)
    stage.guard.kill()
    assert acting.result() == 79
    assert b"the supervisor said nothing for 0.05 s after the stop was asked for" in stage.err


@pytest.mark.parametrize("mute", ["starts", "opens"])
def test_a_mute_supervisor_does_not_hold_a_start(stage: Stage, monkeypatch: pytest.MonkeyPatch, mute: str) -> None:
    monkeypatch.setattr("haltline.cli.starting.STARTED_WITHIN_S", 0.05 if mute == "starts" else 10.0)
    monkeypatch.setattr("haltline.cli.client.OPENED_WITHIN_S", 0.05)
    monkeypatch.setattr("haltline.cli.loop.GUARD_WITHIN_S", 0.05)
    acting = Acting(lambda: one_run(stage.client(StreamView()), DECIDED, "p", journal="/j"))
    stage.bind()
    if mute == "opens":
        stage.welcome()
        stage.hear(OpenSession)
    assert acting.result() == 79
    words = "did not start" if mute == "starts" else "did not open the session"
    assert result_line(stage)["message"] == f"the supervisor {words} within 0.05 s: is the machine overloaded?"
    assert stage.err == b"haltline: the supervisor did not end by itself; it was ended, and all that it had started\n"


def test_a_supervisor_that_goes_mute_in_a_run_is_asked_and_then_given_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haltline.cli.silence.ASK_EVERY_S", 0.05)
    acting = running(stage, stage.client(StreamView()))
    assert stage.hear(ListRequest) == ListRequest()
    stage.say(Listing(rows=()))
    for _ in range(3):  # the answer counted: all three questions are asked again
        stage.hear(ListRequest)
    stage.guard.kill()
    assert acting.result() == 79
    assert result_line(stage)["message"] == (
        "the supervisor did not answer for 0.2 s; the guard stops what it left behind"
    )


def test_a_reader_of_stdout_that_leaves_cancels_the_run_without_a_word(stage: Stage) -> None:
    """`haltline run ... | head -1`."""
    acting = running(stage, stage.client(plain()))
    reader_leaves(stage)
    stage.show(delta("one"))
    assert stage.hear(CancelRequest) == CancelRequest(session_id=SESSION, by="lost_client")
    stage.show(delta("two"), CANCELLED)
    closed(stage)
    assert (acting.result(), stage.err) == (130, b"stopped\n")


def ask(call_id: str) -> events.Approval:
    return events.Approval(call_id=CallId(call_id), question=f"run {call_id}?")


def test_a_question_is_answered_with_a_line(stage: Stage) -> None:
    """J3."""
    acting = running(stage, stage.client(plain()))
    stage.show(ask("c1"))
    stage.until_err("run c1?\n[y] once")
    stage.type("what?\n")
    stage.until_err("'what?' is no answer; type y, Y, n or a, then Enter > ")
    stage.type("n use the other file\n")
    answer = Answer(session_id=SESSION, call_id=CallId("c1"), answer="no", words="use the other file")
    assert stage.hear(Answer) == answer
    stage.show(OK)
    closed(stage)
    assert acting.result() == 0
    assert b"the call: denied (use the other file)\n" in stage.err


def test_one_paste_does_not_answer_a_question_that_nobody_has_seen(stage: Stage) -> None:
    acting = running(stage, stage.client(plain()))
    stage.show(ask("c1"), ask("c2"))
    stage.until_err("Enter > ")
    stage.type("y\na\n")
    assert stage.hear(Answer) == Answer(session_id=SESSION, call_id=CallId("c1"), answer="yes")
    stage.until_err("run c2?")
    stage.type("n\n")
    assert stage.hear(Answer) == Answer(session_id=SESSION, call_id=CallId("c2"), answer="no")
    stage.show(OK)
    closed(stage)
    assert acting.result() == 0


def test_a_question_starts_a_line_of_its_own_behind_text_in_a_pipe(stage: Stage) -> None:
    """The pipe's reader may write to the same screen."""
    acting = running(stage, stage.client(plain()))
    stage.show(delta("unfinished"), ask("c1"))
    stage.until_err("Enter > ")
    assert stage.err.startswith(b"\nrun c1?")
    stage.type("y\n")
    stage.hear(Answer)
    stage.show(OK)
    closed(stage)
    assert acting.result() == 0


def test_a_question_does_not_keep_a_cancel_from_working(stage: Stage) -> None:
    """F7."""
    acting = running(stage, stage.client(plain()))
    stage.show(ask("c1"))
    stage.until_err("Enter > ")
    stage.press(signal.SIGINT)
    stage.hear(CancelRequest)
    stage.show(events.Approval(call_id=CallId("c1"), question="run c1?", answer="cancelled", by="signal"), CANCELLED)
    closed(stage)
    assert acting.result() == 130


def test_what_is_typed_without_a_question_answers_none(stage: Stage) -> None:
    acting = running(stage, stage.client(plain()))
    stage.show(OK)
    stage.type("y\n")
    closed(stage)
    assert acting.result() == 0
    assert stage.hears_nothing()


def opened(stage: Stage, client: Client) -> Acting:
    """A client whose session stands, with no run going on."""

    def body() -> None:
        client.start()
        client.open(DECIDED, journal="/j")

    acting = Acting(body)
    stage.bind()
    stage.welcome()
    stage.hear(OpenSession)
    stage.say(SessionOpened(session_id=SESSION))
    return acting


def test_a_signal_at_the_prompt_ends_the_wait_and_the_session_goes_on(stage: Stage) -> None:
    """F9."""
    client = stage.client(plain())
    opened(stage, client).result()
    reading = Acting(lambda: client.read_line(prompt="> "))
    stage.until_err("> ")
    stage.press(signal.SIGINT)
    with pytest.raises(Interrupted):
        reading.result()
    reading = Acting(lambda: client.read_line(prompt="> "))
    stage.type("one\ntwo\n")
    assert reading.result() == "one"
    run = Acting(lambda: client.run("one"))
    stage.hear(Prompt)
    stage.press(signal.SIGINT)
    stage.hear(CancelRequest)
    stage.show(CANCELLED)
    assert run.result() == CANCELLED
    assert client.read_line(prompt="> ") == "two"


def session_closes(stage: Stage) -> None:
    stage.say(SessionClosed(session_id=SESSION))


@pytest.mark.parametrize("ends", [Stage.supervisor_dies, session_closes])
def test_the_prompt_does_not_wait_for_a_session_that_is_over(stage: Stage, ends: Callable[[Stage], None]) -> None:
    client = stage.client(plain())
    opened(stage, client).result()
    reading = Acting(lambda: client.read_line(prompt=""))
    ends(stage)
    assert reading.result() is None
    assert client.ended


BIG = delta("x" * 300_000)
"""More than a pipe holds, so that the client has something left to write when the session has ended."""


def flushing(stage: Stage) -> Acting:
    """The run has ended, and its output stands in a pipe that nobody reads."""
    acting = running(stage, stage.client(plain()))
    stage.show(BIG, OK)
    stage.hear(CloseSession)
    return acting


def test_one_press_while_the_last_output_is_written_loses_none_of_it(stage: Stage) -> None:
    """It ended with exit code 0 in the middle of a line."""
    acting = flushing(stage)
    stage.press(signal.SIGINT)
    stage.until_err("still writing; once more leaves\n")
    stage.until_out("x\n")
    session_closes(stage)
    stage.everything_ends()
    assert (acting.result(), stage.out) == (0, b"x" * 300_000 + b"\n")


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_press_while_the_last_output_is_written_leaves_and_says_so(
    stage: Stage, number: int, exit_code: int
) -> None:
    acting = flushing(stage)
    stage.press(number)
    stage.until_err("still writing")
    stage.press(number)
    with pytest.raises(Left) as left:
        acting.result()
    assert left.value.exit_code == exit_code
    assert stage.err == b"still writing; once more leaves\nhaltline: left before all output was written\n"


def test_after_a_press_a_reader_that_takes_nothing_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haltline.cli.client.STUCK_S", 0.05)
    acting = flushing(stage)
    stage.press(signal.SIGTERM)
    with pytest.raises(Left) as left:
        acting.result()
    assert left.value.exit_code == 143
    assert stage.err.endswith(b"haltline: left before all output was written\n")


def test_a_stop_is_not_called_mute_while_nobody_reads_what_the_supervisor_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haltline.cli.client.STOPPED_WITHIN_S", 0.1)
    acting = running(stage, stage.client(plain()))
    stage.show(delta("x" * (FULL_BYTES + 200_000)))
    assert select.select((stage.out_r,), (), (), WITHIN_S)[0]
    stage.press(signal.SIGINT)
    stage.hear(CancelRequest)
    stage.show(CANCELLED)
    acting.join(0.3)  # longer than the supervisor may be silent
    stage.until_out("x\n")
    closed(stage)
    assert acting.result() == 130
