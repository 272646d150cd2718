"""What `pip install .` brings is what stands in the checkout, and no file of the working directory gets in between."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import checkout

HOSTILE = ("dataclasses.py", "click.py", "msgspec.py", "worker.py", "protocol.py", "supervisor.py", "haltline.py")
"""Files that an agent may well meet in somebody's repository."""

WHERE = "import haltline.protocol.events as e, dataclasses as d; print(e.__file__); print(d.__file__)"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    for name in HOSTILE:
        (tmp_path / name).write_text("raise SystemExit('a file of the workspace was imported')\n")
    return tmp_path


def test_the_wheel_holds_every_file_of_the_rooms_and_no_other(source: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {f"haltline/{name}" for name in checkout.room_files(source)}


def test_the_installed_command_runs_in_an_empty_venv(installed: Path, tmp_path: Path) -> None:
    done = run([str(installed / "haltline"), "--help"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: haltline" in done.stdout


def test_files_of_the_working_directory_are_not_imported_by_the_installed_package(
    installed: Path, hostile: Path
) -> None:
    done = run([str(installed / "python"), "-I", "-c", WHERE], hostile)
    assert (done.returncode, done.stderr) == (0, "")
    ours, theirs = map(Path, done.stdout.splitlines())
    assert ours.is_relative_to(installed.parent)
    assert not theirs.is_relative_to(hostile)
    assert run([str(installed / "haltline"), "--version"], hostile).returncode == 0


def test_files_of_the_working_directory_are_not_imported_by_the_checkout(root: Path, hostile: Path) -> None:
    done = run([sys.executable, "-I", "-c", WHERE], hostile)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(done.stdout.splitlines()[0]) == root / "protocol/events.py"


def test_the_same_module_is_never_there_twice(root: Path) -> None:
    """The registration by the .pth runs again wherever `site` does; a second package object would split the types."""
    code = (
        "import sys, site; first = sys.modules['haltline']; import haltline.protocol.ids as one; site.main(); "
        "import haltline.protocol.ids as two; assert sys.modules['haltline'] is first and one is two"
    )
    done = run([sys.executable, "-I", "-c", code], root)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_room_has_its_link_for_the_type_checkers(root: Path) -> None:
    links = {path.name: path.resolve() for path in (root / ".types/haltline").iterdir()}
    assert links == {room: root / room for room in checkout.ROOMS}


def run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(cwd)} if "-I" in command else dict(os.environ)
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
