"""The small parts of the command line: prompts, questions, presses, lines, the client's own last line."""

import os
import signal

import msgspec
import pytest

from haltline.cli import durations, prompt_text
from haltline.cli.asked import in_full
from haltline.cli.interrupts import Interrupted, Presses
from haltline.cli.lines_in import LineReader
from haltline.cli.printable import fit, one_line
from haltline.cli.prompt_text import Given, compose, read_all
from haltline.cli.ps import by_age, table
from haltline.cli.questions import KEYS, Questions, Reply, no_answer
from haltline.cli.seen import UNOPENED, Seen
from haltline.cli.silence import Silence
from haltline.cli.tool_words import of_listing
from haltline.cli.version import VERSION
from haltline.protocol import events
from haltline.protocol.client_messages import PsRow
from haltline.protocol.conversation import Usage
from haltline.protocol.door import Granted, TurnedAway, decode, encode
from haltline.protocol.errors import UsageProblem
from haltline.protocol.ids import CallId, SessionId
from haltline.protocol.lines import Line
from haltline.protocol.timestamps import rfc3339


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("90s", 90.0), ("15m", 900.0), ("2h", 7200.0), ("1.5h", 5400.0), ("0", 0.0), (" 3 ", 3.0)],
)
def test_a_length_of_time(text: str, seconds: float) -> None:
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1d", "1e3", "nan", "inf", "1 m", "1h30m", "9" * 400])
def test_no_length_of_time(text: str) -> None:
    assert durations.seconds(text) is None


@pytest.mark.parametrize(
    ("given", "prompt"),
    [
        (Given("task", ""), "task"),
        (Given("review this", "the diff\n"), "review this\n\nthe diff"),
        (Given("-", "\nfrom stdin\n\n"), "from stdin"),
        (Given(None, "from stdin"), "from stdin"),
        (Given("task", " \n"), "task"),
        (Given("gr\udcfcn", "x"), "gr\ufffdn\n\nx"),
    ],
)
def test_a_prompt_comes_from_the_argument_and_standard_input(given: Given, prompt: str) -> None:
    assert compose(given) == prompt


@pytest.mark.parametrize("given", [Given(None, ""), Given("", ""), Given("-", "\n"), Given("  ", "")])
def test_an_empty_prompt_is_refused(given: Given) -> None:
    with pytest.raises(UsageProblem, match="the prompt is empty"):
        compose(given)


def test_standard_input_is_read_to_its_end_and_need_not_be_utf8() -> None:
    """R92."""
    read_fd, write_fd = os.pipe()
    signals_r, signals_w = os.pipe()
    os.write(write_fd, b"gr\xfcn")
    os.close(write_fd)
    assert read_all(read_fd, signals_r) == "gr\ufffdn"
    for fd in (read_fd, signals_r, signals_w):
        os.close(fd)


def test_a_silent_pipe_does_not_make_the_command_deaf_to_signals() -> None:
    read_fd, write_fd = os.pipe()
    signals_r, signals_w = os.pipe()
    os.write(signals_w, bytes((signal.SIGTERM,)))
    with pytest.raises(Interrupted) as came:
        read_all(read_fd, signals_r)
    assert came.value.exit_code == 143
    for fd in (read_fd, write_fd, signals_r, signals_w):
        os.close(fd)


def test_a_prompt_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_text, "LONGEST_BYTES", 1000)
    signals_r, signals_w = os.pipe()
    with open("/dev/zero", "rb") as endless, pytest.raises(UsageProblem, match="longer than 1,000 bytes"):
        read_all(endless.fileno(), signals_r)
    os.close(signals_r)
    os.close(signals_w)


def test_three_presses_stop_then_stop_at_once_then_leave() -> None:
    """F10; the exit code is the first one's."""
    presses = Presses()
    meanings = [presses.press(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT, signal.SIGINT)]
    assert (meanings, presses.exit_code) == (["stop", "stop_at_once", "leave", "leave"], 143)


def asked(call_id: str, question: str = "run it?") -> events.Approval:
    return events.Approval(call_id=CallId(call_id), question=question)


