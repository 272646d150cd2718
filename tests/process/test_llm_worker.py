"""A real LLM worker between a supervisor's sockets and a TCP server: work, cancel, and ways to end.

Its limits and its failures are in test_llm_worker_limits and test_llm_worker_failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from support.llm_worker import KEY, SESSION, Connection, attempt, cancel, event, server, worker

from haltline.protocol.conversation import (
    AssistantMessage,
    Reasoning,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    UserMessage,
)
from haltline.protocol.ids import CallId
from haltline.protocol.messages import (
    AttemptEnded,
    AttemptFailed,
    AttemptProgress,
    CallDraft,
    CancelAcknowledged,
    CancelDone,
    Delta,
    Shutdown,
)

LOOK_AT_IMPORTS = """
import sys
import haltline.worker.llm.main
assert not {"httpx", "httpcore", "h11", "anyio"} & set(sys.modules)
from haltline.worker.llm import preload
for _ in preload.steps():
    pass
preload.tls_context()
assert "haltline.worker.llm.stream" in sys.modules
assert not {"click", "rich", "pygments"} & set(sys.modules)
"""


def acknowledged(generation: int, level: int = 1, **more: object) -> list[CancelAcknowledged | CancelDone]:
    ack = CancelAcknowledged(session_id=SESSION, generation=generation, level=level)
    return [
        msgspec.structs.replace(ack, **more),
        CancelDone(session_id=SESSION, generation=generation, level=level, rung="ack", killed=0, survivors=0),
    ]


def delta(text: str, *, reasoning: bool = False) -> Delta:
    return Delta(session_id=SESSION, run=1, turn=1, generation=1, attempt=1, text=text, reasoning=reasoning)


async def one_text_then_silence(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    connection.text("Hel")
    await connection.gone()


async def short_answer(connection: Connection) -> None:
    while True:
        await connection.request()
        connection.answer("Hello")


def test_the_hello_needs_no_http_library_and_http_needs_no_command_line() -> None:
    """Design 3: imports before the hello delay every start; click and rich are a third of httpx's import."""
    subprocess.run([sys.executable, "-I", "-c", LOOK_AT_IMPORTS], check=True)


