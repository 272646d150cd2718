"""A repository that was not made for this: one line broken by a seed that the model is not told, mended through the
real chain and the real tools, or given up honestly (issue of record: the main job on real input)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import real_inputs
from support.command import Ended, run

from haltline.gateway.mutations import break_line

SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(1, 10)))
"""Each takes 5 to 30 s."""

MODULE = "inflection/__init__.py"
MAX_TURNS = 60
WITHIN_S = 150.0
TOOLS = os.path.dirname(sys.executable)
"""The agent's `python3` has to have pytest: the one that runs these tests."""


def suite_is_green(folder: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "test_inflection.py"]
    return (
        subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    )


def broken(folder: Path, seed: int) -> str:
    """Break one line so that a test fails, trying seeds upwards from `seed * 1000`; returns the line before."""
    module = folder / MODULE
    source = module.read_text()
    for attempt in range(seed * 1000, seed * 1000 + 1000):
        change = break_line(source, attempt)
        module.write_text(change.text)
        if not suite_is_green(folder):
            return change.before
    raise AssertionError("no mutation fails a test")


def mend(folder: Path) -> Ended:
    return run(
        *("run", "-m", "demo/repair", "-y", "-C", str(folder), "--json", "--max-turns", str(MAX_TURNS)),
        "A test of this repository fails. Find out why and mend it.",
        extra={"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"},
        within_s=WITHIN_S,
    )


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_broken_line_is_mended_or_given_up_honestly(tmp_path: Path, seed: int) -> None:
    folder = real_inputs.specimen(tmp_path / "repository")
    broken(folder, seed)
    ended = mend(folder)
    if suite_is_green(folder):
        assert (ended.result["reason"], ended.exit_code) == ("completed", 0)
    else:
        assert (ended.result["reason"], ended.exit_code) == ("limit", 53)
