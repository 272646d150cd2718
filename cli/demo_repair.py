"""The demo's main job: a repository with a failing test, repaired by an agent, checked by us."""

import re
import subprocess
import sys
from typing import Final

import msgspec

from haltline.cli.demo_receipt import Check, fact
from haltline.cli.demo_run import RunSeen
from haltline.protocol import exits

_TESTS_WITHIN_S: Final = 60.0
"""The repository's tests take a tenth of a second; a repair that made them hang has to end."""


class RepositoryTests(msgspec.Struct, frozen=True, kw_only=True):
    """What the repository's own tests said."""

    ran: int
    green: bool


def repair_checks(before: RepositoryTests, seen: RunSeen, after: RepositoryTests) -> tuple[Check, ...]:
    result = seen.result
    turns, runs = (0, 0) if result is None else (result.turns, result.tool_runs)
    completed = result is not None and result.reason == "completed" and seen.exit_code == exits.COMPLETED
    return (
        fact("a test failed before", f"{before.ran} tests", before.ran > 0 and not before.green),
        fact("the agent completed", ended_as(seen), completed),
        fact("turns", turns, turns > 0),
        fact("tool runs", runs, runs > 0),
        fact("seconds", f"{seen.seconds:.1f}", True),
        fact("all tests are green", f"{after.ran} tests", after.green and after.ran >= before.ran),
        fact("processes left", seen.left, seen.left == 0),
    )


def ended_as(seen: RunSeen) -> str:
    return f"exit {seen.exit_code}" if seen.result is None else f"{seen.result.reason}, exit {seen.exit_code}"


def run_tests(folder: str) -> RepositoryTests:
    """Run the repository's tests in a process of our own."""
    try:
        ended = subprocess.run(
            [sys.executable, "-B", "-m", "unittest", "discover"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=_TESTS_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return RepositoryTests(ran=0, green=False)
    ran = re.search(r"^Ran (\d+) tests?", ended.stderr, re.MULTILINE)
    return RepositoryTests(ran=int(ran[1]) if ran else 0, green=ended.returncode == 0)
