"""What a person sees of a session (interface.md: stdout, Six runs). No terminal is needed: views are values."""

import re
from collections.abc import Iterable
from typing import get_args

import msgspec
import pytest

from haltline.cli.json_views import ResultView, StreamView
from haltline.cli.pieces import Piece, View
from haltline.cli.text_view import TextView
from haltline.protocol import events
from haltline.protocol.conversation import Usage
from haltline.protocol.ids import CallId, SessionId
from haltline.protocol.kinds import CancelBy
from haltline.protocol.lines import Line
from haltline.protocol.settings import Limits

INIT = events.Init(
    model="m", api="chat", cwd="/w", approval_mode="ask", retry="patient", isolation="subreaper", limits=Limits(),
    version="0",
)  # fmt: skip
USER = events.Message(role="user", text="the prompt")
OK = events.Result(
    reason="completed", message="", text="", retryable=False, exit_code=0, usage=Usage(input=1000, output=234),
    counters=events.Counters(), turns=1, attempts=1, tool_calls=0, tool_runs=0, ms=1200,
)  # fmt: skip


def delta(text: str) -> events.Message:
    return events.Message(role="assistant", text=text, delta=True)


def whole(text: str, *, partial: bool = False) -> events.Message:
    return events.Message(role="assistant", text=text, partial=partial)


def use(call_id: str, name: str, arguments: str) -> events.ToolUse:
    return events.ToolUse(call_id=CallId(call_id), name=name, arguments_raw=arguments)


def start(call_id: str) -> events.ToolStart:
    return events.ToolStart(call_id=CallId(call_id), pid=7)


DONE = events.ToolResult(
    call_id=CallId("c1"), ok=True, status="done", changed="nothing", exit_code=0, text="a lot of output", ms=40
)


def lines(*shown: events.AnyEvent) -> list[Line]:
    return [
        Line(seq=seq, ts="2026-01-01T00:00:00.000Z", session_id=SessionId("abcdef01"), run=1, turn=1, event=event)
        for seq, event in enumerate(shown, 1)
    ]


def seen(view: View, shown: Iterable[events.AnyEvent], now: float = 0.0) -> tuple[str, str]:
    """All of stdout, all of stderr."""
    pieces = [piece for line in lines(*shown) for piece in view.show(line, now)]
    return tuple("".join(piece.text for piece in pieces if piece.to == to) for to in ("out", "err"))  # type: ignore[return-value]


def plain() -> TextView:
    return TextView(out_terminal=False, err_terminal=False)


def on_terminal(*, colour: bool = False) -> TextView:
    return TextView(out_terminal=True, err_terminal=True, colour=colour)


def test_who_stopped_a_run_from_elsewhere_is_told_and_what_the_client_said_itself_is_not() -> None:
    told = {by: seen(plain(), [events.CancelStep(phase="requested", by=by)])[1] for by in get_args(CancelBy)}
    assert told == {
        "key": "",
        "signal": "",
        "client": "stopping (asked from another terminal)\n",
        "limit": "stopping (a limit)\n",
        "lost_client": "",
    }


