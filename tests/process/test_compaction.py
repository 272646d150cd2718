"""A conversation that does not fit, through the real chain; requests are counted at the gateway (E1 to E3)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from conftest import Samples
from support import scripted_gateway
from support.command import Ended, run
from support.conversation import Conversation
from support.scripted_gateway import Gateway, LogLine

from haltline.gateway.scenarios import LONG_TURNS, SUMMARY
from haltline.protocol.events import Counters

BEFORE = LONG_TURNS + 1
"""Requests until the first that does not fit, itself included."""


class Body(msgspec.Struct, frozen=True):
    messages: tuple[msgspec.Raw, ...]
    tools: tuple[msgspec.Raw, ...] = ()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with scripted_gateway.running(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def body(request: LogLine) -> Body:
    return msgspec.json.decode(msgspec.json.encode(request.body), type=Body)


def sizes(requests: list[LogLine]) -> list[int]:
    return [len(msgspec.json.encode(request.body)) for request in requests]


def asked(gateway: Gateway, tmp_path: Path, scenario: str) -> tuple[Ended, list[LogLine]]:
    ended = run("run", "-m", scenario, "--base-url", gateway.url, "-C", str(tmp_path), "--json", "hi")
    return ended, gateway.requests(session=str(ended.result["session_id"]))


def test_an_overflow_is_one_request_before_compaction_and_the_next_is_smaller(gateway: Gateway, tmp_path: Path) -> None:
    """E1, E3, R59, R73: the summary is asked for without tools, is smaller itself, and is not shown."""
    ended, requests = asked(gateway, tmp_path, "small_window")
    assert (ended.result["reason"], ended.result["exit_code"]) == ("completed", 0)
    assert ended.counters == Counters(compaction=1)
    assert (ended.result["turns"], ended.result["attempts"]) == (BEFORE, len(requests))
    assert [bool(body(request).tools) for request in requests] == [True] * BEFORE + [False, True]
    *_, refused, summary, last = sizes(requests)
    assert summary < refused * 0.9
    assert last < refused * 0.9
    (done,) = ended.of("compaction")
    assert (done["trigger"], done["ok"]) == ("overflow", True)
    assert SUMMARY not in ended.text
    assert any(SUMMARY.encode() in bytes(message) for message in body(requests[-1]).messages)


@pytest.mark.ci
def test_an_overflow_after_compaction_ends_the_run_without_a_second_one(gateway: Gateway, tmp_path: Path) -> None:
    """E2, R59."""
    ended, requests = asked(gateway, tmp_path, "small_window_full")
    assert (ended.result["reason"], ended.result["kind"], ended.exit_code) == (
        "context_overflow",
        "context_overflow",
        55,
    )
    assert ended.counters == Counters(compaction=1)
    assert [bool(body(request).tools) for request in requests] == [True] * BEFORE + [False, True]
    assert "system prompt and tools alone take about" in str(ended.result["message"])


@pytest.mark.ci
def test_with_nothing_to_make_shorter_an_overflow_is_one_request(gateway: Gateway, tmp_path: Path) -> None:
    """E2."""
    ended, requests = asked(gateway, tmp_path, "overflow")
    assert (ended.result["reason"], ended.exit_code, len(requests)) == ("context_overflow", 55, 1)


def test_cancelled_at_any_point_of_a_summary_the_history_is_what_it_was(
    gateway: Gateway, tmp_path: Path, samples: Samples
) -> None:
    """E3, F7, F9, R10, R11: before its first piece and after each of nine, one after the other in one session."""
    points = samples(quick=2, ci=10, exhaustive=10)
    with Conversation(gateway.url, tmp_path, isolation="subreaper", model="small_window_slow") as conversation:
        session = ""
        for point in range(points):
            conversation.prompt(f"prompt {point}")
            conversation.until(lambda event: (event["type"], event.get("handling")) == ("error", "compact"))
            session = str(conversation.running.events[0]["session_id"])
            gateway.wait_for("response", session=session, count=BEFORE + 1 + 2 * point)
            pieces = gateway.count("piece", session=session)
            gateway.wait_for("piece", session=session, count=pieces + point)
            conversation.press()
            ended = conversation.result()
            assert (ended.result["reason"], ended.of("compaction")) == ("cancelled", [])
            gateway.wait_until_closed(session=session)
        requests = gateway.requests(session=session)
        assert len(requests) == BEFORE - 1 + 2 * points
        refused = [body(one).messages for one in requests[LONG_TURNS:] if body(one).tools]
        assert len(refused) == points
        for before, after in itertools.pairwise(refused):
            assert [bytes(message) for message in after[: len(before)]] == [bytes(message) for message in before]
            assert len(after) == len(before) + 2  # what the model is told of the stop, and the next prompt
        conversation.leave()