def about(call_id: str, name: str, **arguments: str) -> events.ToolUse:
    raw = msgspec.json.encode(arguments).decode()
    return events.ToolUse(call_id=CallId(call_id), name=name, arguments_raw=raw)


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("y", Reply(CallId("c1"), "yes", tool="shell")),
        ("Y", Reply(CallId("c1"), "always_tool", tool="shell")),
        ("a", Reply(CallId("c1"), "always_all", tool="shell")),
        ("n", Reply(CallId("c1"), "no", tool="shell")),
        (" n  use the other file ", Reply(CallId("c1"), "no", "use the other file", tool="shell")),
        ("", None),
        ("yes please", None),
        ("A", None),
        ("x", None),
    ],
)
def test_a_question_takes_these_answers_and_no_other(line: str, reply: Reply | None) -> None:
    """J3."""
    questions = Questions()
    questions.note(about("c1", "shell", command="make"))
    assert questions.hear(asked("c1"))
    assert questions.answer(line) == reply
    assert bool(questions) == (reply is None)


def test_an_answer_is_echoed_as_it_was_understood() -> None:
    c1 = CallId("c1")
    assert [
        Reply(c1, "yes", tool="shell").echo,
        Reply(c1, "always_tool", tool="shell").echo,
        Reply(c1, "always_all", tool="shell").echo,
        Reply(c1, "no", tool="shell").echo,
        Reply(c1, "no", "use make", tool="shell").echo,
    ] == [
        "shell: allowed once",
        "shell: allowed for this session",
        "shell: everything allowed for this session",
        "shell: denied",
        "shell: denied (use make)",
    ]
    assert no_answer("what\x1b?") == "'what\u241b?' is no answer; type y, Y, n or a, then Enter > "


def test_questions_are_put_one_after_the_other_and_an_answer_from_elsewhere_counts() -> None:
    questions = Questions()
    assert [questions.hear(asked("c1", "one\x1b[A?")), questions.hear(asked("c2", "two?"))] == [True, False]
    assert questions.text() == f"one\u241b[A?\n{KEYS}"
    assert questions.hear(events.Approval(call_id=CallId("c1"), question="one?", answer="denied", by="cancel"))
    assert questions.text() == f"two?\n{KEYS}"
    assert questions.end_of_input() == Reply(CallId("c2"), "no", tool="the call")
    assert not questions


def test_a_question_shows_in_full_what_it_is_about() -> None:
    """J3: what is allowed has been seen."""
    questions = Questions()
    questions.note(about("c1", "edit_file", path="a.py", old="def f():\n    return 1", new="def f():\n    return 2\n"))
    questions.hear(asked("c1", "Allow edit_file: a.py"))
    assert questions.text() == f"Allow edit_file: a.py\n   def f():\n  -    return 1\n  +    return 2\n{KEYS}"


@pytest.mark.parametrize(
    ("name", "arguments", "lines"),
    [
        ("shell", {"command": "make test"}, []),
        (
            "shell",
            {"command": "make serve", "background": True},
            ["(in the background: it goes on after the call, until the session ends or a run is stopped)"],
        ),
        ("shell", {"command": "cd a &&\n\x1b[A rm -r b\n"}, ["cd a &&", "\u241b[A rm -r b"]),
        ("shell", {"command": "x" * 401 + "y"}, ["x" * 300 + "\u2026 2 characters left out \u2026" + "x" * 99 + "y"]),
        ("write_file", {"path": "a", "content": "one\n"}, ["4 bytes, 1 line", "+one"]),
        ("write_file", {"path": "a", "content": "gr\u00fcn\nx"}, ["7 bytes, 2 lines", "+gr\u00fcn", "+x"]),
        ("edit_file", {"path": "a", "old": "x", "new": "x\n"}, ["(only line ends change)"]),
        ("edit_file", {"path": "a", "old": "1\n2\n3\n4\n5", "new": "1\n2\n3\n4\nV"}, [" 2", " 3", " 4", "-5", "+V"]),
        ("read_file", {"path": "/etc/hosts"}, []),
        ("no_such_tool", {"path": "/etc/hosts"}, []),
        ("shell", {"nothing": "x"}, ['{"nothing":"x"}']),
    ],
)
def test_what_stands_below_a_question(name: str, arguments: dict[str, object], lines: list[str]) -> None:
    assert list(in_full(name, msgspec.json.encode(arguments).decode())) == lines


