"""`ps`, `cancel` and `kill` from a second terminal: each reaches what it names, and says what it saw end.

(F1 to F5, F10, L4, M1.) Every receipt is compared whole, its times excepted; after each stop nothing is alive.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from conftest import Samples
from support import scripted_gateway, survivors
from support.asking_gateway import asking
from support.chain import members, seconds_until_gone
from support.checkout import ROOT
from support.command import COMMAND, Ended, Event, Running, run
from support.played_supervisor import SESSION, played
from support.second_terminal import (
    a_name_in,
    crowd_the_door,
    folder_of,
    is_delta,
    planted,
    ps,
    receipts,
    rung_of_a_killed_tool_worker,
    session_of,
    streaming,
    supervisor_folder,
)
from support.terminals import wait

from haltline.cli import last_resort
from haltline.cli.receipts import Stopped
from haltline.protocol import pidfile, times
from haltline.protocol.client_messages import CancelRequest, KillRequest, Receipt, Refused
from haltline.protocol.events import CancelReceipt
from haltline.protocol.ids import SessionId

GONE_S = 2.0
SLACK = 3
CROWD = (sys.executable, "-I", "-S", str(ROOT / "tests" / "support" / "crowd_start.py"))
ERRING = (*CROWD[:-1], str(ROOT / "tests" / "support" / "erring_start.py"))
TRIES = 20
REACHED_S = 0.15
"""Interface: from the start of a command to the supervisor, on an idle machine."""
A_TOOL_MAY_NOT = "a tool of a session may not control sessions; use a terminal of your own"


class Said(msgspec.Struct, frozen=True):
    role: str


class Request(msgspec.Struct, frozen=True):
    """What the gateway was sent, as far as it is looked at here."""

    messages: tuple[Said, ...]


def stopped(session_id: str) -> Stopped:
    """The receipt of a stream that was stopped politely."""
    return Stopped(session_id=session_id, stream_ms=0.0, total_ms=0.0, rung="ack")


def nothing_is_left() -> None:
    seconds_until_gone(time.monotonic(), GONE_S * SLACK)
    logs = list(Path(os.environ["HALTLINE_HOME"]).glob("state/logs/*"))
    assert not logs, [log.read_text() for log in logs]


def requested_by(ended: Ended) -> list[object]:
    return [event["by"] for event in ended.of("cancel") if event["phase"] == "requested"]


def test_cancel_stops_a_run_shows_its_receipt_and_is_no_error_the_second_time() -> None:
    """F1, M1. A prefix is enough; the run's own terminal says who stopped it."""
    running = streaming()
    session_id = session_of(running)
    cancelled = run("cancel", session_id[:5], "--json")
    assert (cancelled.exit_code, cancelled.stderr, receipts(cancelled)) == (0, "", [stopped(session_id)])
    ended = running.end()
    assert (ended.exit_code, ended.result["reason"], requested_by(ended)) == (130, "cancelled", ["client"])
    nothing_is_left()
    for again in ("cancel", "kill"):
        second = run(again, session_id, "--json")
        already = [Stopped(session_id=session_id, already_stopped=True)]
        assert (second.exit_code, second.stderr, receipts(second)) == (0, "", already)
        everything = run(again, "--all", "--json")
        assert (everything.exit_code, everything.stdout) == (0, b"[]\n")


def test_kill_ends_a_session_with_all_that_its_tool_started() -> None:
    """F4, G1; 137 at the owner."""
    running = planted()
    session_id = session_of(running)
    killed = run("kill", session_id)
    assert (killed.exit_code, killed.stderr) == (0, "")
    words = killed.stdout.decode().strip()
    assert words.startswith(f"{session_id}: killed in ")
    assert words.endswith(" 0 left, rung worker_kill")
    ended = running.end()
    assert (ended.exit_code, ended.result["reason"], ended.receipt.rung) == (137, "killed", "worker_kill")
    assert ended.receipt.killed > 0
    nothing_is_left()
    assert run("kill", session_id).stdout.decode() == f"{session_id}: already stopped\n"


