"""`haltline demo`: a small real repository with a failing test is repaired by an agent, and the proof is shown.

Everything is real but the model: processes, requests, tools, tests. The repository's tests are run by this command
itself, before and after; nothing that the agent says is taken for it. Exit 0 only if every line of the receipt holds.

The repository lies in a temporary folder, which is removed on every way out but two: a receipt that does not hold
is evidence, and `--keep` asks for it. Both name the folder.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from types import FrameType
from typing import Final, NoReturn

import click
import msgspec

from haltline.cli import setting_up
from haltline.cli.demo_run import RunSeen, run_and_show
from haltline.cli.interrupts import Interrupted
from haltline.cli.lane import wait
from haltline.cli.outlet import Outlet
from haltline.cli.pieces import note
from haltline.gateway import demo as repository
from haltline.protocol import exits, linux
from haltline.protocol.errors import ConfigurationProblem

_TESTS_WITHIN_S: Final = 60.0
"""The repository's tests take a tenth of a second; a repair that made them hang has to end."""
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RepositoryTests(msgspec.Struct, frozen=True, kw_only=True):
    """What the repository's own tests said."""

    ran: int
    green: bool


class Check(msgspec.Struct, frozen=True):
    """One line of the receipt."""

    what: str
    figure: str
    holds: bool


def _demo(*, keep: bool) -> int:
    linux.become_subreaper()  # whatever a run left behind would come to us, and is counted
    for number in _STOPPING:
        signal.signal(number, _interrupt)
    outlet = setting_up.outlet()
    folder = _new_repository()
    kept = False
    try:
        code, kept = _repaired(folder, outlet, keep=keep)
        return code
    except Interrupted as interruption:
        kept = keep
        _say(outlet, f"stopped; the repository is {f'kept in {folder}' if keep else 'removed'}")
        return interruption.exit_code
    finally:
        if not kept:
            _remove(folder)


def _new_repository() -> str:
    folder = None
    try:
        folder = tempfile.mkdtemp(prefix="haltline-demo-")
        repository.copy_to(folder)
    except OSError as error:
        if folder is not None:
            _remove(folder)
        raise ConfigurationProblem(
            f"no room for the demo repository: {error}; set TMPDIR to a writable folder"
        ) from error
    except Interrupted:
        if folder is not None:
            _remove(folder)
        raise
    return folder


def _repaired(folder: str, outlet: Outlet, *, keep: bool) -> tuple[int, bool]:
    """The exit code, and whether the folder stays."""
    checks = _repair(folder, outlet)
    held = all(check.holds for check in checks)
    _flush(outlet)
    click.echo(receipt(checks))
    if not held:
        _say(outlet, f"the repository is kept in {folder}")
        return exits.BUG, True
    if not keep:
        _say(outlet, "the repository is removed; `haltline demo --keep` keeps one, to try approvals in")
        return exits.COMPLETED, False
    _remove(folder)
    repository.copy_to(folder)
    _say(
        outlet,
        f"the repository is in {folder}, with its test failing again; to be asked before each step:\n"
        f"  {shlex.join(['haltline', 'run', *_arguments(folder)])}",
    )
    return exits.COMPLETED, True


def _arguments(folder: str) -> list[str]:
    return ["-m", "demo/repair", "-C", folder, repository.PROMPT]


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


def _remove(folder: str) -> None:
    """A signal does not interrupt it: it takes milliseconds, and what it left nobody would remove."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        shutil.rmtree(folder)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _repair(folder: str, outlet: Outlet) -> list[Check]:
    before = run_tests(folder)
    outlet.put(
        (
            note(f"a repository with {before.ran} tests, {'all green' if before.green else 'not all green'}: {folder}"),
            note(shlex.join(["haltline", "run", "-y", *_arguments(folder)])),
        )
    )
    view = setting_up.view("text", os.environ)
    seen = run_and_show(["-y", *_arguments(folder)], view, outlet)
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


def _say(outlet: Outlet, words: str) -> None:
    outlet.put((note(words),))
    _flush(outlet)


def _flush(outlet: Outlet) -> None:
    while outlet.waiting:
        outlet.write(wait(None, reading=(), writing=outlet.waiting, timeout_s=None))


command = click.Command(
    "demo",
    params=[click.Option(["--keep"], is_flag=True, help="Keep the repository, and say how to run it again.")],
    callback=_demo,
    help="Repair a small repository on the embedded model server, and show what was proved. Needs no key, no network.",
)
