"""From exec of `haltline run` to the first byte of its request at the gateway."""

from __future__ import annotations

import subprocess
import sys
import time

from support.command import SHIPPED

from bench.figures import Figure, percentile
from bench.stamping_server import StampingServer


def measure(runs: int = 9) -> list[Figure]:
    """Minimum (the bound is on it) and median, beside a bare interpreter's start in turns with it."""
    server = StampingServer(deltas=1, rate=1000)
    bare: list[float] = []
    cold: list[float] = []
    for _ in range(runs):
        began = time.monotonic()
        subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
        bare.append((time.monotonic() - began) * 1000)
        began = time.monotonic()
        arguments = ["run", "-m", "m", "--base-url", server.base_url, "-o", "json", "hi"]
        subprocess.run([*SHIPPED, *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        cold.append((server.arrived[-1] - began) * 1000)
    server.close()
    return [
        Figure("cold start to request, minimum", "ms", min(cold), min(bare), "python -c pass", 350, 240, runs),
        Figure(
            "cold start to request, median",
            "ms",
            percentile(cold, 0.5),
            percentile(bare, 0.5),
            "python -c pass",
            None,
            None,
            runs,
        ),
    ]