def test_what_stands_below_a_question_is_bounded_and_says_what_is_left_out() -> None:
    """A command hides nothing at its end."""
    command = "\n".join(f"echo {number}" for number in range(50))
    shown = in_full("shell", msgspec.json.encode({"command": command}).decode())
    assert (len(shown), shown[11:14], shown[-1]) == (
        20,
        ("echo 11", "\u2026 31 lines left out \u2026", "echo 43"),
        "echo 49",
    )
    huge = msgspec.json.encode({"path": "a", "old": "a\n" * 60_000, "new": "b\n" * 60_000}).decode()
    assert len(in_full("edit_file", huge)) == 20


def test_lines_come_out_whole_whatever_pieces_they_came_in() -> None:
    reader = LineReader()
    reader.feed(b"on")
    assert reader.next() is None
    reader.feed(b"e\r\ntwo\nthr\xff")
    assert [reader.next(), reader.next(), reader.next(), reader.ended] == ["one", "two", None, False]
    reader.feed(b"")
    assert (reader.next(), reader.ended, reader.next()) == ("thr\ufffd", True, None)


def test_a_one_line_text_is_cut_by_cells_not_by_characters() -> None:
    assert [fit("abcdef", 6), fit("abcdefg", 6), fit("日本語", 5)] == ["abcdef", "abcde…", "日本…"]
    assert one_line(" a\n\t b\x00 ") == "a b␀"


def test_the_last_line_that_the_client_writes_itself() -> None:
    seen = Seen()
    seen.session_id = SessionId("abcdef01")
    shown: list[events.AnyEvent] = [
        events.Message(role="user", text="p"),
        events.Message(role="assistant", text="par", delta=True),
        events.Message(role="assistant", text="tial", delta=True),
        events.ToolUse(call_id=CallId("c1"), name="shell", arguments_raw=""),
    ]
    for seq, event in enumerate(shown, 4):
        seen.note(Line(seq=seq, ts="t", session_id=SessionId("abcdef01"), run=2, turn=3, event=event))
    assert seen.last_line("worker_failed", "it died", ts="now", ms=12) == Line(
        seq=8, ts="now", session_id=SessionId("abcdef01"), run=2, turn=3,
        event=events.Result(
            reason="worker_failed", message="it died", text="partial", retryable=False, exit_code=79,
            usage=Usage(estimated=True), counters=events.Counters(), turns=3, attempts=3, tool_calls=1, tool_runs=0,
            ms=12,
        ),
    )  # fmt: skip
    before = Seen().last_line("cancelled", "", ts="now", ms=0, terminated=True)
    assert (before.seq, before.session_id, msgspec.to_builtins(before.event)["exit_code"]) == (1, UNOPENED, 143)


PS_ROWS = [
    PsRow(
        id="abcdef01", role="session", session_id="abcdef01", pid=7, state="running", turn=3, age_s=3725.0, cpu_ms=1500,
        memory_kib=2048, heartbeat_age_s=0.25, tool='shell {"command":"sleep 60 & echo \\"a b', model="m",
        cwd="/" + "d" * 50,
    ),
    PsRow(
        id="tool-abcdef01-2-355a240ca061", role="tool", session_id="abcdef01", pid=42, state="running", turn=0,
        age_s=9.0, cpu_ms=0, memory_kib=0, heartbeat_age_s=None, tool=None,
    ),
]  # fmt: skip


def test_ps_shows_a_table() -> None:
    call = 'shell sleep 60 & echo "a b'
    assert table(PS_ROWS, columns=None).splitlines() == [
        f"ID             ROLE     PID  STATE    TURN  AGE      CPU    MEMORY   HEARTBEAT  {'TOOL':26}  MODEL  CWD",
        f"abcdef01       session  7    running  3     1:02:05  1.5 s  2.0 MiB  0.2 s      {call}  m      /"
        + "d" * 38
        + "\u2026",
        f"abcdef01/tool  tool     42   running  -     0:09     0.0 s  0.0 MiB  -          {'-':26}  -      -",
    ]