def test_an_attempt_goes_through_its_phases_streams_its_text_and_ends(home: Path) -> None:
    """D1, D6: what the supervisor hears, whole, and what the server was sent."""

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        connection.chunk(event({"choices": [{"delta": {"role": "assistant", "reasoning_content": "Hm."}}]}))
        connection.text("Hello")
        connection.text(", world")
        call = {"index": 0, "id": "call_a", "function": {"name": "ls", "arguments": '{"d":1}'}}
        connection.chunk(event({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}))
        connection.chunk(event({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 4}}))
        connection.done()
        await connection.gone()

    async def run() -> None:
        async with server(script) as upstream, worker(home) as supervisor:
            parsed = ToolCall(call_id=CallId("c1"), name="ls", arguments_raw='{"a":1}')
            broken = ToolCall(call_id=CallId("c2"), name="ls", arguments_raw="{oops", parsed=False)
            request = attempt(
                upstream.base_url,
                items=(
                    UserMessage(text="Hi"),
                    AssistantMessage(
                        text="", calls=(parsed, broken), reasoning=(Reasoning(text="So.", field="reasoning"),)
                    ),
                    ToolResult(call_id=CallId("c1"), name="ls", text="a.py", ok=True),
                    ToolResult(call_id=CallId("c2"), name="ls", text="not JSON", ok=False),
                    AssistantMessage(text="Done."),
                    UserMessage(text="Again"),
                ),
                tools=(ToolSpec(name="ls", description="List.", schema='{"type":"object"}'),),
                max_output_tokens=64,
            )
            await supervisor.send(request)
            ended = await supervisor.next(AttemptEnded)
            assert ended == AttemptEnded(
                session_id=SESSION,
                run=1,
                turn=1,
                generation=1,
                attempt=1,
                finish="tool_calls",
                finish_raw="tool_calls",
                calls=(CallDraft(name="ls", arguments_raw='{"d":1}', provider_id="call_a"),),
                reasoning=(Reasoning(text="Hm.", field="reasoning_content"),),
                usage=Usage(input=12, output=4),
            )
            assert [one.phase for one in supervisor.of(AttemptProgress)] == [
                "connect",
                "headers",
                "first_event",
                "body",
            ]
            assert supervisor.of(Delta) == [
                delta("Hm.", reasoning=True),
                delta("Hello"),
                delta(", world"),
            ]
            assert supervisor.received[-1] is ended

            connection = await upstream.connection()
            lines = connection.head.lower().split("\r\n")
            assert lines[0] == "post /v1/chat/completions http/1.1"
            assert {f"authorization: bearer {KEY}", f"x-session-id: {SESSION}"} <= set(lines)
            function = {"name": "ls", "description": "List.", "parameters": {"type": "object"}}
            calls = [
                {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
            ]
            assert connection.body == {
                "model": "m-1",
                "stream": True,
                "stream_options": {"include_usage": True},
                "max_tokens": 64,
                "tools": [{"type": "function", "function": function}],
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": None, "tool_calls": calls, "reasoning": "So."},
                    {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
                    {"role": "tool", "tool_call_id": "c2", "content": "not JSON"},
                    {"role": "assistant", "content": "Done."},
                    {"role": "user", "content": "Again"},
                ],
            }

    asyncio.run(run())


def test_no_header_carries_a_key_where_there_is_none(home: Path) -> None:
    async def run() -> None:
        async with server(short_answer) as upstream, worker(home, key=None) as supervisor:
            await supervisor.send(attempt(upstream.base_url))
            await supervisor.next(AttemptEnded)
            connection = await upstream.connection()
            assert "authorization" not in connection.head.lower()
            assert {"max_tokens", "tools"}.isdisjoint(connection.body)

    asyncio.run(run())


def test_the_first_delta_goes_at_once_and_the_rest_is_gathered_but_all_before_the_end(home: Path) -> None:
    """Design 4. The window is longer than the test may last: only the flush at the end can bring the rest."""

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        connection.text("a")
        await first_seen.wait()
        connection.text("b")
        connection.text("c")
        connection.chunk(event({"choices": [{"delta": {"reasoning": "r"}}]}))
        connection.text("d")
        connection.finish()
        connection.done()
        await connection.gone()

    first_seen = asyncio.Event()

    async def run() -> None:
        async with server(script) as upstream, worker(home, window_ms=60_000) as supervisor:
            await supervisor.send(attempt(upstream.base_url))
            await supervisor.next(Delta)
            first_seen.set()
            await supervisor.next(AttemptEnded)
            deltas = [(delta.text, delta.reasoning) for delta in supervisor.of(Delta)]
            assert deltas == [("a", False), ("bc", False), ("r", True), ("d", False)]

    asyncio.run(run())


def test_two_attempts_use_one_connection(home: Path) -> None:
    """Design 9: keep-alive."""

    async def run() -> None:
        async with server(short_answer) as upstream, worker(home) as supervisor:
            for number in (1, 2):
                await supervisor.send(attempt(upstream.base_url, number=number))
                assert (await supervisor.next(AttemptEnded)).attempt == number
            assert len(upstream.connections) == 1

    asyncio.run(run())


def test_a_cancel_in_mid_text_is_acknowledged_once_the_stream_is_closed(home: Path) -> None:
    """F1, F3, F8: text that was waiting in the window comes before the acknowledgement, and usage with it."""

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        connection.text("Hel")
        connection.text("lo")
        connection.chunk(event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}))
        connection.chunk(event({"choices": [{"delta": {"reasoning": "seen"}}]}))
        await connection.gone()
        disconnected.set()

    disconnected = asyncio.Event()

    async def run() -> None:
        async with server(script) as upstream, worker(home, window_ms=60_000) as supervisor:
            await supervisor.send(attempt(upstream.base_url))
            await supervisor.next(Delta)
            while (await supervisor.heartbeat()).progress < 4:
                pass
            await supervisor.broadcast(cancel(2))
            done = await supervisor.next(CancelDone)
            await disconnected.wait()
            usage = Usage(input=3, output=1)
            assert [supervisor.received[-2], done] == acknowledged(2, streams_closed=1, usage=usage)
            assert [one.text for one in supervisor.of(Delta)] == ["Hel", "lo", "seen"]
            assert [*supervisor.of(AttemptEnded), *supervisor.of(AttemptFailed)] == []

    asyncio.run(run())


async def never_answers(connection: Connection) -> None:
    await connection.request()
    await connection.gone()


