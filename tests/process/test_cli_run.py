"""`run`, `chat`, `ps` and `demo` as real processes with the whole chain below them (M1, M2, interface.md)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from support.checkout import ROOT
from support.command import COMMAND, Running, run

from haltline.cli.own_command import as_typed, own_command
from haltline.gateway import demo as repository

OK_TEXT = "one two three four five six seven eight nine ten"
WITHIN_S = 20


def types(events: tuple[dict[str, object], ...]) -> list[object]:
    """The types in order, neighbours of one type once; workers come and go when they like."""
    kinds = [event["type"] for event in events if event["type"] != "worker"]
    return [kind for index, kind in enumerate(kinds) if index == 0 or kind != kinds[index - 1]]


def test_text_output_is_the_assistants_text_and_nothing_else() -> None:
    ended = run("run", "-m", "demo", "hello")
    assert (ended.exit_code, ended.stdout.decode(), ended.stderr) == (0, OK_TEXT + "\n", "")


def test_json_output_is_the_result_alone() -> None:
    ended = run("run", "-m", "demo", "-o", "json", "hello")
    assert ended.stdout.count(b"\n") == 1
    assert (ended.exit_code, ended.result["text"], ended.stderr) == (0, OK_TEXT, "")


def test_stream_json_is_every_event_from_init_to_result() -> None:
    ended = run("run", "-m", "demo", "--json", "hello")
    assert types(ended.events) == ["init", "message", "result"]
    assert ended.text == OK_TEXT
    numbers = [event["seq"] for event in ended.events]
    assert numbers == sorted(set(map(int, map(str, numbers))))


def test_a_failed_run_says_why_in_one_line_and_ends_with_its_code() -> None:
    ended = run("run", "-m", "demo/unauthorized", "hello")
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (77, b"", 1)
    assert ended.stderr.startswith("haltline: the API key was refused (HTTP 401): ")
    assert ended.stderr.endswith("; check the key, what it may do, and the base URL (auth)\n")


@pytest.mark.parametrize(
    ("argument", "stdin", "prompt"),
    [
        ("review this", "the diff\n", "review this\n\nthe diff"),
        ("-", "from stdin\n", "from stdin"),
        ("-", b"gr\xfcn \xf0\x9f\x8c\xb3".decode("utf-8", "surrogateescape"), "gr\ufffdn \U0001f333"),
    ],
)
def test_a_prompt_may_be_piped_in_whatever_the_locale_says(argument: str, stdin: str, prompt: str) -> None:
    """R92: a C locale changes nothing."""
    data = stdin.encode("utf-8", "surrogateescape")
    ended = run("run", "-m", "demo", "--json", argument, stdin=data, extra={"LC_ALL": "C", "PYTHONUTF8": "0"})
    assert [event["text"] for event in ended.of("message") if event["role"] == "user"] == [prompt]


def test_a_pipe_that_stays_open_does_not_make_the_command_deaf() -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", "-m", "demo", "x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stderr is not None
        assert b"reading the prompt from standard input" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 143


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_a_run_with_its_own_code_and_a_receipt(number: int, exit_code: int) -> None:
    """F2."""
    running = Running(["run", "-m", "demo/slow", "--json", "x"])
    running.until(lambda event: event.get("delta") is True)
    running.process.send_signal(number)
    ended = running.end()
    assert (ended.exit_code, ended.stderr) == (exit_code, "stopping\n")
    assert (ended.result["reason"], ended.result["exit_code"]) == ("cancelled", exit_code)
    assert ended.receipt.survivors == 0


def test_a_background_shells_ignored_sigint_is_heard_all_the_same() -> None:
    """F2."""
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    process = subprocess.Popen(
        [*ignoring, *COMMAND, "run", "-m", "demo/slow", "x"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 130


def test_a_reader_that_stops_reading_does_not_hold_up_a_stop() -> None:
    """F10: a full pipe is no reason to be deaf."""
    process = subprocess.Popen(
        [*COMMAND, "run", "-m", "demo/flood", "--json", "x"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b'"init"' in os.read(process.stdout.fileno(), 65536)  # and nothing more is read
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == b"stopping\n"
        last = json.loads(process.stdout.read().splitlines()[-1])
        assert (last["type"], process.wait(WITHIN_S)) == ("result", last["exit_code"])


def test_a_reader_that_leaves_ends_the_run_without_a_traceback() -> None:
    """`haltline run ... | head -c 4`."""
    process = subprocess.Popen(
        [*COMMAND, "run", "-m", "demo/slow", "x"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(WITHIN_S) == 130
        assert process.stderr.read().startswith("stopped in ")


def test_an_answer_that_could_not_be_written_is_no_success() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*COMMAND, "run", "-m", "demo", "-o", "json", "x"],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (130, "haltline: stdout cannot be written: No space left on device\n")


def test_chat_takes_one_prompt_per_line_of_a_pipe() -> None:
    ended = run("chat", "-m", "demo", "--json", stdin=b"one\n\ntwo")
    prompts = [(event["run"], event["text"]) for event in ended.of("message") if event["role"] == "user"]
    assert prompts == [(1, "one"), (2, "two")]
    assert [event["exit_code"] for event in ended.of("result")] == [0, 0]
    assert len(ended.of("init")) == 1
    assert ended.exit_code == 0


def test_ps_in_a_second_terminal_lists_the_session_and_its_workers() -> None:
    running = Running(["run", "-m", "demo/slow", "--json", "x"])
    session_id = running.until(lambda event: event.get("delta") is True)["session_id"]
    rows = json.loads(run("ps", "--json").stdout)
    assert [(row["role"], row["state"]) for row in rows] == [
        ("session", "running"),
        ("llm", "running"),
        ("tool", "running"),
    ]
    assert rows[0]["id"] == session_id
    assert [(row["model"], row["cwd"]) for row in rows] == [("slow", os.getcwd()), ("", ""), ("", "")]
    assert run("ps", "-q").stdout.decode() == f"{session_id}\n"
    running.process.send_signal(signal.SIGINT)
    running.end()
    assert run("ps", "--json").stdout == b"[]\n"


def spawn(*arguments: str) -> "pexpect.spawn[str]":
    program, *rest = [*COMMAND, *arguments]
    return pexpect.spawn(program, rest, encoding="utf-8", timeout=WITHIN_S, dimensions=(24, 100))


def test_a_person_is_asked_and_answers_with_a_line(tmp_path: Path) -> None:
    """J3; what the person said is an event, and the model reads it."""
    terminal = spawn("run", "-m", "demo/loop", "-C", str(tmp_path), "go")
    terminal.expect_exact("Allow shell: echo the same")
    terminal.expect_exact("then Enter > ")
    terminal.sendline("a")
    terminal.expect_exact("shell: everything allowed for this session")
    terminal.expect_exact("shell echo the same: done")
    terminal.expect_exact("I was going in circles.")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def test_one_ctrl_d_denies_one_question_and_the_next_is_asked(tmp_path: Path) -> None:
    """J3: the end of a terminal's input is no end for ever."""
    repository.copy_to(tmp_path)
    terminal = spawn("run", "-m", "demo/repair", "-C", str(tmp_path), "go")
    terminal.expect_exact("Allow shell: ")
    terminal.expect_exact("then Enter > ")
    terminal.sendeof()
    terminal.expect_exact("\r\nshell: denied\r\n")
    terminal.expect_exact("then Enter > ")
    terminal.sendline("y")
    terminal.expect_exact(": allowed once\r\n")
    terminal.sendintr()
    terminal.expect_exact("stopping")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130


