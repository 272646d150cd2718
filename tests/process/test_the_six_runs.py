"""The six runs of the event contract, through the real chain and the scripted gateway (M2, interface "Six runs")."""

from __future__ import annotations

import signal

from support.command import Ended, Event, Running, run

from haltline.protocol.events import Counters


def shape(ended: Ended, **fields: tuple[str, ...]) -> list[tuple[object, ...]]:
    """The events that the contract lists, each as its type and the named fields; worker lines may stand anywhere."""
    return [
        (event["type"], *(event[name] for name in fields.get(str(event["type"]), ())))
        for event in ended.events
        if event["type"] != "worker" and not (event["type"] == "message" and event["delta"])
    ]


RESULT = ("reason", "kind", "exit_code")


def test_ok() -> None:
    ended = run("run", "-m", "demo/ok", "--json", "hi")
    assert ended.exit_code == 0
    assert shape(ended, message=("role", "partial"), result=RESULT) == [
        ("init",),
        ("message", "user", False),
        ("message", "assistant", False),
        ("result", "completed", None, 0),
    ]
    assert ended.text == ended.result["text"] == "one two three four five six seven eight nine ten"


def test_a_refused_key_is_one_request() -> None:
    ended = run("run", "-m", "demo/unauthorized", "--json", "hi")
    assert ended.exit_code == 77
    assert shape(
        ended,
        message=("role",),
        error=("kind", "phase", "provider_status", "emitted", "handling", "retryable"),
        result=(*RESULT, "attempts"),
    ) == [
        ("init",),
        ("message", "user"),
        ("error", "auth", "headers", 401, 0, "surface", False),
        ("result", "failed", "auth", 77, 1),
    ]


def test_a_refused_rate_is_waited_for_and_tried_again() -> None:
    ended = run("run", "-m", "demo/rate_limit", "--json", "--retry", "interactive", "hi")
    assert ended.exit_code == 0
    assert shape(
        ended,
        message=("role",),
        error=("kind", "provider_status", "handling", "retryable"),
        retry=("attempt", "of", "kind"),
        result=(*RESULT, "attempts"),
    ) == [
        ("init",),
        ("message", "user"),
        ("error", "rate_limited", 429, "retry", True),
        ("retry", 2, 3, "rate_limited"),
        ("message", "assistant"),
        ("result", "completed", None, 0, 2),
    ]
    assert int(str(ended.of("retry")[0]["wait_ms"])) >= 1000  # the gateway asked for one second (C3)
    assert ended.counters == Counters(transport_retry=1)


def test_an_interrupt_keeps_what_was_received() -> None:
    running = Running(["run", "-m", "demo/slow", "--json", "hi"])
    running.until(lambda event: is_delta(event) and event["text"] == "2 ")
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert ended.exit_code == 130
    assert shape(
        ended, message=("role", "partial"), cancel=("phase", "by", "role", "rung", "survivors"), result=RESULT
    ) == [
        ("init",),
        ("message", "user", False),
        ("cancel", "requested", "signal", None, None, None),
        ("message", "assistant", True),
        ("cancel", "acknowledged", None, "llm", None, None),
        ("cancel", "acknowledged", None, "tool", None, None),
        ("cancel", "done", None, "llm", "ack", 0),
        ("cancel", "done", None, "tool", "ack", 0),
        ("result", "cancelled", None, 130),
    ]
    assert ended.text == ended.result["text"]
    assert ended.text.startswith("1 2 ")


def test_the_third_identical_call_is_not_run() -> None:
    ended = run("run", "-m", "demo/loop", "-y", "--json", "hi")
    assert ended.exit_code == 0
    assert shape(
        ended,
        message=("role",),
        tool_use=("call_id",),
        tool_start=("call_id",),
        tool_result=("call_id", "status"),
        loop=("detector", "count", "action"),
        result=(*RESULT, "tool_calls", "tool_runs"),
    ) == [
        ("init",),
        ("message", "user"),
        ("tool_use", "c1"),
        ("tool_start", "c1"),
        ("tool_result", "c1", "done"),
        ("tool_use", "c2"),
        ("tool_start", "c2"),
        ("tool_result", "c2", "done"),
        ("tool_use", "c3"),
        ("loop", "same_call", 3, "feedback"),
        ("tool_result", "c3", "refused_loop"),
        ("message", "assistant"),
        ("result", "completed", None, 0, 3, 2),
    ]


def test_a_call_cut_by_the_output_limit_does_not_run() -> None:
    ended = run("run", "-m", "demo/length_toolcall", "-y", "--json", "hi")
    assert ended.exit_code == 0
    seen = shape(
        ended,
        error=("kind", "handling"),
        tool_use=("call_id",),
        tool_result=("call_id", "status"),
        continuation=("count", "of"),
        result=RESULT,
    )
    start = seen.index(("error", "output_truncated", "continue"))
    assert seen[start : start + 4] == [
        ("error", "output_truncated", "continue"),
        ("tool_use", "c1"),
        ("tool_result", "c1", "refused_incomplete"),
        ("continuation", 1, 3),
    ]
    assert seen[-1] == ("result", "completed", None, 0)


def is_delta(event: Event) -> bool:
    return event["type"] == "message" and event["role"] == "assistant" and bool(event["delta"])
