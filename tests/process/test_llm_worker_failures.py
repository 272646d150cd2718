"""What a worker reports of an attempt that did not end well: facts, whole and without the key (A5, D2, J4)."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from pathlib import Path

import msgspec
import pytest
from support.llm_worker import KEY, SESSION, Connection, Script, attempt, event, server, worker

from haltline.protocol.messages import AttemptEnded, AttemptFailed, CallDraft, Delta

FAILED = AttemptFailed(session_id=SESSION, run=1, turn=1, generation=1, attempt=1, phase="body")
STREAM = {"content-type": "text/event-stream"}


async def failure(home: Path, script: Script, *, key: str = KEY) -> tuple[AttemptFailed, str]:
    """The report, and the text that came before it."""
    async with server(script) as upstream, worker(home, key=key) as supervisor:
        await supervisor.send(attempt(upstream.base_url))
        failed = await supervisor.next(AttemptFailed)
        return failed, "".join(delta.text for delta in supervisor.of(Delta))


def without_exception(failed: AttemptFailed) -> AttemptFailed:
    return msgspec.structs.replace(failed, exception=None)


def test_a_refused_connection_is_told_with_its_causes(home: Path) -> None:
    async def run() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            async with worker(home) as supervisor:
                await supervisor.send(attempt(f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"))
                failed = await supervisor.next(AttemptFailed)
        assert without_exception(failed) == msgspec.structs.replace(FAILED, phase="connect")
        assert failed.exception is not None
        assert failed.exception.startswith("ConnectError: ")
        assert "ConnectionRefusedError: [Errno 111]" in failed.exception

    asyncio.run(run())


@pytest.mark.parametrize(
    "url", ["http://no-such-host.invalid/v1", "no-scheme/v1", "http://", "ftp://x/v1", "http://a b/"]
)
def test_an_address_that_leads_nowhere_is_a_failure_and_not_a_crash(home: Path, url: str) -> None:
    async def run() -> None:
        async with worker(home) as supervisor:
            await supervisor.send(attempt(url))
            failed = await supervisor.next(AttemptFailed)
        assert without_exception(failed) == msgspec.structs.replace(FAILED, phase="connect")
        assert failed.exception

    asyncio.run(run())


def test_a_connection_that_ends_before_headers_is_no_truncated_stream(home: Path) -> None:
    """D2."""

    async def closes(connection: Connection) -> None:
        await connection.request()

    async def resets(connection: Connection) -> None:
        await connection.request()
        connection.reset()

    for script in (closes, resets):
        failed, _ = asyncio.run(failure(home, script))
        assert without_exception(failed) == msgspec.structs.replace(FAILED, phase="headers")
        assert failed.exception


async def after_headers(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()


async def in_mid_event(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    connection.text("Hel")
    connection.chunk(b'data: {"choices":[{"del')


async def in_mid_chunk(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    connection.text("Hel")
    connection.send(b"ff\r\ndata: {")


async def by_reset(connection: Connection) -> None:
    await connection.request()
    connection.stream_head()
    connection.text("Hel")
    await connection.drained()
    connection.reset()


async def by_a_clean_end(connection: Connection) -> None:
    """R27."""
    await connection.request()
    connection.stream_head()
    connection.text("Hel")
    connection.send(b"0\r\n\r\n")
    await connection.gone()


@pytest.mark.parametrize(
    ("script", "text"),
    [(after_headers, ""), (in_mid_event, "Hel"), (in_mid_chunk, "Hel"), (by_reset, "Hel"), (by_a_clean_end, "Hel")],
)
def test_a_stream_that_breaks_after_its_headers_is_truncated_and_keeps_its_text(
    home: Path, script: Script, text: str
) -> None:
    """D2, A6, R33."""
    failed, received = asyncio.run(failure(home, script))
    expected = msgspec.structs.replace(
        FAILED, phase="body" if text else "first_event", status=200, headers=STREAM, truncated=True
    )
    assert without_exception(failed) == expected
    assert (failed.exception is None) == (script is by_a_clean_end)
    assert received == text


def test_a_break_after_the_end_signal_spoils_nothing(home: Path) -> None:
    """D2: after the last byte, and between the finish and it."""

    async def after_finish(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        connection.text("Hello")
        connection.finish()
        await connection.drained()
        connection.reset()

    async def after_done(connection: Connection) -> None:
        await connection.request()
        connection.answer("Hello")

    async def run(script: Script) -> None:
        async with server(script) as upstream, worker(home) as supervisor:
            await supervisor.send(attempt(upstream.base_url))
            assert (await supervisor.next(AttemptEnded)).finish == "stop"

    asyncio.run(run(after_finish))
    asyncio.run(run(after_done))


def test_a_cut_call_is_reported_as_incomplete(home: Path) -> None:
    """D3: and calls that look whole are so too, since the response never ended."""

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        for index, arguments in enumerate(('{"a":1}', '{"cmd":"rm')):
            call = {"index": index, "id": f"c{index}", "function": {"name": "sh", "arguments": arguments}}
            connection.chunk(event({"choices": [{"delta": {"tool_calls": [call]}}]}))

    failed, _ = asyncio.run(failure(home, script))
    assert failed.truncated
    assert failed.calls == (
        CallDraft(name="sh", arguments_raw='{"a":1}', provider_id="c0", complete=False),
        CallDraft(name="sh", arguments_raw='{"cmd":"rm', provider_id="c1", complete=False),
    )


def test_an_error_event_inside_a_stream_is_reported_with_its_data(home: Path) -> None:
    """D2."""
    body = '{"error":{"message":"Overloaded","type":"overloaded_error"}}'

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        connection.text("Hel")
        connection.chunk(f"event: error\ndata: {body}\n\n".encode())
        connection.done()
        await connection.gone()

    failed, text = asyncio.run(failure(home, script))
    assert failed == msgspec.structs.replace(FAILED, status=200, headers=STREAM, body=body, in_stream=True)
    assert text == "Hel"


def answer(status: str, content_type: str, body: str, *headers: str) -> Script:
    async def script(connection: Connection) -> None:
        await connection.request()
        lines = (
            f"HTTP/1.1 {status}",
            f"content-type: {content_type}",
            f"content-length: {len(body.encode())}",
            *headers,
        )
        connection.send(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
        await connection.gone()

    return script


def test_an_error_status_is_reported_with_its_body_and_the_headers_that_matter(home: Path) -> None:
    """C3, A4."""
    script = answer(
        "429 Too Many Requests",
        "application/json",
        '{"error":{"message":"slow down"}}',
        "Retry-After: 7",
        "retry-after-ms: 7000",
        "X-RateLimit-Remaining-Requests: 0",
        "anthropic-ratelimit-tokens-reset: 2026-11-30T00:00:00Z",
        "x-should-retry: true",
        "Date: Mon, 30 Nov 2026 10:00:00 GMT",
        "set-cookie: a=b",
        "server: x",
    )
    failed, _ = asyncio.run(failure(home, script))
    assert failed == msgspec.structs.replace(
        FAILED,
        phase="headers",
        status=429,
        body='{"error":{"message":"slow down"}}',
        headers={
            "content-type": "application/json",
            "retry-after": "7",
            "retry-after-ms": "7000",
            "x-ratelimit-remaining-requests": "0",
            "anthropic-ratelimit-tokens-reset": "2026-11-30T00:00:00Z",
            "x-should-retry": "true",
            "date": "Mon, 30 Nov 2026 10:00:00 GMT",
        },
    )


def test_a_redirect_is_not_followed(home: Path) -> None:
    failed, _ = asyncio.run(failure(home, answer("307 Temporary Redirect", "text/plain", "", "location: /elsewhere")))
    assert (failed.status, failed.truncated) == (307, False)


def test_no_more_than_16_kib_of_an_error_are_kept(home: Path) -> None:
    failed, _ = asyncio.run(failure(home, answer("500 Oops", "text/plain", "é" * 100_000)))
    assert len(failed.body.encode()) <= 16 * 1024
    assert set(failed.body) == {"é"}


def test_an_error_body_that_never_ends_is_waited_for_a_moment_only(home: Path) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        connection.send(b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\nbusy")
        await connection.gone()

    failed, _ = asyncio.run(failure(home, script))
    assert failed == msgspec.structs.replace(FAILED, phase="headers", status=503, body="busy")


def test_a_json_error_in_place_of_a_stream_is_that_error(home: Path) -> None:
    """D2, R25."""
    body = '{"error":{"code":502,"message":"x"}}'
    failed, _ = asyncio.run(failure(home, answer("200 OK", "application/json", body)))
    assert failed == msgspec.structs.replace(
        FAILED, phase="first_event", status=200, headers={"content-type": "application/json"}, body=body
    )


def test_a_page_in_place_of_a_stream_is_malformed_and_no_text(home: Path) -> None:
    """D2, R32."""
    page = "<html><h1>Bad gateway</h1></html>"
    failed, text = asyncio.run(failure(home, answer("200 OK", "text/html", page)))
    assert failed == msgspec.structs.replace(
        FAILED,
        phase="first_event",
        status=200,
        headers={"content-type": "text/html"},
        body=page,
        malformed="a web page in place of a stream",
    )
    assert text == ""


def test_a_whole_json_answer_in_place_of_a_stream_is_an_answer(home: Path) -> None:
    """D2."""
    message = {"role": "assistant", "content": "not streamed"}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})

    async def run() -> None:
        async with server(answer("200 OK", "application/json", body)) as upstream, worker(home) as supervisor:
            await supervisor.send(attempt(upstream.base_url))
            assert (await supervisor.next(AttemptEnded)).finish == "stop"
            assert [delta.text for delta in supervisor.of(Delta)] == ["not streamed"]

    asyncio.run(run())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "Gzip, gzip"])
@pytest.mark.parametrize("status", [200, 429])
def test_a_compressed_body_is_refused_unread_and_its_status_kept(home: Path, status: int, encoding: str) -> None:
    """G6: 600 MB came out of 3 KB. The body would be read if anybody unpacked it."""
    data = gzip.compress(event({"choices": [{"delta": {"content": "zipped"}, "finish_reason": "stop"}]}))

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.send(f"HTTP/1.1 {status} X\r\ncontent-encoding: {encoding}\r\ncontent-length: 9999\r\n\r\n".encode())
        connection.send(data)
        await connection.gone()

    failed, text = asyncio.run(failure(home, script))
    assert failed == msgspec.structs.replace(
        FAILED,
        phase="headers",
        status=status,
        malformed=f"the body is compressed ({encoding.lower()}) though none such was asked for",
    )
    assert text == ""


def test_a_body_whose_encoding_is_identity_is_read(home: Path) -> None:
    failed, _ = asyncio.run(failure(home, answer("500 X", "text/plain", "words", "content-encoding: identity")))
    assert (failed.body, failed.malformed) == ("words", None)


def test_a_proxy_that_cannot_be_used_fails_the_request_and_ends_no_worker(home: Path) -> None:
    """And a server on this machine is reached without it."""
    variables = {"ALL_PROXY": "socks5://127.0.0.1:1080", "HTTP_PROXY": "foo://bar"}

    async def run() -> None:
        async with server(answers) as upstream, worker(home, variables=variables) as supervisor:
            await supervisor.send(attempt("http://api.example.com/v1"))
            assert await supervisor.next(AttemptFailed) == msgspec.structs.replace(
                FAILED,
                phase="connect",
                exception="UnsupportedProtocol: HTTP_PROXY names a proxy of a kind that cannot be used"
                " (only http and https can); set HTTP_PROXY to http://HOST:PORT, or unset it",
            )
            await supervisor.send(attempt(upstream.base_url, number=2, generation=2))
            assert (await supervisor.next(AttemptEnded)).finish == "stop"

    async def answers(connection: Connection) -> None:
        await connection.request()
        connection.answer("Hello")

    asyncio.run(run())


def test_a_request_goes_through_the_proxy_that_concerns_it(home: Path) -> None:
    async def answers(connection: Connection) -> None:
        await connection.request()
        connection.answer("Hello")

    async def run() -> None:
        async with server(answers) as proxy, worker(home, variables={"HTTP_PROXY": f"127.0.0.1:{proxy.port}"}) as us:
            await us.send(attempt("http://api.example.com/v1"))
            assert (await us.next(AttemptEnded)).finish == "stop"
            assert (await proxy.connection()).head.startswith("POST http://api.example.com/v1/chat/completions ")

    asyncio.run(run())


def test_the_key_is_in_no_report(home: Path) -> None:
    """J4: a provider that repeats it, and keys that no header can carry."""
    echo = answer("401 Unauthorized", "application/json", f'{{"error":{{"message":"Incorrect API key: {KEY}"}}}}')
    failed, _ = asyncio.run(failure(home, echo))
    assert failed.body == '{"error":{"message":"Incorrect API key: [API key]"}}'
    for key in ("sk-inner\nnewline", "sk-gedankenstrich\u2013x", "sk-control\x01x"):
        failed, _ = asyncio.run(failure(home, echo, key=key))
        assert failed.status is None
        assert failed.exception is not None
        assert "sk-" not in failed.exception


def test_an_event_above_eight_mebibytes_is_refused(home: Path) -> None:
    """L5: and what came before it is kept."""

    async def script(connection: Connection) -> None:
        await connection.request()
        connection.stream_head()
        connection.text("Hel")
        connection.chunk(b'data: {"choices":[{"delta":{"content":"')
        while not connection.is_gone():
            connection.chunk(b"x" * 1_000_000)
            await connection.drained()

    failed, text = asyncio.run(failure(home, script))
    assert (failed.malformed, failed.truncated, text) == ("an event larger than 8388608 bytes", False, "Hel")