def test_a_chat_goes_on_after_a_cancel_and_after_the_kill_of_a_worker_and_ends_with_its_own_kill(
    tmp_path: Path,
) -> None:
    """F8, F9, L2: each next prompt is answered, on a valid history; the gateway saw every stream closed."""
    with scripted_gateway.running(tmp_path, scenario="slow") as gateway:
        chat = Running(["chat", "-m", "slow", "--base-url", gateway.url, "--json"], typing=True)

        def ask(number: int) -> None:
            chat.type(f"prompt {number}")
            chat.until(lambda event: event["run"] == number and is_delta(event))

        def answered(number: int) -> Event:
            return chat.until(lambda event: event["run"] == number and event["type"] == "result")

        ask(1)
        session_id = session_of(chat)
        assert receipts(run("cancel", session_id, "--json")) == [stopped(session_id)]
        assert answered(1)["reason"] == "cancelled"
        idle = run("cancel", session_id, "--json")
        assert (idle.exit_code, receipts(idle)) == (0, [Stopped(session_id=session_id, already_stopped=True)])

        ask(2)
        (llm,) = [row for row in ps() if row.role == "llm"]
        killed = run("kill", session_id, "--worker", "llm", "--json")
        gone = Stopped(session_id=session_id, worker="llm", stream_ms=0.0, total_ms=0.0, rung="worker_kill")
        assert (killed.exit_code, receipts(killed)) == (0, [gone])
        assert not Path(f"/proc/{llm.pid}").exists()  # not only signalled: seen gone, and reaped
        assert answered(2)["kind"] == "stream_truncated"
        former = run("kill", llm.id, "--json")
        already = [Stopped(session_id=session_id, worker="llm", already_stopped=True)]
        assert (former.exit_code, receipts(former)) == (0, already)

        ask(3)
        body = [line for line in gateway.log() if line.event == "request"][-1].body
        roles = [message.role for message in msgspec.convert(body, Request).messages]
        assert roles == ["system", "user", "assistant", "user", "user", "assistant", "user"]
        assert receipts(run("cancel", "--all", "--json")) == [stopped(session_id)]
        answered(3)

        killed = run("kill", session_id, "--json")
        assert receipts(killed) == [Stopped(session_id=session_id, total_ms=0.0, rung="worker_kill")]
        chat.until(lambda event: event.get("reason") == "killed" and event["type"] == "result")
        chat.type_end()
        ended = chat.end()
        assert (ended.exit_code, ended.result["reason"]) == (137, "killed")
        for number in (1, 2, 3):
            gateway.wait_for("disconnect", session=session_id, count=number)
        assert gateway.state().open_streams == 0


def test_everything_of_every_supervisor_is_stopped_at_once() -> None:
    runs = (streaming(), streaming())
    ids = {session_of(running) for running in runs}
    cancelled = run("cancel", "--all", "--json")
    assert cancelled.exit_code == 0
    assert sorted(receipts(cancelled), key=str) == sorted(map(stopped, ids), key=str)
    assert [running.end().exit_code for running in runs] == [130, 130]
    nothing_is_left()


def test_what_is_not_there_is_told_with_what_is() -> None:
    running = streaming()
    session_id = session_of(running)
    worker = next(row.id for row in ps() if row.role == "tool")
    unknown = f"no session or worker 'nobody'; there is {session_id} (see haltline ps)"
    is_worker = f"{worker} is a worker: `haltline cancel {session_id}` stops its session, `haltline kill {worker}`"
    for command, said in (
        (("kill", "nobody"), unknown),
        (("cancel", "nobody"), unknown),
        (("cancel", worker), f"{is_worker} ends the worker"),
        (("kill", worker, "--worker", "llm"), f"{worker} is no llm worker"),
        (
            ("cancel", session_id, "--worker", "llm"),
            f"a worker cannot be cancelled: `haltline kill {session_id} --worker llm` ends it",
        ),
    ):
        ended = run(*command)
        assert (ended.exit_code, ended.stdout, ended.stderr) == (2, b"", f"haltline: {said}\n")
    running.process.send_signal(signal.SIGINT)
    running.end()


def test_several_are_stopped_by_one_command_and_a_wrong_name_among_them_hinders_nothing() -> None:
    runs = [streaming(), streaming()]
    ids = [session_of(running) for running in runs]
    cancelled = run("cancel", ids[0], "nobody", ids[1], "--json")
    assert (cancelled.exit_code, receipts(cancelled)) == (2, [stopped(one) for one in ids])
    assert cancelled.stderr.startswith("haltline cancel: no session or worker 'nobody'; ")
    assert [running.end().exit_code for running in runs] == [130, 130]


