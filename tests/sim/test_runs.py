"""Whole runs of many seeds hold every invariant of sim/facts.py; and each known way to break the product breaks one.

Issue: cancellation that survives anything. A seed that fails is printed with the command that replays it.
"""

import contextlib
import io
import os

import pytest
from conftest import Samples

from sim.breakages import BREAKAGES
from sim.command import run_all, words
from sim.plan import Plan, SessionPlan, plain_settings
from sim.sockets import Weather
from sim.world import run, run_plan

SEEDS_TO_CATCH = 1_000
"""Within so many each breakage is noticed; most are within ten."""
HANGS_S = 7_200
"""More than the largest sample takes: a step that never returns is the one fault that no event follows."""


@pytest.mark.timeout(HANGS_S)
def test_seeded_runs_hold_every_invariant(samples: Samples) -> None:
    """F1 to F10, G2, K1, K2, L2 to L6, I4, C1, P1 to P7; R12, R74, R77, R78, R83."""
    count = samples(quick=150, ci=5_000, exhaustive=200_000)
    jobs = 1 if count < 1_000 else os.cpu_count() or 1
    failed = [words(ran) for ran in run_all(range(count), jobs) if ran.problem is not None]
    assert not failed, f"{len(failed)} of {count} seeds fail:\n" + "\n".join(failed[:5])


def test_a_seed_decides_everything() -> None:
    def replayed(seed: int) -> list[str]:
        said: list[str] = []
        run(seed, lambda at_s, who, what: said.append(f"{at_s:.9f} {who} {what}"))
        return said

    for seed in (3, 17):
        first = replayed(seed)
        assert len(first) > 50
        assert replayed(seed) == first


@pytest.mark.ci
@pytest.mark.timeout(HANGS_S)
@pytest.mark.parametrize("name", BREAKAGES)
def test_the_simulator_notices_a_product_that_is_broken(name: str) -> None:
    assert _noticed(name) is not None, f"{SEEDS_TO_CATCH} seeds notice nothing when {name}"


def test_the_simulator_notices_a_second_result_at_once() -> None:
    """The quick sample of the test above."""
    assert _noticed("a run ends twice") is not None


def _noticed(name: str) -> int | None:
    """The first seed that fails with the breakage, of which the product itself may complain on stderr."""
    with BREAKAGES[name](), contextlib.redirect_stderr(io.StringIO()):
        return next((seed for seed in range(SEEDS_TO_CATCH) if run(seed).problem is not None), None)


def test_a_session_that_its_journal_ended_while_it_opened_starts_no_worker() -> None:
    """The supervisor was stopped meanwhile, so that the first thing to be recorded is the gap; found by seed 170."""
    session = SessionPlan(
        index=0,
        seed=1,
        calm=False,
        settings=plain_settings(0),
        open_after_s=0.05,
        prompts=1,
        weather=Weather(),
        breaks_journal_after_s=0.04,
    )
    ran = run_plan(Plan(seed=0, sessions=(session,), supervisor_stops=((0.03, 5.0),)))
    assert ran.problem is None