async def headers_only(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    await connection.gone()


async def never_reads(connection: Connection) -> None:
    """Also a TLS handshake that hangs, where the URL is https."""
    await connection.gone()


@pytest.mark.parametrize(
    ("scheme", "script", "phase"),
    [
        ("https", never_reads, "connect"),
        ("http", never_answers, "headers"),
        ("http", headers_only, "first_event"),
        ("http", one_text_then_silence, "body"),
    ],
)
def test_a_cancel_in_every_phase_is_acknowledged_and_the_server_sees_the_disconnect(
    home: Path, scheme: str, script: object, phase: str
) -> None:
    """F1, F7. The script ends only when its connection does."""

    async def watched(connection: Connection) -> None:
        await script(connection)  # type: ignore[operator]
        disconnected.set()

    disconnected = asyncio.Event()

    async def run() -> None:
        async with server(watched) as upstream, worker(home) as supervisor:
            await supervisor.send(attempt(upstream.base_url.replace("http", scheme, 1)))
            await upstream.connection()
            while (await supervisor.next(AttemptProgress)).phase != phase:
                pass
            await supervisor.broadcast(cancel(2))
            done = await supervisor.next(CancelDone)
            await disconnected.wait()
            assert [supervisor.received[-2], done] == acknowledged(2, streams_closed=1)

    asyncio.run(run())


def test_a_cancel_of_a_connection_that_never_stands_is_acknowledged(home: Path) -> None:
    """F7: a listener whose backlog is full answers no SYN."""

    async def run() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            address = listener.getsockname()
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            async with worker(home) as supervisor:
                await supervisor.send(attempt(f"http://127.0.0.1:{address[1]}/v1"))
                await supervisor.next(AttemptProgress)
                await supervisor.broadcast(cancel(2))
                done = await supervisor.next(CancelDone)
                assert [supervisor.received[-2], done] == acknowledged(2, streams_closed=1)
                assert [one.phase for one in supervisor.of(AttemptProgress)] == ["connect"]
            for filler in fillers:
                filler.close()

    asyncio.run(run())


LARGE = event({"choices": [], "padding": "x" * 7_000_000})
"""An event that is just small enough to be read (L5)."""


async def never_stops_sending(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    connection.text("begun")
    with contextlib.suppress(ConnectionError):
        while not connection.is_gone():
            connection.chunk(LARGE)
            await connection.drained()


def test_a_cancel_is_acknowledged_while_large_events_pour_in(home: Path) -> None:
    """R09: 200 ms, asserted three times over."""

    async def run() -> float:
        async with server(never_stops_sending) as upstream, worker(home) as supervisor:
            await supervisor.send(attempt(upstream.base_url))
            await supervisor.next(Delta)
            asked = time.monotonic()
            await supervisor.broadcast(cancel(2))
            await supervisor.next(CancelAcknowledged)
            return time.monotonic() - asked

    assert asyncio.run(run()) < 0.2 * 3


def test_a_repeated_cancel_is_acknowledged_again_and_changes_nothing(home: Path) -> None:
    """F3: also on the other lane; a second press is another cancel; and none of them touches the work after it."""

    async def run() -> None:
        async with server(one_text_then_silence, short_answer) as upstream, worker(home) as supervisor:
            await supervisor.send(attempt(upstream.base_url))
            await supervisor.next(Delta)
            await supervisor.broadcast(cancel(2))
            first = [await supervisor.next(CancelAcknowledged), await supervisor.next(CancelDone)]
            await supervisor.send(cancel(2))
            again = [await supervisor.next(CancelAcknowledged), await supervisor.next(CancelDone)]
            assert again == first == acknowledged(2, streams_closed=1)
            await supervisor.send(cancel(2, level=2))
            second = [await supervisor.next(CancelAcknowledged), await supervisor.next(CancelDone)]
            assert second == acknowledged(2, level=2)

            await supervisor.send(attempt(upstream.base_url, number=2, generation=2))
            await supervisor.send(cancel(2))
            await supervisor.send(cancel(2, level=2))
            assert (await supervisor.next(AttemptEnded)).attempt == 2

    asyncio.run(run())


def test_a_cancel_with_nothing_under_way_is_acknowledged_at_once(home: Path) -> None:
    """F7."""

    async def run() -> None:
        async with worker(home) as supervisor:
            await supervisor.broadcast(cancel(1))
            done = await supervisor.next(CancelDone)
            assert [supervisor.received[-2], done] == acknowledged(1)

    asyncio.run(run())


def test_work_of_an_older_generation_is_refused(home: Path) -> None:
    """F3: the answer of the newer work shows that the older was read and dropped."""

    async def run() -> None:
        async with server(short_answer) as upstream, worker(home) as supervisor:
            await supervisor.send(cancel(5))
            await supervisor.next(CancelDone)
            await supervisor.send(attempt(upstream.base_url, number=1, generation=4))
            await supervisor.send(cancel(4))
            await supervisor.send(attempt(upstream.base_url, number=2, generation=5))
            assert (await supervisor.next(AttemptEnded)).attempt == 2
            assert {one.attempt for one in supervisor.of(AttemptProgress)} == {2}
            assert len(supervisor.of(CancelAcknowledged)) == 1

    asyncio.run(run())


def test_after_many_cancels_the_next_request_works(home: Path) -> None:
    """R14: no connection leaks, whatever was open."""

    async def run() -> None:
        scripts = [one_text_then_silence, headers_only, never_answers] * 4
        async with server(*scripts, short_answer) as upstream, worker(home) as supervisor:
            for number in range(1, len(scripts) + 1):
                await supervisor.send(attempt(upstream.base_url, number=number, generation=number))
                connection = await upstream.connection(number)
                await supervisor.broadcast(cancel(number + 1))
                await supervisor.send(cancel(number + 1))
                while (await supervisor.next(CancelDone)).generation != number + 1:
                    pass
                await connection.gone()
            await supervisor.send(attempt(upstream.base_url, number=99, generation=99))
            assert (await supervisor.next(AttemptEnded)).attempt == 99

    asyncio.run(run())


def test_bytes_that_are_no_message_are_dropped_and_work_goes_on(home: Path) -> None:
    async def run() -> None:
        async with server(short_answer) as upstream, worker(home) as supervisor:
            for nonsense in (b"", b"\xc1", msgspec.msgpack.encode({"type": "new", "v": 1})):
                await supervisor.send_bytes(nonsense)
            await supervisor.send(attempt(upstream.base_url))
            await supervisor.next(AttemptEnded)

    asyncio.run(run())


def test_heartbeats_tell_progress_memory_and_the_silence_of_the_model(home: Path) -> None:
    """L5, D4."""

    async def run() -> None:
        async with server(one_text_then_silence) as upstream, worker(home) as supervisor:
            idle = await supervisor.heartbeat()
            await supervisor.send(attempt(upstream.base_url))
            await supervisor.next(Delta)
            first, second = await supervisor.heartbeat(), await supervisor.heartbeat()
            assert (idle.progress, idle.model_silent_ms) == (0, None)
            assert idle.pss_kib > 1000
            assert first.progress == second.progress > 0
            assert first.model_silent_ms is not None
            assert second.model_silent_ms is not None
            assert second.model_silent_ms > first.model_silent_ms

    asyncio.run(run())


def test_a_shutdown_ends_the_worker_with_status_0(home: Path) -> None:
    async def run() -> None:
        async with worker(home) as supervisor:
            await supervisor.send(Shutdown())
            assert await supervisor.exit_code() == 0

    asyncio.run(run())


@pytest.mark.parametrize("how", ["supervisor dies", "SIGTERM"])
def test_a_worker_without_supervisor_closes_its_stream_and_goes(home: Path, how: str) -> None:
    """G2, R84. SIGINT is the terminal's and is ignored."""

    async def script(connection: Connection) -> None:
        await one_text_then_silence(connection)
        disconnected.set()

    disconnected = asyncio.Event()

    async def run() -> None:
        alive, death = os.pipe()
        async with server(script) as upstream, worker(home, supervisor_fd=alive) as supervisor:
            os.close(alive)
            await supervisor.send(attempt(upstream.base_url))
            await supervisor.next(Delta)
            supervisor.process.send_signal(signal.SIGINT)
            await supervisor.heartbeat()
            if how == "SIGTERM":
                supervisor.process.send_signal(signal.SIGTERM)
                assert await supervisor.exit_code() == 0
                os.close(death)
            else:
                os.close(death)
                assert await supervisor.exit_code() == 0
            await disconnected.wait()

    asyncio.run(run())
