"""The limits of one attempt, each with the others far away (D4, R29 to R31)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from support.llm_worker import Connection, Script, attempt, event, server, worker

from haltline.protocol.kinds import Phase, StreamTimer
from haltline.protocol.messages import AttemptEnded, AttemptFailed, Delta
from haltline.protocol.settings import StreamLimits

FAR_S = 60.0
NEAR_S = 0.3
BETWEEN_S = 0.05
"""The server's rhythm: well below the limit that it must not trip."""


def limits(**near: float) -> StreamLimits:
    far = dict.fromkeys(("connect_s", "first_event_s", "silence_s", "progress_s", "whole_s"), FAR_S)
    return StreamLimits(**(far | near))


async def never_reads(connection: Connection) -> None:
    await connection.gone()


async def headers_only(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    await connection.gone()


async def comments_for_ever(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    while not connection.is_gone():
        connection.chunk(b": keepalive\n\nevent: ping\ndata: {}\n\n")
        await asyncio.sleep(BETWEEN_S)


async def text_then_silence(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    connection.text("a")
    await connection.gone()


async def text_then_comments(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    connection.text("a")
    while not connection.is_gone():
        connection.chunk(b": keepalive\n\n")
        await asyncio.sleep(BETWEEN_S)


async def text_for_ever(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    while not connection.is_gone():
        connection.text("a")
        await asyncio.sleep(BETWEEN_S)


@pytest.mark.parametrize(
    ("script", "scheme", "limit", "timer", "phase"),
    [
        pytest.param(never_reads, "https", limits(connect_s=NEAR_S), "connect", "connect", id="tls-handshake"),
        pytest.param(never_reads, "http", limits(first_event_s=NEAR_S), "first_event", "headers", id="no-headers"),
        pytest.param(headers_only, "http", limits(first_event_s=NEAR_S), "first_event", "first_event", id="no-event"),
        pytest.param(
            comments_for_ever, "http", limits(first_event_s=NEAR_S), "first_event", "first_event", id="only-comments"
        ),
        pytest.param(text_then_silence, "http", limits(silence_s=NEAR_S), "silence", "body", id="silence"),
        pytest.param(text_then_comments, "http", limits(progress_s=NEAR_S), "no_progress", "body", id="no-progress"),
        pytest.param(text_for_ever, "http", limits(whole_s=NEAR_S), "whole_request", "body", id="whole-request"),
    ],
)
def test_each_limit_ends_the_attempt_under_its_own_name_and_closes_the_connection(
    home: Path, script: Script, scheme: str, limit: StreamLimits, timer: StreamTimer, phase: Phase
) -> None:
    async def run() -> None:
        async with server(script) as upstream, worker(home) as supervisor:
            await supervisor.send(attempt(upstream.base_url.replace("http", scheme, 1), limits=limit))
            failed = await supervisor.next(AttemptFailed)
            assert (failed.timer, failed.phase, failed.truncated, failed.exception) == (timer, phase, False, None)
            await (await upstream.connection()).gone()

    asyncio.run(run())


def test_comments_feed_the_wire_limit_and_reasoning_and_arguments_feed_both(home: Path) -> None:
    """R29, R30: twice 1.2 s of life at limits of 1 s, with room for a busy machine between two beats."""

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        piece = {"tool_calls": [{"index": 0, "function": {"name": "x", "arguments": " "}}]}
        for delta in ({"reasoning_content": "a", "content": None}, piece):
            for _ in range(24):
                connection.chunk(event({"choices": [{"delta": delta}]}))
                connection.chunk(b": ping\n\n")
                await asyncio.sleep(BETWEEN_S)
        connection.finish()
        connection.done()
        await connection.gone()

    async def run() -> None:
        async with server(script) as upstream, worker(home) as supervisor:
            await supervisor.send(attempt(upstream.base_url, limits=limits(silence_s=1.0, progress_s=1.0)))
            assert (await supervisor.next(AttemptEnded)).finish == "stop"

    asyncio.run(run())


def test_silence_before_the_first_event_is_the_first_event_limits_business(home: Path) -> None:
    """R31: headers at once, then a long thought."""

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        await asyncio.sleep(2 * NEAR_S)
        connection.text("a")
        connection.finish()
        connection.done()
        await connection.gone()

    async def run() -> None:
        async with server(script) as upstream, worker(home) as supervisor:
            await supervisor.send(attempt(upstream.base_url, limits=limits(silence_s=NEAR_S, progress_s=NEAR_S)))
            await supervisor.next(AttemptEnded)

    asyncio.run(run())


def test_a_worker_that_was_stopped_past_its_limits_reads_what_came_meanwhile(home: Path) -> None:
    """L5: the limit fires late, by a loop that did not run; the answer waits in the socket."""

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        connection.text("a")
        await stopped.wait()
        connection.text("b")
        connection.finish()
        connection.done()
        written.set()
        await connection.gone()

    stopped, written = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with server(script) as upstream, worker(home, skip_s=FAR_S) as supervisor:
            await supervisor.send(attempt(upstream.base_url, limits=limits(silence_s=FAR_S / 2, whole_s=10 * FAR_S)))
            await supervisor.next(Delta)
            supervisor.process.send_signal(signal.SIGSTOP)
            stopped.set()
            await written.wait()
            supervisor.process.send_signal(signal.SIGUSR1)
            supervisor.process.send_signal(signal.SIGCONT)
            await supervisor.next(AttemptEnded)
            assert [delta.text for delta in supervisor.of(Delta)] == ["a", "b"]

    asyncio.run(run())


def test_a_line_kept_open_after_the_finish_does_not_spoil_the_answer(home: Path) -> None:
    """D2."""

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        connection.text("a")
        connection.finish()
        await connection.gone()

    async def run() -> None:
        async with server(script) as upstream, worker(home) as supervisor:
            await supervisor.send(attempt(upstream.base_url, limits=limits()))
            assert (await supervisor.next(AttemptEnded)).finish == "stop"
            await (await upstream.connection()).gone()

    asyncio.run(run())
