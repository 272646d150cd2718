"""How bin/haltline decides, on each start, whether the checkout is set up; with stand-ins for what it then becomes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support import checkout

EMPTY_PATH = {"PATH": ""}
"""With it a start can run no program by name: what still works uses builtins only, and so forks nothing."""


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A checkout that is set up; its Python and its bin/setup only say that they were started, and with what."""
    root = checkout.copy(tmp_path / "a checkout")
    say(root / "bin/setup", "setup")
    say(root / ".venv/bin/python", "python")
    (root / ".venv/ready-runtime").write_text(f"{root}/.venv\ndigest\n")
    for name in ("pyproject.toml", "constraints.txt"):
        os.utime(root / name, ns=(0, 0))
    return root


def say(program: Path, name: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@"\n')
    program.chmod(0o755)


def start(command: Path | str, *arguments: str, cwd: Path) -> list[str]:
    done = subprocess.run(
        [command, *arguments],
        cwd=cwd,
        env=EMPTY_PATH,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_start_when_set_up_becomes_python_at_once_with_the_arguments_as_they_are(ready: Path) -> None:
    assert start(ready / "bin/haltline", "run", "two words", "", "-", cwd=ready) == [
        "python", "-I", "-S", f"{ready}/bin/start.py", "run", "two words", "", "-",
    ]  # fmt: skip


def test_a_ctrl_c_waits_until_python_can_hear_it(ready: Path) -> None:
    """F7: where bin/setup found an `env` that can block it."""
    say(ready / "env", "env")
    (ready / ".venv/blocking-env").write_text(f"{ready}/env\n")
    assert start(ready / "bin/haltline", "ps", cwd=ready) == [
        "env", "--block-signal=INT", f"{ready}/.venv/bin/python", "-I", "-S", f"{ready}/bin/start.py", "ps",
    ]  # fmt: skip
    (ready / "env").unlink()  # gone since
    assert start(ready / "bin/haltline", "ps", cwd=ready)[0] == "python"


@pytest.mark.parametrize(
    ("cwd", "command"),
    [(".", "bin/haltline"), (".", "./bin/haltline"), ("bin", "./haltline"), ("docs/more", "../../bin/haltline")],
)
def test_a_start_by_a_relative_path_works_from_any_folder(ready: Path, cwd: str, command: str) -> None:
    (ready / cwd).mkdir(parents=True, exist_ok=True)
    words = start(command, cwd=ready / cwd)
    assert words[:3] == ["python", "-I", "-S"]
    assert Path(words[3]).resolve() == ready / "bin/start.py"
    assert words[3].startswith("/")


def test_a_link_to_the_folder_bin_or_to_the_checkout_leads_there(ready: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(ready / "bin")
    (tmp_path / "link").symlink_to(ready)
    for command in ("bin/haltline", "link/bin/haltline"):
        words = start(tmp_path / command, cwd=Path("/"))
        assert Path(words[3]).resolve() == ready / "bin/start.py"


def test_links_to_the_command_are_followed(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EMPTY_PATH, "PATH", os.defpath)  # a link is read by a program
    (tmp_path / "one").symlink_to(ready / "bin/haltline")
    (tmp_path / "two").symlink_to("one")
    assert start(tmp_path / "two", "ps", cwd=Path("/"))[1:] == ["-I", "-S", f"{ready}/bin/start.py", "ps"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_newer_input_leads_to_the_set_up(ready: Path, name: str) -> None:
    stamp = (ready / ".venv/ready-runtime").stat()
    os.utime(ready / name, ns=(stamp.st_mtime_ns + 1, stamp.st_mtime_ns + 1))
    assert start(ready / "bin/haltline", "ps", cwd=ready) == [
        "setup", "runtime", "-I", "-S", f"{ready}/bin/start.py", "ps",
    ]  # fmt: skip


@pytest.mark.parametrize("missing", [".venv/ready-runtime", ".venv/bin/python"])
def test_a_set_up_that_is_not_whole_is_made_again(ready: Path, missing: str) -> None:
    (ready / missing).unlink()
    assert start(ready / "bin/haltline", cwd=ready)[:2] == ["setup", "runtime"]


def test_a_checkout_that_was_moved_is_set_up_again(ready: Path, tmp_path: Path) -> None:
    moved = ready.rename(tmp_path / "moved")
    assert start(moved / "bin/haltline", cwd=moved)[:2] == ["setup", "runtime"]


def test_a_python_that_was_removed_from_the_machine_leads_to_the_set_up(ready: Path) -> None:
    (ready / ".venv/bin/python").unlink()
    (ready / ".venv/bin/python").symlink_to("/nonexistent/python3.11")
    assert start(ready / "bin/haltline", cwd=ready)[:2] == ["setup", "runtime"]
