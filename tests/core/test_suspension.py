"""Connections that a suspended machine left behind are not used again (R34)."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from haltline.worker.llm import http

URL = httpx.URL("http://127.0.0.1:9/v1")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("gap_s", "kept"),
    [(http.SUSPENDED_S - 1, True), (http.SUSPENDED_S + 1, False)],
)
@pytest.mark.parametrize("heartbeat_first", [True, False])
def test_a_gap_in_the_life_of_the_loop_costs_the_client_and_a_shorter_one_does_not(
    monkeypatch: pytest.MonkeyPatch, gap_s: float, kept: bool, heartbeat_first: bool
) -> None:
    clock = Clock()
    monkeypatch.setattr(http, "clock", clock)

    async def run() -> None:
        pool = http.Http()
        before = await pool.client(URL)
        clock.now += gap_s
        if heartbeat_first:
            pool.alive()
        after = await pool.client(URL)
        assert (after is before) is kept
        assert before.is_closed is not kept
        await after.aclose()

    asyncio.run(run())


def test_regular_heartbeats_keep_the_client_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(http, "clock", clock)

    async def run() -> None:
        pool = http.Http()
        before = await pool.client(URL)
        for _ in range(100):
            clock.now += 1.0
            pool.alive()
        assert await pool.client(URL) is before
        await before.aclose()

    asyncio.run(run())