def test_a_line_typed_during_a_run_is_the_next_prompt_also_when_a_question_came(tmp_path: Path) -> None:
    terminal = spawn("chat", "-m", "demo/loop", "-C", str(tmp_path))
    terminal.expect_exact("> ")
    terminal.send("first\nsecond\n")
    for _ in range(2):
        terminal.expect_exact("Allow shell: echo the same")
        terminal.expect_exact("then Enter > ")
        terminal.sendline("n")
        terminal.expect_exact("shell: denied")
    terminal.close(force=True)


def test_a_wait_counts_down_on_a_terminal() -> None:
    """C7."""
    terminal = spawn("run", "-m", "demo/rate_limit", "go")
    terminal.expect_exact("trying again in 1 s, attempt 2 of 3")
    terminal.expect_exact("one two three")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def test_chat_says_how_to_leave_and_leaves_the_cursor_on_a_new_line() -> None:
    terminal = spawn("chat", "-m", "demo")
    terminal.expect_exact(
        "Esc or Ctrl+C stops the run (again: without grace, a third time: leaves), Ctrl+D leaves\r\n> "
    )
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    assert terminal.before == "\r\n"
    terminal.close()
    assert terminal.exitstatus == 0


def test_a_dumb_terminal_gets_no_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = spawn("run", "-m", "demo/rate_limit", "go")
    terminal.expect(pexpect.EOF)
    assert terminal.before is not None
    assert ("trying again in 1.0 s, attempt 2 of 3 (rate_limited)\r\n" in terminal.before) is True
    assert "\x1b" not in terminal.before
    terminal.close()
    assert terminal.exitstatus == 0


def test_ctrl_c_in_chat_stops_the_run_and_the_next_prompt_is_taken() -> None:
    """F9."""
    terminal = spawn("chat", "-m", "demo/slow")
    for _ in range(2):
        terminal.expect_exact("> ")
        terminal.sendline("count")
        terminal.expect_exact("2 ")
        terminal.sendintr()
        terminal.expect_exact("stopping")
        terminal.expect_exact("stopped in")
    terminal.expect_exact("> ")
    terminal.sendintr()
    terminal.expect_exact("Ctrl+D leaves")
    terminal.expect_exact("> ")
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130


def test_a_command_starts_another_of_ours_in_any_folder(tmp_path: Path) -> None:
    """A file of the workspace that has a module's name is never imported."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('the workspace was imported')\n")
    ended = subprocess.run(own_command("--version"), cwd=tmp_path, capture_output=True, timeout=WITHIN_S, check=False)
    assert (ended.returncode, ended.stdout[:9], ended.stderr) == (0, b"haltline ", b"")
    assert own_command()[0] == sys.executable


def test_a_command_is_named_as_it_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the checkout, elsewhere, and with a link to it on the PATH."""
    program = ROOT / "bin" / "haltline"
    monkeypatch.setenv("PATH", str(tmp_path))
    named: list[str] = []
    for folder in (ROOT, ROOT / "docs"):
        monkeypatch.chdir(folder)
        named.append(as_typed())
    (tmp_path / "haltline").symlink_to(program)
    assert [*named, as_typed()] == ["bin/haltline", str(program), "haltline"]
