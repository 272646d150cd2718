"""Beside other distributions in one place: those that have names of ours, and those that ours needs."""

from __future__ import annotations

import csv
import hashlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.packages import pip

HALTLINE = "haltline-*.dist-info"
SUPERVISOR = "supervisor-*.dist-info"


def files(target: Path, distribution: str) -> set[str]:
    """What a distribution has installed, by its own record."""
    (information,) = target.glob(distribution)
    with (information / "RECORD").open(newline="") as record:
        return {path for path, *_ in csv.reader(record)}


def contents(target: Path) -> dict[str, str]:
    return {
        str(path.relative_to(target)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in target.rglob("*")
        if path.is_file()
    }


def install(target: Path, what: str, root: Path, environment: Mapping[str, str]) -> None:
    options = ["--no-deps", "--no-compile", "--quiet", "--constraint", str(root / "constraints.txt")]
    pip("install", *options, "--target", str(target), what, environment=environment)


@pytest.mark.ci
@pytest.mark.parametrize("ours_first", [False, True])
def test_the_distribution_supervisor_and_ours_leave_each_other_alone(
    wheel: Path, root: Path, environment_before: Mapping[str, str], tmp_path: Path, ours_first: bool
) -> None:
    """Its package has the name of a room of ours. It comes from the package index, so with --ci alone."""
    target = tmp_path / "target"
    order = [str(wheel), "supervisor"] if ours_first else ["supervisor", str(wheel)]
    install(target, order[0], root, environment_before)
    before = contents(target)
    install(target, order[1], root, environment_before)
    after = contents(target)
    assert {name: after.get(name) for name in before} == before
    assert files(target, HALTLINE) & files(target, SUPERVISOR) == set()
    code = "import supervisor, haltline.supervisor as ours; print(supervisor.__file__); print(ours.__file__)"
    command = [sys.executable, "-S", "-c", code]
    alone = {"PYTHONPATH": str(target)}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=True)
    theirs, mine = map(Path, done.stdout.splitlines())
    assert theirs == target / "supervisor/__init__.py"
    assert mine == target / "haltline/supervisor/__init__.py"


@pytest.mark.ci
@pytest.mark.timeout(180)
def test_demo_runs_from_a_venv_into_which_only_the_wheel_was_installed(installed_whole: Path, tmp_path: Path) -> None:
    """As pipx and uv install a tool: an empty venv, the wheel, and what it asks for from the package index."""
    done = subprocess.run(
        [str(installed_whole / "haltline"), "demo"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "Mended:" in done.stdout
    assert list(tmp_path.iterdir()) == []
