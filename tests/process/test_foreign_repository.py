"""Repositories that were not made for this, each with one line broken by a seed that the model is not told: mended
through the real chain and the real tools, or given up honestly (issue of record: the main job on real input)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import Samples
from support.command import Ended, Running
from support.real_inputs import SPECIMENS, Specimen

from haltline.gateway.mutations import break_line

AT_ONCE = 2
"""Runs beside each other, as many as the cores that are counted on; each takes 5 to 60 s, nearly all of it in the
repository's own tests. No threads: each writes one line at its end, so that none waits for its reader."""

IN_TURN = [
    pytest.param(specimen, id=specimen.name, marks=[] if specimen.name == "inflection" else [pytest.mark.ci])
    for specimen in SPECIMENS
]

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


def mend(folder: Path) -> Running:
    return Running(
        [
            *("run", "-m", "demo/repair", "-y", "-C", str(folder), "-o", "json"),
            *("--max-turns", str(MAX_TURNS), "--timeout", ACTIVE),
            "A test of this repository fails. Find out why and mend it.",
        ],
        extra={"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"},
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("specimen", IN_TURN)
def test_a_broken_line_is_mended_or_given_up_honestly(tmp_path: Path, specimen: Specimen, samples: Samples) -> None:
    """That nothing is alive afterwards is checked after every test (conftest)."""

    folders = [specimen.copy(tmp_path / f"repository-{seed}") for seed in range(samples(1, 10, 10))]
    for seed, folder in enumerate(folders):
        broken(specimen, folder, seed)
    while folders:
        together, folders = folders[:AT_ONCE], folders[AT_ONCE:]
        for running, folder in [(mend(folder), folder) for folder in together]:
            judge(specimen, folder, running.end(WITHIN_S))


def judge(specimen: Specimen, folder: Path, ended: Ended) -> None:
    said = str(ended.result["text"])
    if ended.result["reason"] == "completed":
        assert ended.exit_code == 0
        assert said.startswith(("Mended:", "I could not mend")), said
        assert specimen.passes(folder) is said.startswith("Mended:")
    else:
        assert (ended.result["reason"], ended.exit_code) in [("limit", 53), ("limit", 124)]
