"""`haltline demo`: a small real repository with a failing test is repaired by an agent, and the proof is shown.

Everything is real but the model: processes, requests, tools, tests. The repository's tests are run by this command
itself, before and after; nothing that the agent says is taken for it. Exit 0 only if every line of the receipt holds.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Final

import click
import msgspec

from haltline.cli import setting_up
from haltline.cli.demo_run import RunSeen, run_and_show
from haltline.cli.lane import wait
from haltline.cli.outlet import Outlet
from haltline.cli.pieces import note
from haltline.gateway import demo as repository
from haltline.protocol import exits, linux
from haltline.protocol.errors import ConfigurationProblem

_TESTS_WITHIN_S: Final = 60.0
"""The repository's tests take a tenth of a second; a repair that made them hang has to end."""


class RepositoryTests(msgspec.Struct, frozen=True, kw_only=True):
    """What the repository's own tests said."""

    ran: int
    green: bool


class Check(msgspec.Struct, frozen=True):
    """One line of the receipt."""

    what: str
    figure: str
    holds: bool


def _demo() -> int:
    linux.become_subreaper()  # whatever a run left behind would come to us, and is counted
    outlet = setting_up.outlet()
    try:
        folder = tempfile.mkdtemp(prefix="haltline-demo-")
        repository.copy_to(folder)
    except OSError as error:
        raise ConfigurationProblem(
            f"no room for the demo repository: {error}; set TMPDIR to a writable folder"
        ) from error
    checks = _repair(folder, outlet)
    held = all(check.holds for check in checks)
    if held:
        shutil.rmtree(folder)
    else:
        outlet.put((note(f"the repository is kept in {folder}"),))
    _flush(outlet)
    click.echo(receipt(checks))
    return exits.COMPLETED if held else exits.BUG


def _repair(folder: str, outlet: Outlet) -> list[Check]:
    before = run_tests(folder)
    outlet.put(
        (
            note(f"a repository with {before.ran} tests, {'all green' if before.green else 'not all green'}: {folder}"),
            note(f'haltline run -m demo/repair -y -C {folder} "{repository.PROMPT}"'),
        )
    )
    view = setting_up.view("text", os.environ)
    seen = run_and_show(["-m", "demo/repair", "-y", "-C", folder, "--", repository.PROMPT], view, outlet)
    return repair_checks(before, seen, run_tests(folder))


def repair_checks(before: RepositoryTests, seen: RunSeen, after: RepositoryTests) -> list[Check]:
    result = seen.result
    return [
        Check("a test failed before", f"{before.ran} tests", before.ran > 0 and not before.green),
        Check(
            "the agent completed",
            f"exit {seen.exit_code}" if result is None else f"{result.reason}, exit {seen.exit_code}",
            result is not None and result.reason == "completed" and seen.exit_code == exits.COMPLETED,
        ),
        Check("turns", "-" if result is None else str(result.turns), result is not None and result.turns > 0),
        Check(
            "tool runs", "-" if result is None else str(result.tool_runs), result is not None and result.tool_runs > 0
        ),
        Check("seconds", f"{seen.seconds:.1f}", True),
        Check("all tests are green", f"{after.ran} tests", after.green and after.ran >= before.ran),
        Check("processes left", str(seen.left), seen.left == 0),
    ]


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


def receipt(checks: list[Check]) -> str:
    """The last thing that is printed: every figure, and whether it holds."""
    what = max(len(check.what) for check in checks)
    lines = [f"  {'ok  ' if check.holds else 'FAIL'}  {check.what:{what}}  {check.figure}" for check in checks]
    held = sum(check.holds for check in checks)
    return "\n".join([f"receipt: {held}/{len(checks)} hold", *lines])


def _flush(outlet: Outlet) -> None:
    while outlet.waiting:
        outlet.write(wait(None, reading=(), writing=outlet.waiting, timeout_s=None))


command = click.Command(
    "demo",
    callback=_demo,
    help="Repair a small repository on the embedded model server, and show what was proved. Needs no key, no network.",
)
