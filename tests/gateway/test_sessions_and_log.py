"""The gateway's memory of sessions, its log, and how soon it notices that a client has left (F1)."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from support import scripted_gateway
from support.scripted_gateway import Gateway, request

from haltline.gateway.scenarios import OK_PIECES

NOTICED_WITHIN_S = 0.3
"""It is seen within some ms; the rest is for a busy machine."""
MANY = 200


@pytest.fixture
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with scripted_gateway.running(tmp_path_factory.mktemp("gateway")) as started:
        yield started


def post(gateway: Gateway, model: str, *, session: str | None = None, text: str = "Hello.") -> int:
    """Status of one request on a connection of its own."""
    headers = {"authorization": "Bearer a-secret"}
    if session is not None:
        headers["x-session-id"] = session
    answer = httpx.post(gateway.chat_url, json=request(model, text=text), headers=headers, timeout=20, trust_env=False)
    return answer.status_code


def test_a_session_survives_its_connections_and_knows_no_other(gateway: Gateway) -> None:
    statuses = [post(gateway, "rate_limit", session=session) for session in ("a", "b", "a", "b", "c")]
    assert statuses == [429, 429, 200, 200, 429]


def test_without_a_name_a_session_is_its_first_user_message(gateway: Gateway) -> None:
    statuses = [post(gateway, "rate_limit", text=text) for text in ("one", "two", "one", "two")]
    assert statuses == [429, 429, 200, 200]


def test_the_log_tells_a_request_from_its_arrival_to_its_end(gateway: Gateway) -> None:
    post(gateway, "ok", session="told")
    gateway.wait_for("end", session="told")

    lines = gateway.log()
    assert [line.event for line in lines] == ["request", "response", *["piece"] * len(OK_PIECES), "end"]
    assert {(line.id, line.connection, line.session, line.scenario, line.n) for line in lines} == {
        ("000001", 1, "told", "ok", 1)
    }
    assert [line.text for line in lines if line.event == "piece"] == list(OK_PIECES)
    assert [line.mono for line in lines] == sorted(line.mono for line in lines)
    assert [line.status for line in lines] == [None, *[200] * (len(lines) - 1)]
    assert (lines[-1].reason, lines[-1].pieces) == ("finished", len(OK_PIECES))
    assert lines[0].body == request("ok")


def test_the_log_never_holds_a_key(gateway: Gateway) -> None:
    """J4"""
    post(gateway, "ok", session="key")
    httpx.post(gateway.chat_url, json=request("ok"), headers={"x-session-id": "no-key"}, trust_env=False)
    lines = {line.session: line for line in gateway.log() if line.event == "request"}
    shown = [(line.headers or {})["authorization"] for line in (lines["key"], lines["no-key"])]
    assert shown == ["present", "absent"]
    assert not any("a-secret" in str(line) for line in gateway.log())


@pytest.mark.parametrize("model", ["hang_first", "hang_mid", "slow", "keepalive"])
def test_a_client_that_leaves_is_noticed_at_once(gateway: Gateway, model: str) -> None:
    """F1: the log's clock is the machine's monotonic one, so it can be compared with ours."""
    left = asyncio.run(leave_after_the_head(gateway, model))
    noticed = gateway.wait_for("disconnect", session="left")
    assert 0 <= noticed.mono - left < NOTICED_WITHIN_S
    assert gateway.state() == scripted_gateway.State(open_connections=0, open_streams=0, requests=1)


async def leave_after_the_head(gateway: Gateway, model: str) -> float:
    """When the client left, in monotonic seconds."""
    headers = {"x-session-id": "left"}
    async with (
        httpx.AsyncClient(timeout=20, trust_env=False) as client,
        client.stream("POST", gateway.chat_url, json=request(model), headers=headers),
    ):
        return asyncio.get_running_loop().time()


def test_hundreds_of_streams_are_open_at_once(gateway: Gateway) -> None:
    """All have had a piece before the first one leaves."""
    asyncio.run(open_many(gateway))
    for number in range(MANY):
        gateway.wait_for("disconnect", session=f"many-{number}")
    assert gateway.state() == scripted_gateway.State(open_connections=0, open_streams=0, requests=MANY)


async def open_many(gateway: Gateway) -> None:
    everyone = asyncio.Barrier(MANY)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)

    async def one(client: httpx.AsyncClient, number: int) -> None:
        headers = {"x-session-id": f"many-{number}"}
        async with client.stream("POST", gateway.chat_url, json=request("slow"), headers=headers) as response:
            async for _ in response.aiter_raw():
                await everyone.wait()
                return

    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=limits) as client:
        await asyncio.gather(*(one(client, number) for number in range(MANY)))