def test_a_worker_is_killed_by_the_name_that_ps_shows_and_its_session_goes_on() -> None:
    """L2, F8: the call's outcome is unknown, the model is told and concludes. Another session's worker stays."""
    running, other = planted(), streaming()
    name = f"{session_of(running)}/tool"
    assert name in run("ps").stdout.decode()
    killed = run("kill", name, "--json")
    other.process.send_signal(signal.SIGINT)
    assert other.end().counters.worker_restart == 0
    (row,) = receipts(killed)
    assert row == Stopped(
        session_id=session_of(running),
        worker="tool",
        tools_ms=0.0,
        total_ms=0.0,
        rung=rung_of_a_killed_tool_worker(running),
        killed=row.killed,
    )
    assert row.killed > 0
    ended = running.end()
    assert [event["status"] for event in ended.of("tool_result")] == ["outcome_unknown"]
    assert (ended.exit_code, ended.result["reason"], ended.counters.worker_restart) == (0, "completed", 1)
    nothing_is_left()


def test_a_stopped_supervisor_is_ended_by_kill_with_everything_under_it_while_others_are_served() -> None:
    """F1, G1, G3. Its door is crowded, so not even a knock gets through; its guard and its zygote are stopped too."""
    hung, living = planted(), streaming()
    hung_id, living_id = session_of(hung), session_of(living)
    pids = members(hung)
    for member in ("supervisor", "guard", "zygote"):
        os.kill(pids[member], signal.SIGSTOP)
    waiting = crowd_the_door(folder_of(hung))
    killed = run("kill", "--all", "--json")
    assert killed.exit_code == 0, killed.stderr
    rows = {row.session_id: row for row in receipts(killed)}
    assert rows[living_id] == Stopped(session_id=living_id, stream_ms=0.0, total_ms=0.0, rung="worker_kill")
    assert rows[hung_id] == Stopped(
        session_id=hung_id, supervisor_ended=True, total_ms=0.0, rung="worker_kill", killed=rows[hung_id].killed
    )
    assert rows[hung_id].killed > len(pids) - 2  # the tool's tree; client and guard went by themselves
    left = [one for one in survivors.descendants(os.getpid()) if one.pid in pids.values()]
    assert [one.pid for one in left] in ([], [pids["client"]])
    assert hung.end().result["reason"] == "killed"
    assert living.end().exit_code == 137
    for knocking in waiting:
        knocking.close()
    assert not list(Path(os.environ["HALTLINE_HOME"]).glob("run/*"))
    nothing_is_left()


@pytest.mark.ci
def test_a_session_whose_supervisor_is_stopped_is_named_by_ps_and_cancel_and_ended_by_kill() -> None:
    running = streaming()
    session_id, folder = session_of(running), folder_of(running)
    os.kill(members(running)["supervisor"], signal.SIGSTOP)
    said = (
        f"no answer from the supervisor in {folder} within 2 s (session {session_id}); "
        f"`haltline kill {session_id}` ends it\n"
    )
    unknown = [Stopped(session_id=session_id, no_answer=True)]
    commands: tuple[tuple[tuple[str, ...], int, list[Stopped]], ...] = (
        (("ps", "--json"), 0, []),
        (("cancel", session_id, "--json"), 75, unknown),
        (("cancel", "--all", "--json"), 75, unknown),
        (("kill", session_id, "--worker", "llm", "--json"), 75, unknown),
    )
    started = [Running(command) for command, _, _ in commands]
    for (command, code, rows), waiting in zip(commands, started, strict=True):
        ended = waiting.end()
        assert (ended.exit_code, receipts(ended), ended.stderr) == (code, rows, f"haltline {command[0]}: {said}")
    killed = run("kill", session_id[:6], "--json")
    (row,) = receipts(killed)
    assert (killed.exit_code, row.supervisor_ended, row.session_id, row.survivors) == (0, True, session_id, 0)
    owner = running.end()
    assert (owner.exit_code, owner.result["message"]) == (137, "killed from another terminal")
    nothing_is_left()


