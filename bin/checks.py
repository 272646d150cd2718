"""usage: bin/test [--ci | --all] [PYTEST ARGS]

Without PYTEST ARGS: ruff, mypy, basedpyright, then all tests (under 5 minutes on 2 cores).
  --ci     larger samples and the slow tests too (under 30 minutes)
  --all    the largest samples; no bound on time
With PYTEST ARGS (paths from the top of the checkout, -k, -x, ...) only pytest runs, with them.

After each step nothing that it started may be alive; what is found is named, ended, and counts as a failure.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support import survivors

TOOLS = ROOT / ".venv" / "bin"
SAMPLES = ("--ci", "--all")
SIDE_BY_SIDE = ("-n", "2", "--dist", "worksteal")
"""Two tests at a time, one for each core of the smallest machine: most of them wait most of their time."""


@dataclass(frozen=True)
class Step:
    """One check. Quiet ones show their output only when they fail."""

    name: str
    command: tuple[str, ...]
    quiet: bool = True


STATIC = (
    (Step("ruff check", ("ruff", "check")), Step("ruff format", ("ruff", "format", "--check"))),
    # The two slow ones side by side: each keeps one core busy.
    (Step("mypy", ("mypy",)), Step("basedpyright", ("basedpyright",))),
)


def main(arguments: list[str]) -> int:
    if arguments in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    os.chdir(ROOT)
    survivors.become_subreaper()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    if not os.isatty(0):
        _empty_standard_input()
    chosen = any(one not in SAMPLES for one in arguments)
    pytest = Step("pytest", ("pytest", *(() if chosen else SIDE_BY_SIDE), *arguments), quiet=False)
    groups = [(pytest,)] if chosen else [*STATIC, (pytest,)]
    failed: list[str] = []
    try:
        for group in groups:
            failed += _run(group)
    except KeyboardInterrupt:
        print("\nbin/test: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        survivors.end(_descendants)
    if failed:
        print(f"bin/test: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(group: tuple[Step, ...]) -> list[str]:
    """Runs the steps side by side; returns the names of those that failed."""
    began = time.monotonic()
    running = [
        (
            step,
            subprocess.Popen(
                [str(TOOLS / step.command[0]), *step.command[1:]],
                stdout=subprocess.PIPE if step.quiet else None,
                stderr=subprocess.STDOUT if step.quiet else None,
                text=True,
            ),
        )
        for step in group
    ]
    failed: list[str] = []
    for step, process in running:
        output, _ = process.communicate()
        ok = process.returncode == 0
        print(f"{'ok    ' if ok else 'FAILED'} {step.name} ({time.monotonic() - began:.1f} s)", flush=True)
        if not ok:
            failed.append(step.name)
            print(output or "", end="", flush=True)
    left = survivors.settle(_descendants())
    if left:
        names = " and ".join(step.name for step in group)
        print(f"FAILED {names} left processes alive (now ended):", *left, sep="\n  ", flush=True)
        survivors.end(_descendants)
        failed.append(f"processes left by {names}")
    return failed


def _descendants() -> list[survivors.Survivor]:
    return survivors.descendants(os.getpid())


def _end(number: int, _frame: object) -> NoReturn:
    """Unwinds, so that everything below is ended too."""
    sys.exit(128 + number)


def _empty_standard_input() -> None:
    """No test may depend on what somebody pipes in, or on a descriptor 0 that is closed."""
    empty = os.open(os.devnull, os.O_RDONLY)
    if empty != 0:
        os.dup2(empty, 0)
        os.close(empty)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
