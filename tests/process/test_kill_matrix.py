"""The kill matrix: every one and every two of client, guard, supervisor, zygote and the two workers, killed, stopped or
made to crash, in every state of a run (G2, L2, L5, L6, R84, P1). What each cell expects stands in support/kill_cell.py.

A sample of it in every run, whole with --all. A cell that failed is tried again by the command that is printed."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections import deque
from pathlib import Path

import msgspec
import pytest
from conftest import Samples
from support.chain import MEMBERS
from support.kill_cell import SIGNALS, SLACK, STATES, Cell, Hit, Outcome, bound_s, expected

SEED_VARIABLE = "KILL_MATRIX_SEED"
SIDE_BY_SIDE = 3
"""Most of a cell is waiting; more of them on two cores would measure each other."""
CELL_S = 180.0
"""Longest cell, its waits at three times their value; for one that hangs."""


def all_cells() -> list[Cell]:
    hits = [Hit(member, signal) for member in MEMBERS for signal in SIGNALS]
    victims = [
        *((hit,) for hit in hits),
        *(pair for pair in itertools.combinations(hits, 2) if pair[0].member != pair[1].member),
    ]
    return [
        Cell(state, chosen)
        for state in STATES
        for chosen in victims
        if not (state == "starting" and {"llm", "tool"} & {hit.member for hit in chosen})  # they are not there yet
    ]


def test_the_matrix_is_whole() -> None:
    cells = all_cells()
    assert len(set(cells)) == len(cells) == 6 * (18 + 15 * 9) + (12 + 6 * 9)


@pytest.mark.timeout(3 * 3600)
def test_nothing_is_alive_and_who_lives_says_why(samples: Samples, root: Path) -> None:
    cells = all_cells()
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**6))
    chosen = sorted(random.Random(seed).sample(cells, samples(quick=4, ci=60, exhaustive=len(cells))))
    print(f"{SEED_VARIABLE}={seed}", *chosen, sep="\n")
    failures = [words for cell, output in tried(chosen, root) if (words := verdict(cell, output))]
    assert not failures, "\n".join([f"{SEED_VARIABLE}={seed}, {len(chosen)} cells", *failures])


def tried(cells: list[Cell], root: Path) -> list[tuple[Cell, str]]:
    """What each cell said, SIDE_BY_SIDE at a time."""
    said: list[tuple[Cell, str]] = []
    running: deque[tuple[Cell, subprocess.Popen[str]]] = deque()
    for cell in cells:
        if len(running) == SIDE_BY_SIDE:
            said.append(ended(*running.popleft()))
        running.append((cell, started(cell, root)))
    return [*said, *(ended(*one) for one in running)]


def command(cell: Cell) -> list[str]:
    return [sys.executable, "-m", "support.kill_cell", *str(cell).split()]


def started(cell: Cell, root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(cell),
        env={**os.environ, "PYTHONPATH": str(root / "tests")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(cell: Cell, process: subprocess.Popen[str]) -> tuple[Cell, str]:
    try:
        output, _ = process.communicate(timeout=CELL_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return cell, output


def verdict(cell: Cell, output: str) -> str | None:
    """None: as expected. Else what came, and how to see it again."""
    again = f"  again: PYTHONPATH=tests .venv/bin/python {' '.join(command(cell)[1:])}"
    try:
        outcome = msgspec.json.decode(output.strip().rpartition("\n")[2], type=Outcome)
    except msgspec.DecodeError:
        return f"{cell}: {output}\n{again}"
    if outcome.said not in expected(cell):
        return f"{cell}: it said {outcome.said}, expected {sorted(map(str, expected(cell)))}\n{again}"
    if outcome.gone_s > bound_s(cell) * SLACK:
        return f"{cell}: alive {outcome.gone_s:.1f} s later\n{again}"
    return None
