"""Repositories that were not made for this, each with one line broken by a seed that the model is not told: mended
through the real chain and the real tools, or given up honestly (issue of record: the main job on real input)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.command import Ended, run
from support.real_inputs import SPECIMENS, Specimen

from haltline.gateway.mutations import break_line

SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(1, 10)))
"""Each takes 5 to 60 s."""

MAX_TURNS = 60
ACTIVE = "120s"
"""Of one run; many a wrong change makes a suite slow."""
WITHIN_S = 150.0
TOOLS = os.path.dirname(sys.executable)
"""The agent's `python3` has to have pytest: the one that runs these tests."""


def broken(specimen: Specimen, folder: Path, seed: int) -> None:
    """Break one line so that a test fails, trying seeds upwards from `seed * 1000`. A break that hangs is passed over:
    test_hostile_repositories has those."""
    module = folder / specimen.module
    source = module.read_text()
    for attempt in range(seed * 1000, seed * 1000 + 1000):
        module.write_text(break_line(source, attempt).text)
        if specimen.passes(folder) is False:
            return
    raise AssertionError("no mutation fails a test")


def mend(folder: Path) -> Ended:
    return run(
        *("run", "-m", "demo/repair", "-y", "-C", str(folder), "--json"),
        *("--max-turns", str(MAX_TURNS), "--timeout", ACTIVE),
        "A test of this repository fails. Find out why and mend it.",
        extra={"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"},
        within_s=WITHIN_S,
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.name)
def test_a_broken_line_is_mended_or_given_up_honestly(tmp_path: Path, specimen: Specimen, seed: int) -> None:
    """That nothing is alive afterwards is checked after every test (conftest)."""
    folder = specimen.copy(tmp_path / "repository")
    broken(specimen, folder, seed)
    ended = mend(folder)
    said = str(ended.result["text"])
    if ended.result["reason"] == "completed":
        assert ended.exit_code == 0
        assert said.startswith(("Mended:", "I could not mend")), said
        assert specimen.passes(folder) is said.startswith("Mended:")
    else:
        assert (ended.result["reason"], ended.exit_code) in [("limit", 53), ("limit", 124)]
