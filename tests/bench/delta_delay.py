"""From a delta's departure at the gateway to its event on the client's stdout, beside plain httpx in one process."""

from __future__ import annotations

import json
import subprocess
import time

import httpx
from support.command import SHIPPED

from bench.figures import Figure, percentile
from bench.stamping_server import StampingServer


def measure() -> list[Figure]:
    return [*_at(rate=20, deltas=100, at_least=2.0, aim=0.5), *_at(rate=200, deltas=600, at_least=22.0, aim=None)]


def _at(*, rate: float, deltas: int, at_least: float, aim: float | None) -> list[Figure]:
    """The added delay is the difference of the medians; at 200/s the bound is the window (20 ms) plus 2."""
    server = StampingServer(deltas=deltas, rate=rate)
    plain = _plain(server.base_url)
    ours = _haltline(server.base_url)
    server.close()
    added = percentile(ours, 0.5) - percentile(plain, 0.5)
    name = f"added delay per delta at {rate:g}/s, p50"
    return [Figure(name, "ms", added, percentile(plain, 0.5), "plain httpx", at_least, aim, len(ours))]


def _plain(base_url: str) -> list[float]:
    delays: list[float] = []
    with (
        httpx.Client(timeout=None) as client,
        client.stream("POST", f"{base_url}/chat/completions", json={"stream": True}) as response,
    ):
        for line in response.iter_lines():
            now = time.monotonic()
            if line.startswith("data: {"):
                delays += _delays(json.loads(line[6:])["choices"][0]["delta"].get("content", ""), now)
    return delays


def _haltline(base_url: str) -> list[float]:
    delays: list[float] = []
    arguments = ["run", "-m", "m", "--base-url", base_url, "--json", "hi"]
    with subprocess.Popen([*SHIPPED, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now = time.monotonic()
            event = json.loads(line)
            if event["type"] == "message" and event["role"] == "assistant" and event["delta"]:
                delays += _delays(event["text"], now)
    return delays


def _delays(text: str, now: float) -> list[float]:
    """One per stamp in the text: deltas that were gathered into one event count each."""
    return [(now - float(stamp)) * 1000 for stamp in text.split()]