def test_ps_fits_a_terminal() -> None:
    """What tells least about which session to stop goes first; the call takes what is left."""
    assert table(PS_ROWS, columns=80).splitlines() == [
        "ID             ROLE     PID  STATE    TURN  AGE      CPU    TOOL",
        "abcdef01       session  7    running  3     1:02:05  1.5 s  shell sleep 60 & ec\u2026",
        "abcdef01/tool  tool     42   running  -     0:09     0.0 s  -",
    ]
    for columns in range(1, 200):
        assert max(map(len, table(PS_ROWS, columns=columns).splitlines())) <= columns
    assert table(PS_ROWS, columns=200) == table(PS_ROWS, columns=None)


def test_ps_shows_the_oldest_session_first_with_its_workers_behind_it() -> None:
    young, old = (msgspec.structs.replace(PS_ROWS[0], id=one, session_id=one) for one in ("young", "old"))
    young = msgspec.structs.replace(young, age_s=1.0)
    workers = [
        msgspec.structs.replace(PS_ROWS[1], id=f"{role}-{one}", session_id=one, role=role)
        for one in ("young", "old")
        for role in ("llm", "tool")
    ]
    expected = [old, workers[2], workers[3], young, workers[0], workers[1]]
    assert by_age([young, *workers[:2], old, *workers[2:]]) == by_age([old, *workers[2:], young, *workers[:2]])
    assert by_age([young, *workers[:2], old, *workers[2:]]) == expected


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        ('shell {"command":"sleep 600"}', "shell sleep 600"),
        ('shell {"background":true,"command":"cd x && sle', "shell cd x && sle"),
        ('shell {"command": "say \\"a\\\\', 'shell say "a\\'),
        ('shell {"command":"a \\', "shell a"),
        ('shell {"command":"a \\ud83d\\ude0', "shell a"),
        ('shell {"command":"a\\nb \\u001b[31m', "shell a b \u241b[31m"),
        ('edit_file {"path":"a.py","old":"command', "edit_file a.py"),
        ('mcp {"query":"a b', 'mcp {"query":"a b'),
        ("glob", "glob"),
        ("shell []", "shell []"),
    ],
)
def test_a_call_is_listed_as_the_run_itself_shows_it(listed: str, shown: str) -> None:
    """Of its arguments only the beginning is known, and it may end anywhere."""
    assert of_listing(listed) == shown


def test_the_version_is_the_packages(request: pytest.FixtureRequest) -> None:
    assert f'\nversion = "{VERSION}"\n' in (request.config.rootpath / "pyproject.toml").read_text()


@pytest.mark.parametrize("answer", [Granted(b"token \n" + b"\0" * 9), TurnedAway("a tool may not: refused: é")])
def test_an_answer_of_the_door_is_read_once_it_is_whole(answer: Granted | TurnedAway) -> None:
    """A token may hold any byte, a line end too."""
    data = encode(answer)
    assert [decode(data[:length]) for length in range(len(data))] == [None] * len(data)
    assert decode(data) == answer


def test_a_moment_is_written_in_utc_with_milliseconds() -> None:
    assert rfc3339(1_764_500_000.25) == "2025-11-30T10:53:20.250Z"


def test_a_silent_supervisor_is_given_up_after_three_questions_without_an_answer() -> None:
    """40 s after its last word. Anything that comes starts the count again."""
    silence = Silence(100.0)
    assert [(silence.at(now), silence.due) for now in (109.9, 110, 119.9, 120)] == [
        ("wait", 110),
        ("ask", 120),
        ("wait", 120),
        ("ask", 130),
    ]
    silence.heard(125.0)
    assert [silence.at(now) for now in (134.9, 135, 145, 155, 164.9, 165)] == [
        "wait", "ask", "ask", "ask", "wait", "give_up",
    ]  # fmt: skip


def test_a_client_that_was_stopped_for_an_hour_asks_before_it_gives_up() -> None:
    silence = Silence(0.0)
    assert [silence.at(now) for now in (3600, 3601, 3610)] == ["ask", "wait", "ask"]
