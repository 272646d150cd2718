"""A checkout sets itself up: from nothing, twice at once, interrupted anywhere; or says in one line what is missing."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import checkout

CONFIGURATION = 78
WITHIN_S = 170.0
"""A set-up takes 5 to 20 s; pip's own patience with a slow index is longer."""

pytestmark = pytest.mark.timeout(180)

NOBODY = 65534


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: str
    stderr: str


class Start:
    """One `bin/haltline --version`, running. `stderr` grows as lines come."""

    def __init__(self, root: Path, environment: Mapping[str, str], *, user: int | None = None) -> None:
        self.process = subprocess.Popen(
            [root / "bin/haltline", "--version"],
            cwd="/",
            env=dict(environment),
            user=user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.stderr = ""

    def until(self, words: str) -> None:
        """Reads until the words were said."""
        assert self.process.stderr is not None
        deadline = time.monotonic() + WITHIN_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while words not in self.stderr:
                assert selector.select(deadline - time.monotonic()), f"{words!r} never came: {self.stderr!r}"
                piece = os.read(self.process.stderr.fileno(), 65536)
                assert piece, f"ended before {words!r}: {self.stderr!r}"
                self.stderr += piece.decode()

    def end(self) -> Ended:
        stdout, stderr = self.process.communicate(timeout=WITHIN_S)
        return Ended(self.process.returncode, stdout.decode(), self.stderr + stderr.decode())


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return checkout.copy(tmp_path / "a fresh clone")


@pytest.fixture
def online(environment_before: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the package index is reached."""
    return {name: value for name, value in environment_before.items() if not name.startswith("HALTLINE_")}


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A loopback port on which nobody listens, held so that nobody can."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def stand_in(folder: Path, name: str, script: str) -> dict[str, str]:
    """A PATH that holds one program."""
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


def assert_one_line(ended: Ended, *words: str) -> None:
    """It failed as a matter of configuration, and the last line says all; before it only what was being done."""
    assert (ended.status, ended.stdout) == (CONFIGURATION, "")
    *progress, line = ended.stderr.splitlines()
    assert all(one.startswith("setting up: ") for one in progress)
    for word in words:
        assert word in line
    assert "Traceback" not in ended.stderr


def test_without_a_python_it_says_which_one_is_needed(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = Start(clone, {"PATH": str(tmp_path / "empty")}).end()
    assert_one_line(ended, "Python 3.11 or newer", "found: none")


def test_an_old_python_is_named_with_its_version(clone: Path, tmp_path: Path) -> None:
    ended = Start(clone, stand_in(tmp_path / "old", "python3", "echo 3.9.2; exit 3")).end()
    assert_one_line(ended, "Python 3.11 or newer", f"{tmp_path}/old/python3 is 3.9.2")


def test_a_python_without_venv_is_told_how_to_get_it(clone: Path, tmp_path: Path) -> None:
    ended = Start(clone, stand_in(tmp_path / "bare", "python3", "echo 3.11.2; exit 4")).end()
    assert_one_line(ended, "venv", f"{tmp_path}/bare/python3", "apt install python3-venv")


def test_a_checkout_that_cannot_be_written_to_is_named(clone: Path, online: dict[str, str]) -> None:
    clone.chmod(0o555)
    # To root nothing is read-only, so it lends the part to somebody else, who has to get there.
    user = NOBODY if os.getuid() == 0 else None
    if user:
        for folder in clone.parents:
            if folder == Path(tempfile.gettempdir()):
                break
            folder.chmod(folder.stat().st_mode | 0o011)
    ended = Start(clone, {**online, "PATH": os.defpath}, user=user).end()
    clone.chmod(0o755)
    assert_one_line(ended, str(clone), "cannot be written to")


def test_a_venv_of_somebody_else_is_left_alone(clone: Path, online: dict[str, str]) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv/pyvenv.cfg").write_text("mine\n")
    assert_one_line(Start(clone, online).end(), f"{clone}/.venv is in the way")
    assert (clone / ".venv/pyvenv.cfg").read_text() == "mine\n"


def test_a_link_to_the_venv_of_another_checkout_is_left_alone(
    clone: Path, tmp_path: Path, online: dict[str, str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "ready-runtime").write_text("made there")
    (clone / ".venv").symlink_to(other)
    assert_one_line(Start(clone, online).end(), f"{clone}/.venv is in the way")
    assert (other / "ready-runtime").read_text() == "made there"


def test_without_a_package_index_it_says_so_and_the_next_start_tries_again(
    clone: Path, online: dict[str, str], closed_port: int
) -> None:
    offline = {
        **{name: value for name, value in online.items() if not name.startswith("PIP_")},
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": f"http://somebody:secret@127.0.0.1:{closed_port}/simple",
        "PIP_RETRIES": "0",
        "PIP_NO_CACHE_DIR": "1",
    }
    ended = Start(clone, offline).end()
    assert_one_line(ended, "pyzmq", "is the package index reachable?", "PIP_INDEX_URL")
    assert "secret" not in ended.stderr
    again = Start(clone, {**offline, "PIP_NO_INDEX": "1"}).end()
    assert_one_line(again, "pyzmq", "PIP_NO_INDEX")
    assert "removing what is left of an earlier .venv" in again.stderr


@pytest.mark.ci
def test_from_nothing_it_runs_the_command_and_is_silent_from_then_on(clone: Path, online: dict[str, str]) -> None:
    first = Start(clone, online).end()
    assert (first.status, first.stdout) == (0, "haltline 0.1.0\n")
    assert first.stderr.startswith("setting up: creating .venv (once, about 20 s)\n")
    assert Start(clone, online).end() == Ended(0, "haltline 0.1.0\n", "")


@pytest.mark.ci
def test_a_clone_that_was_moved_and_one_with_other_times_are_set_right(
    clone: Path, online: dict[str, str], tmp_path: Path
) -> None:
    Start(clone, online).end()
    os.utime(clone / "pyproject.toml")
    assert Start(clone, online).end() == Ended(0, "haltline 0.1.0\n", "")
    moved = clone.rename(tmp_path / "moved")
    ended = Start(moved, online).end()
    assert (ended.status, ended.stdout) == (0, "haltline 0.1.0\n")
    assert "creating .venv" in ended.stderr


@pytest.mark.ci
def test_two_starts_at_once_make_one_set_up(clone: Path, online: dict[str, str]) -> None:
    one, two = Start(clone, online), Start(clone, online)
    ends = [one.end(), two.end()]
    assert [(end.status, end.stdout) for end in ends] == [(0, "haltline 0.1.0\n")] * 2
    said = ends[0].stderr + ends[1].stderr
    assert said.count("creating .venv") == 1
    assert said.count("another set-up of this checkout is running; waiting for it") == 1


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("words", ["creating .venv", "installing pyzmq"])
def test_a_set_up_that_was_interrupted_is_made_anew(
    clone: Path, online: dict[str, str], words: str, number: signal.Signals
) -> None:
    interrupted = Start(clone, online)
    interrupted.until(words)
    interrupted.process.send_signal(number)
    ended = interrupted.end()
    expected = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
    assert (ended.status, ended.stdout) == (expected[number], "")
    assert "Traceback" not in ended.stderr
    again = Start(clone, online).end()
    assert (again.status, again.stdout) == (0, "haltline 0.1.0\n")
    assert "removing what is left of an earlier .venv" in again.stderr