RUNS: dict[str, tuple[list[events.AnyEvent], str, str]] = {
    "ok": ([INIT, USER, delta("one "), delta("two"), whole("one two"), OK], "one two\n", ""),
    "401": (
        [
            INIT,
            USER,
            events.Error(
                kind="auth", subkind=None, phase="headers", emitted=0, provider_status=401, message="bad key",
                retryable=False, handling="surface",
            ),
            msgspec.structs.replace(OK, reason="failed", kind="auth", message="bad key", exit_code=77),
        ],
        "",
        "haltline: bad key (auth)\n",
    ),
    "429 then ok": (
        [
            INIT,
            USER,
            events.Error(
                kind="rate_limited", subkind=None, phase="headers", emitted=0, provider_status=429, message="slow down",
                retryable=True, handling="retry",
            ),
            events.Retry(attempt=2, of=3, wait_ms=1000, kind="rate_limited", message="slow down"),
            delta("hi"),
            whole("hi"),
            OK,
        ],
        "hi\n",
        "slow down; trying again in 1.0 s, attempt 2 of 3 (rate_limited)\n",
    ),
    "SIGINT": (
        [
            INIT,
            USER,
            delta("one"),
            events.CancelStep(phase="requested", by="signal"),
            whole("one", partial=True),
            events.CancelStep(phase="acknowledged", role="llm", pid=1, ms=2),
            events.CancelStep(phase="done", role="llm", pid=1, ms=2, rung="ack", killed=0, survivors=0),
            msgspec.structs.replace(
                OK,
                reason="cancelled",
                exit_code=130,
                cancel=events.CancelReceipt(
                    stream_ms=2.0, tools_ms=None, total_ms=4.4, rung="ack", killed=0, survivors=0
                ),
            ),
        ],
        "one\n",
        "stopped in 4 ms: stream closed, 0 processes ended by force, 0 left\n",
    ),
    "same call x3": (
        [
            INIT,
            USER,
            use("c1", "shell", '{"command": "echo the same"}'),
            start("c1"),
            DONE,
            use("c3", "shell", '{"command": "echo the same"}'),
            events.Loop(detector="same_call", count=3, action="feedback"),
            events.ToolResult(
                call_id=CallId("c3"), ok=False, status="refused_loop", changed="nothing", exit_code=None, text="",
                ms=0,
            ),
            delta("I see."),
            whole("I see."),
            OK,
        ],
        "I see.\n",
        (
            "c1 shell echo the same\nc1 shell: done, 40 ms\n"
            "going in circles (same_call, 3): the model was told\n"
            "c3 shell echo the same: not run: the same call again\n"
        ),
    ),
    "cut call": (
        [
            INIT,
            USER,
            events.Error(
                kind="output_truncated", subkind=None, phase="body", emitted=0, provider_status=200, message="cut",
                retryable=False, handling="continue",
            ),
            use("c1", "write_file", '{"path": "a.txt", "content": "xx'),
            events.ToolResult(
                call_id=CallId("c1"), ok=False, status="refused_incomplete", changed="nothing", exit_code=None, text="",
                ms=0,
            ),
            events.Continuation(count=1, of=3),
            whole("done"),
            OK,
        ],
        "done\n",
        (
            'cut; going on from there (output_truncated)\nc1 write_file {"path": "a.txt", "content": "xx: '
            "not run: the response was cut inside it\ncut by the output limit, continuing, 1 of 3\n"
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_the_six_runs_as_plain_text(name: str) -> None:
    shown, out, err = RUNS[name]
    assert seen(plain(), shown) == (out, err)


@pytest.mark.parametrize("name", RUNS)
def test_the_six_runs_for_programs(name: str) -> None:
    """M2: every event, nothing else; or the result alone."""
    shown = RUNS[name][0]
    out, err = seen(StreamView(), shown)
    assert [msgspec.json.decode(line)["type"] for line in out.splitlines()] == [
        event.__struct_config__.tag for event in shown
    ]
    assert err == ""
    only, err = seen(ResultView(), shown)
    assert (only, err) == (out.splitlines(keepends=True)[-1], "")


def test_text_is_shown_once_whether_it_came_in_pieces_or_whole() -> None:
    """P2."""
    assert seen(plain(), [delta("a"), delta("b"), whole("ab"), OK])[0] == "ab\n"
    assert seen(plain(), [whole("ab"), OK])[0] == "ab\n"


def test_stdout_ends_with_one_line_end_whatever_the_model_sent() -> None:
    assert seen(plain(), [delta("a\n\n"), delta("\n"), whole("a\n\n\n"), OK])[0] == "a\n"
    assert seen(plain(), [delta("\n\na\n\nb"), whole("\n\na\n\nb"), OK])[0] == "a\n\nb\n"
    assert seen(plain(), [OK])[0] == ""


def test_two_messages_of_a_run_are_one_line_end_apart() -> None:
    shown: list[events.AnyEvent] = [
        delta("first\n\n"),
        whole("first\n\n"),
        use("c1", "shell", "{}"),
        start("c1"),
        DONE,
        delta("second"),
        OK,
    ]
    assert seen(plain(), shown)[0] == "first\nsecond\n"


def test_a_second_run_of_the_session_starts_afresh() -> None:
    view = plain()
    assert seen(view, [delta("first"), whole("first"), OK])[0] == "first\n"
    assert seen(view, [delta("second"), whole("second"), OK])[0] == "second\n"


def test_on_a_terminal_a_call_is_one_line_and_a_status_counts_while_it_runs() -> None:
    view = on_terminal()
    assert seen(view, [use("c1", "shell", '{"command": "pytest -q"}')]) == ("", "")
    assert view.status(100.0) is None
    assert seen(view, [start("c1")], now=100.0) == ("", "")
    assert (view.status(100.5), view.status(103.0)) == ("shell pytest -q", "shell pytest -q, 3 s")
    assert seen(view, [DONE]) == ("", "✓ shell pytest -q: done, 40 ms\n")
    assert view.status(104.0) is None


def test_on_a_terminal_a_wait_counts_down() -> None:
    """C7."""
    view = on_terminal()
    retry = events.Retry(attempt=2, of=3, wait_ms=2500, kind="server", message="x")
    assert seen(view, [retry], now=10.0) == ("", "x; trying again in 2.5 s, attempt 2 of 3 (server)\n")
    assert [view.status(now) for now in (10.0, 11.6, 12.4, 13.0)] == [
        "trying again in 3 s, attempt 2 of 3",
        "trying again in 1 s, attempt 2 of 3",
        "trying again in 1 s, attempt 2 of 3",
        "trying again in 0 s, attempt 2 of 3",
    ]
    assert seen(view, [delta("a")]) == ("a", "")
    assert view.status(13.0) is None


def test_the_silence_of_a_model_is_seen() -> None:
    """D4."""
    stalled = events.Worker(role="llm", pid=1, state="stalled", silent_ms=5000)
    assert seen(plain(), [stalled]) == ("", "the model has been silent for 5.0 s\n")
    later = [msgspec.structs.replace(stalled, silent_ms=ms) for ms in (9_000, 11_000, 19_000, 25_000)]
    told = seen(plain(), [stalled, *later, delta("a"), stalled])[1]
    assert re.findall(r"for (\d+)", told) == ["5", "11", "25", "5"]
    view = on_terminal()
    assert seen(view, [delta("a"), stalled], now=20.0) == ("a", "")
    assert view.status(21.0) == "the model is silent, 6 s"


def test_a_terminal_obeys_nothing_that_the_model_or_a_tool_wrote() -> None:
    evil = "a\x1b[2Jb\x9b1mc\r\nd\x07\u202ee"
    assert seen(on_terminal(), [delta(evil), OK])[0] == "a␛[2Jb\ufffd1mc\nd␇\ufffde\n"
    assert seen(plain(), [delta(evil), OK])[0] == evil + "\n"
    shown: list[events.AnyEvent] = [
        use("c1", "shell", msgspec.json.encode({"command": "ls\n\x1b[A rm"}).decode()),
        start("c1"),
    ]
    assert seen(plain(), shown)[1] == "c1 shell ls ␛[A rm\n"


def test_colour_only_where_it_was_asked_for() -> None:
    shown: list[events.AnyEvent] = [events.Continuation(count=1, of=3)]
    assert "\x1b" not in seen(on_terminal(), shown)[1]
    assert seen(on_terminal(colour=True), shown)[1] == "\x1b[2mcut by the output limit, continuing, 1 of 3\x1b[0m\n"


def test_a_person_sees_what_a_completed_run_took() -> None:
    assert seen(on_terminal(), [delta("a"), OK])[1] == "1 turn, 0 tool runs, 1,234 tokens, 1.2 s\n"


def test_a_limit_that_comes_near_is_told_and_one_that_was_reached_stands_in_the_result() -> None:
    near = [
        events.Budget(which="seconds", used=0.80083, allowed=1, level="warning"),
        events.Budget(which="tokens", used=1_600_000, allowed=2_000_000, level="warning"),
        events.Budget(which="turns", used=5, allowed=5, level="tripped"),
    ]
    assert seen(plain(), near)[1] == "0.8 s of 1 s used\n1,600,000 of 2,000,000 tokens used\n"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (
            msgspec.structs.replace(
                OK, reason="limit", limit=events.LimitTripped(which="turns", allowed=3, used=3), message="that was all"
            ),
            "haltline: stopped: that was all\n",
        ),
        (
            msgspec.structs.replace(OK, reason="loop", detector="drift", message="m\nn"),
            "haltline: stopped: m n (drift)\n",
        ),
        (
            msgspec.structs.replace(OK, reason="failed", kind="network", subkind="dns", message="no such host"),
            "haltline: no such host (network/dns)\n",
        ),
        (msgspec.structs.replace(OK, reason="cancelled"), "stopped\n"),
        (msgspec.structs.replace(OK, reason="worker_failed", message="m"), "haltline: m\n"),
    ],
)
def test_a_run_that_did_not_complete_says_why_in_one_line(result: events.Result, words: str) -> None:
    assert seen(plain(), [result]) == ("", words)


def test_a_huge_argument_is_one_short_line() -> None:
    pieces = seen(plain(), [use("c1", "write_file", "x" * 5_000_000), start("c1")])[1]
    assert pieces == "c1 write_file " + "x" * 68 + "…\n"


def test_pieces_are_values() -> None:
    assert plain().show(lines(delta("a"))[0], 0.0) == (Piece("out", "a"),)