@pytest.mark.ci
def test_a_supervisor_that_hangs_before_it_opened_its_door_is_ended_too(home: Path) -> None:
    folder = home / "run" / "early"
    folder.mkdir(parents=True, mode=0o700)
    program = (
        "import os, signal, subprocess, sys; from haltline.protocol import linux, pidfile; "
        "linux.become_subreaper(); linux.set_process_name('superv'); pidfile.write(sys.argv[1]); "
        "subprocess.Popen(['sh', '-c', \"trap '' TERM; sleep 60; sleep 60\"], start_new_session=True); "
        "print('there', flush=True); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-I", "-c", program, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    killed = run("kill", "--all", "--json")
    assert (killed.exit_code, killed.stderr) == (0, "")
    assert receipts(killed) == [
        Stopped(session_id=None, supervisor_ended=True, total_ms=0.0, rung="worker_kill", killed=3)
    ]
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    assert not folder.exists()
    nothing_is_left()


@pytest.mark.ci
@pytest.mark.parametrize("verb", ["cancel", "kill"])
def test_a_worker_that_hangs_is_no_hindrance(verb: str) -> None:
    """F4: a cancel gives it its two seconds, a kill nothing."""
    running = planted()
    os.kill(members(running)["tool"], signal.SIGSTOP)
    ended = run(verb, session_of(running), "--json")
    (row,) = receipts(ended)
    rung = rung_of_a_killed_tool_worker(running) if verb == "cancel" else "worker_kill"
    assert (ended.exit_code, row.rung, row.survivors, row.supervisor_ended) == (0, rung, 0, False)
    assert row.killed > 0
    assert running.end().exit_code == {"cancel": 130, "kill": 137}[verb]
    nothing_is_left()


@pytest.mark.ci
def test_a_second_cancel_waits_for_the_same_stop_and_shortens_nothing() -> None:
    """F10 is about the key in the session's own terminal. Both get the receipt of one stop, whose tools had their
    whole grace: the tree ignores SIGTERM."""
    running = planted()
    session_id = session_of(running)
    first = Running(["cancel", session_id, "--json"])
    running.until(lambda event: event["type"] == "cancel")
    second = run("cancel", session_id, "--json")
    (joined,) = msgspec.json.decode(second.stdout, type=list[Stopped])
    (begun,) = msgspec.json.decode(first.end().stdout, type=list[Stopped])
    assert joined == begun
    assert begun.total_ms is not None
    assert begun.total_ms >= GONE_S * 1000
    assert running.end().exit_code == 130
    nothing_is_left()


def test_a_tool_can_neither_cancel_nor_kill(tmp_path: Path) -> None:
    """L4, also from a daemon whose parent has ended."""
    told = tmp_path / "told"
    knock = shlex.join([*COMMAND, "kill", "--all", "--json"])
    daemon = f"( setsid sh -c '{knock} > {told} 2>&1; echo code $? >> {told}' & )"
    with asking() as gateway:
        gateway.command = (
            f"{daemon}; {shlex.join([*COMMAND, 'cancel', '--all', '--json'])}; echo code $?; "
            f"until grep -q code {told}; do sleep 0.05; done"
        )
        running = Running(
            ["run", "-m", "any", "--base-url", gateway.base_url, "-y", "--json", "-C", str(tmp_path), "knock"]
        )
        text = str(running.until("tool_result")["text"])
        assert f"haltline cancel: {A_TOOL_MAY_NOT}" in text
        assert "code 77" in text
        assert sorted(told.read_text().splitlines()) == ["[]", "code 77", f"haltline kill: {A_TOOL_MAY_NOT}"]
        gateway.go_on()
        ended = running.end()
        assert (ended.exit_code, ended.text) == (0, "done")


@pytest.mark.ci
def test_a_tool_does_not_end_a_supervisor_that_does_not_answer() -> None:
    """L4: where no door turns it away, the command itself does."""
    other = streaming()
    supervisor = members(other)["supervisor"]
    os.kill(supervisor, signal.SIGSTOP)
    with asking() as gateway:
        gateway.command = f"{shlex.join([*COMMAND, 'kill', '--all', '--json'])}; echo code $?"
        running = Running(["run", "-m", "any", "--base-url", gateway.base_url, "-y", "--json", "knock"])
        text = str(running.until("tool_result")["text"])
        assert text.count(A_TOOL_MAY_NOT) == 2  # once by its own door, once by itself
        assert "code 77" in text
        gateway.go_on()
        running.end()
    os.kill(supervisor, signal.SIGCONT)
    assert receipts(run("cancel", "--all", "--json")) == [stopped(session_of(other))]
    other.end()


@pytest.mark.ci
def test_kill_all_ends_a_supervisor_that_has_no_session_yet() -> None:
    """Else what was being started when everything was killed would begin. A cancel means a run alone."""
    running = Running(["0", "http://127.0.0.1:9"], command=CROWD, typing=True)
    running.until("started")
    cancelled = run("cancel", "--all", "--json")
    assert (cancelled.exit_code, cancelled.stdout, cancelled.stderr) == (0, b"[]\n", "")
    ended = run("kill", "--all", "--json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert receipts(ended) == [Stopped(session_id=None, total_ms=0.0, rung="worker_kill")]
    running.type_end()
    running.end()
    nothing_is_left()


STOPPED_EARLY: dict[str, tuple[int, str]] = {"cancel": (130, "cancelled"), "kill": (137, "killed")}


@pytest.mark.parametrize("verb", ["cancel", "kill"])
def test_a_run_that_still_reads_its_prompt_is_stopped_before_it_begins(verb: str) -> None:
    """F7, M1: its supervisor has no session to name yet, and nothing that was about to begin begins."""
    running = Running(["run", "-m", "demo/slow", "--json", "-"], typing=True)
    supervisor_folder()
    ended = run(verb, "--all")
    said = "what was about to begin: stopped in " if verb == "cancel" else "what was about to begin: killed in "
    assert (ended.exit_code, ended.stderr, ended.stdout.decode()[: len(said)]) == (0, "", said)
    running.type("hi")
    running.type_end()
    owner = running.end()
    assert (owner.exit_code, owner.result["reason"]) == STOPPED_EARLY[verb]
    assert str(owner.result["message"]).startswith(
        {"cancel": "stopped", "kill": "killed"}[verb] + " from another terminal"
    )
    nothing_is_left()


@pytest.mark.parametrize("verb", ["cancel", "kill"])
def test_a_stop_at_any_moment_of_a_start_sticks(verb: str, samples: Samples) -> None:
    """F7: whatever it meets, the forks, the imports, a session that has just been opened. One receipt, one end."""
    count = samples(2, 10, 60)
    for index in range(count):
        running = Running(["run", "-m", "demo/slow", "--json", "hi"])
        supervisor_folder()
        wait(0.2 * index / count)
        ended = run(verb, "--all", "--json")
        (row,) = receipts(ended)
        assert (ended.exit_code, ended.stderr, row.already_stopped, row.survivors) == (0, "", False, 0)
        owner = running.end()
        assert (owner.exit_code, owner.result["reason"]) == STOPPED_EARLY[verb], owner
        nothing_is_left()


def test_a_run_whose_session_was_just_opened_is_not_idle() -> None:
    """F7: its client, stopped at once, may not have put its prompt yet; the stop would have met an idle session."""
    running = Running(["run", "-m", "demo/slow", "--json", "hi"])
    folder = supervisor_folder()
    session_id = a_name_in(folder / "sessions")
    running.process.send_signal(signal.SIGSTOP)
    (row,) = receipts(run("cancel", session_id, "--json"))
    assert (row.session_id, row.already_stopped, row.survivors) == (session_id, False, 0)
    running.process.send_signal(signal.SIGCONT)
    ended = running.end()
    assert (ended.exit_code, requested_by(ended)) == (130, ["client"])
    nothing_is_left()


@pytest.mark.parametrize(
    ("verb", "everything"),
    [("cancel", False), *(pytest.param(*more, marks=pytest.mark.ci) for more in (("kill", False), ("kill", True)))],
)
def test_of_a_supervisor_that_is_dead_nothing_is_said_before_its_guard_has_ended_the_rest(
    verb: str, *, everything: bool
) -> None:
    """F1, G2: tools outlive their supervisor for a moment; `ps` says so, the others wait."""
    running = planted()
    session_id, folder, supervisor = session_of(running), folder_of(running), members(running)["supervisor"]
    guard = members(running)["guard"]
    running.process.send_signal(signal.SIGSTOP)  # or it would wake its guard
    os.kill(guard, signal.SIGSTOP)  # the moment lasts until somebody waits for it
    os.kill(supervisor, signal.SIGKILL)
    listed = run("ps", "--json")
    said = f"haltline ps: the supervisor in {folder} has ended (session {session_id}); its guard stops what is left\n"
    assert (listed.exit_code, listed.stdout, listed.stderr) == (0, b"[]\n", said)
    ended = run(verb, "--all" if everything else session_id, "--json")
    left = [one for one in survivors.descendants(os.getpid()) if one.pid != running.process.pid]
    assert (ended.exit_code, left) == (0, [])
    assert receipts(ended) == [
        Stopped(session_id=session_id, already_stopped=True, supervisor_ended=True, total_ms=0.0)
    ]
    running.process.send_signal(signal.SIGCONT)
    assert running.end().exit_code == 79
    nothing_is_left()


@pytest.mark.parametrize("chatting", [False, pytest.param(True, marks=pytest.mark.ci)])
def test_a_sigterm_to_the_supervisor_is_one_to_its_command(*, chatting: bool) -> None:
    """F2: it is the process that `ps` names for a session."""
    running = Running(["chat", "-m", "demo/ok", "--json"], typing=True) if chatting else streaming()
    if chatting:
        a_name_in(supervisor_folder() / "sessions")
    os.kill(next(row.pid for row in ps() if row.role == "session"), signal.SIGTERM)
    running.until("result")
    if chatting:
        running.type_end()
    ended = running.end()
    assert (ended.exit_code, ended.result["reason"]) == (143, "cancelled")
    assert requested_by(ended) == ([] if chatting else ["signal"])
    nothing_is_left()


def test_an_unknown_name_leaves_an_empty_array() -> None:
    ended = run("kill", "zzzz", "--json")
    assert (ended.exit_code, ended.stdout) == (2, b"[]\n")
    assert ended.stderr == "haltline: no session or worker 'zzzz'; nothing runs\n"


@pytest.mark.ci
def test_what_was_started_with_other_variables_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M1: a login without XDG_RUNTIME_DIR stops what a desktop's terminal has started, and the other way round."""
    monkeypatch.delenv("HALTLINE_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    usual = Path(f"/tmp/haltline-{os.getuid()}")
    was_there = usual.exists()
    monkeypatch.setenv("TMPDIR", "/tmp")
    running = streaming()
    session_id = session_of(running)
    (folder,) = usual.glob(f"*/sessions/{session_id}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    assert receipts(run("cancel", session_id, "--json")) == [stopped(session_id)]
    assert running.end().exit_code == 130
    assert not folder.exists()
    if not was_there:
        with contextlib.suppress(OSError):  # somebody else uses it by now
            usual.rmdir()


@pytest.mark.parametrize("variable", ["TMPDIR", pytest.param("XDG_RUNTIME_DIR", marks=pytest.mark.ci)])
def test_what_was_started_with_a_folder_of_its_own_is_found_by_any_terminal(
    home: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M1: no variable of a second terminal says where the sockets of the first one's run are."""
    monkeypatch.delenv("HALTLINE_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    with monkeypatch.context() as first:
        first.setenv(variable, str(home))
        running = streaming()
    session_id = session_of(running)
    (folder,) = home.glob(f"haltline*/*/sessions/{session_id}")
    link = Path(f"/tmp/haltline-{os.getuid()}") / folder.parent.parent.name
    assert link.readlink() == folder.parent.parent
    assert session_id in [row.id for row in ps()]
    assert receipts(run("cancel", session_id, "--json")) == [stopped(session_id)]
    assert running.end().exit_code == 130
    assert not link.is_symlink()
    with contextlib.suppress(OSError):  # it was there, or somebody else uses it by now
        link.parent.rmdir()


@pytest.mark.ci
@pytest.mark.timeout(180)
def test_a_supervisor_with_a_hundred_streaming_sessions_obeys(tmp_path: Path) -> None:
    """Issue: they work while the supervisor carries 100 streaming sessions."""
    with scripted_gateway.running(tmp_path, scenario="slow") as gateway:
        running = Running(["100", gateway.url], command=CROWD, typing=True)
        running.until("streaming", within_s=90)
        ids = [row.id for row in ps() if row.role == "session"]
        assert len(ids) == 100
        cancelled, hit, killed, *others = ids
        assert receipts(run("cancel", cancelled, "--json")) == [stopped(cancelled)]
        (row,) = receipts(run("kill", hit, "--worker", "llm", "--json"))
        assert row == Stopped(session_id=hit, worker="llm", stream_ms=0.0, total_ms=0.0, rung="worker_kill")
        (row,) = receipts(run("kill", killed, "--json"))
        assert row == Stopped(session_id=killed, stream_ms=0.0, total_ms=0.0, rung="worker_kill")
        everything = run("cancel", "--all", "--json")
        rows = {one.session_id: one for one in receipts(everything)}
        assert everything.exit_code == 0
        assert rows == {
            **{one: stopped(one) for one in others},
            **{one: Stopped(session_id=one, already_stopped=True) for one in (cancelled, hit)},
        }
        running.type_end()
        ended = running.end(within_s=60)
        reasons = {str(event["session_id"]): event["reason"] for event in ended.of("result")}
        assert reasons == {**dict.fromkeys((cancelled, *others), "cancelled"), hit: "failed", killed: "killed"}
        assert gateway.state().open_streams == 0
        left = [one for one in survivors.descendants(os.getpid()) if one.pid != gateway.process.pid]
        assert not left


@pytest.mark.parametrize("everything", [False, pytest.param(True, marks=pytest.mark.ci)])
def test_a_supervisor_that_dies_during_the_stop_is_no_stop_before_nothing_is_left(*, everything: bool) -> None:
    """F1, G2: who asked hears of it when the guard has gone, and not when the supervisor has."""
    running = planted()
    supervisor = members(running)["supervisor"]
    whom = "--all" if everything else session_of(running)
    asking = subprocess.Popen([*COMMAND, "cancel", whom], stdout=subprocess.PIPE, text=True)
    running.until("cancel")
    os.kill(supervisor, signal.SIGKILL)
    said, _ = asking.communicate()
    left = [one for one in survivors.descendants(os.getpid()) if one.pid != running.process.pid]
    assert (left, asking.returncode) == ([], 0)
    assert said.startswith(f"{session_of(running)}: ended with its supervisor, nothing left after ")
    assert running.end().exit_code == 79


@pytest.mark.ci
def test_a_bug_that_a_stop_meets_ends_that_session_alone_with_a_receipt(tmp_path: Path) -> None:
    """P1: its workers are killed, whether or not the log takes the traceback; the others go on."""
    with scripted_gateway.running(tmp_path, scenario="slow") as gateway:
        running = Running(["3", gateway.url], command=ERRING, typing=True)
        running.until("streaming")
        ids = [row.id for row in ps() if row.role == "session"]
        broken, *others = ids
        (row,) = receipts(run("cancel", broken, "--json"))
        assert row == Stopped(session_id=broken, total_ms=0.0, rung="worker_kill")
        assert [row.id for row in ps() if row.role == "session"] == others
        rows = receipts(run("kill", "--all", "--json"))
        assert {one.session_id for one in rows} == set(others)
        running.type_end()
        ended = running.end()
        reasons = {str(event["session_id"]): event["reason"] for event in ended.of("result")}
        assert reasons == {broken: "failed", **dict.fromkeys(others, "killed")}
        left = [one for one in survivors.descendants(os.getpid()) if one.pid != gateway.process.pid]
        assert not left


@pytest.mark.parametrize("verb", ["ps", "cancel", "kill"])
def test_the_supervisor_is_reached_at_once(home: Path, verb: str) -> None:
    """Interface: 150 ms from the start of the command on an idle machine: the best time counts, and a busy machine
    gets more tries."""
    folder = home / "run" / "one"
    folder.mkdir(parents=True, mode=0o700)
    arguments = [] if verb == "ps" else ["--all"]
    took: list[float] = []
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "door"))
        door.listen()
        door.settimeout(30)
        while min(took, default=math.inf) >= REACHED_S * SLACK and len(took) < TRIES:
            began = time.monotonic()
            process = subprocess.Popen([*COMMAND, verb, *arguments], stderr=subprocess.PIPE, text=True)
            peer, _ = door.accept()
            took.append(time.monotonic() - began)
            with peer, process:
                peer.sendall(b"refused: not now\n")
                assert process.communicate()[1] == f"haltline {verb}: not now\n"
            assert process.returncode == 77
    assert min(took) < REACHED_S * SLACK


def test_who_is_not_seen_to_end_is_said_and_who_has_ended_meanwhile_was_stopped_already(home: Path) -> None:
    """F1: the receipt is the supervisor's; a survivor, or none to ask any more, is no success and no failure."""
    gone = CancelReceipt(stream_ms=None, tools_ms=None, total_ms=3000.0, rung="worker_kill", killed=2, survivors=1)
    with played(home / "run" / "one", Receipt(session_id=SessionId(SESSION), cancel=gone)) as asked:
        ended = run("kill", SESSION[:3])
    said = f"{SESSION}: killed in 3.0 s: 2 processes ended by force, 1 left, rung worker_kill\n"
    assert (ended.exit_code, ended.stdout.decode(), ended.stderr) == (75, said, "")
    assert asked == [KillRequest(session_id=SessionId(SESSION))]
    with played(home / "run" / "two", Refused(words="no session")) as asked:
        ended = run("cancel", SESSION, "--json")
    assert (ended.exit_code, receipts(ended)) == (0, [Stopped(session_id=SESSION, already_stopped=True)])
    assert asked == [CancelRequest(session_id=SessionId(SESSION), by="client")]


@pytest.mark.ci
def test_a_supervisor_that_falls_silent_in_the_middle_is_named(home: Path) -> None:
    folder = home / "run" / "one"
    with played(folder, None):
        for argument, rows in ((SESSION, [Stopped(session_id=SESSION, no_answer=True)]), ("--all", [])):
            ended = run("kill", argument, "--json")
            assert (ended.exit_code, receipts(ended)) == (75, rows)
            assert (
                ended.stderr
                == f"haltline kill: no answer from the supervisor in {folder} within {times.kill_answered_s():g} s\n"
            )


@pytest.mark.ci
def test_what_a_tool_may_leave_where_supervisors_are_looked_for_keeps_nothing_from_being_stopped(home: Path) -> None:
    """L4: it has the same user id, and may write there. Of a session that cannot be no name reaches the screen."""
    running = streaming()
    run_folder = home / "run"
    for no_path in ("x" * 200, os.fsdecode(b"\xff")):  # no socket of ours can have it
        (run_folder / no_path).mkdir()
    for no_door in ("file", "folder", "loop"):
        (run_folder / no_door).mkdir()
    (run_folder / "file" / "door").touch()
    (run_folder / "folder" / "door").mkdir()
    (run_folder / "loop" / "door").symlink_to(run_folder / "loop" / "door")
    for name, words in {"huge": "9" * 60, "none": "0", "less": "-5"}.items():
        (run_folder / name).mkdir()
        (run_folder / name / "pids").write_text(f"{words} 1 {words} 1\n")
    folder = folder_of(running)
    (folder / "sessions" / "\x1b[2J").touch()
    assert pidfile.sessions(str(folder)) == (session_of(running),)
    assert [row.id for row in ps() if row.role == "session"] == [session_of(running)]
    assert receipts(run("cancel", "--all", "--json")) == [stopped(session_of(running))]
    running.end()
    ended = run("kill", "--all", "--json")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, b"[]\n", "")


@pytest.mark.ci
def test_a_pid_file_that_names_a_stranger_harms_nobody(home: Path) -> None:
    """G3: neither a process that has no name of ours nor one that took over a number is signalled."""
    running = streaming()
    (folder_of(running) / "pids").write_text(f"{members(running)['supervisor']} 1 {members(running)['guard']} 1\n")
    assert last_resort.end(str(folder_of(running))) is None
    assert receipts(run("cancel", "--all", "--json")) == [stopped(session_of(running))]
    running.end()
    folder = home / "run" / "one"
    folder.mkdir(parents=True, mode=0o700)
    pidfile.write(str(folder))  # this very process, and whoever started it
    ended = run("kill", "--all", "--json")
    assert (ended.exit_code, ended.stdout) == (75, b"[]\n")
    assert ended.stderr == f"haltline kill: no answer from the supervisor in {folder} within 2 s\n"
