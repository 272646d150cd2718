"""`demo` as a real process: what it shows, that it notices a broken stop, what it leaves whichever way it ends."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import checkout
from support.breakages import Breakage
from support.command import COMMAND, Running, run
from support.demo_breakages import DEAF_TO_STOPS, HASTY, PATIENT, TREE_FORGOTTEN

from haltline.cli.own_command import as_typed

WITHIN_S = 30
"""A demo needs 8 s, of which it waits 4 s for what does not obey."""
STOPPED_BY = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 130)]


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the demo puts its folder; nothing else does."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def left(temp: Path) -> list[str]:
    return [path.name for path in temp.glob("haltline-demo-*")]


def start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "demo"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def until(process: subprocess.Popen[str], words: str) -> None:
    """Read stderr up to the line that has these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"it never said {words!r}")


def ended_by(process: subprocess.Popen[str], number: int, code: int, temp: Path) -> None:
    """Send the signal, and look at what is left. That no process is, is seen by the fixture of every test."""
    assert process.stderr is not None
    process.send_signal(number)
    said = process.stderr.read()
    assert process.wait(WITHIN_S) == code, said
    assert said.endswith("stopped; the repository is removed\n")
    assert left(temp) == []


def test_the_demo_repairs_and_stops_and_every_line_of_its_receipt_holds_and_a_kept_repository_can_be_repaired_again(
    temp: Path,
) -> None:
    ended = run("demo", "--keep", within_s=WITHIN_S)
    assert ended.exit_code == 0, ended.stderr
    lines = ended.stdout.decode().splitlines()
    receipt = lines[lines.index("receipt: 31/31 hold") + 1 :]
    assert [line for line in receipt if not line.startswith(" ")][:-2] == [
        "a repository, repaired",
        "a live stream, stopped",
        "a tree of processes that does not want to die, stopped",
        "a worker that does not answer, stopped",
    ]
    program, *arguments = shlex.split(ended.stderr.splitlines()[-1])
    (folder,) = left(temp)
    repository = temp / folder / "repository"
    assert (program, "-y" in arguments, str(repository) in arguments) == (as_typed(), False, True)
    again = run(*arguments, "-y", "--json")
    assert again.result["reason"] == "completed"
    assert "edit_file" in {event["name"] for event in again.of("tool_use")}, "there was something to mend"


@pytest.mark.ci
def test_a_demo_whose_receipt_holds_leaves_no_folder(temp: Path) -> None:
    ended = run("demo", within_s=WITHIN_S)
    assert ended.exit_code == 0, ended.stderr
    kept = f"`{as_typed()} demo --keep` keeps one, to try approvals in"
    assert ended.stderr.endswith(f"the repository is removed; {kept}\n")
    assert left(temp) == []


@pytest.mark.parametrize(("number", "code"), STOPPED_BY)
def test_a_demo_that_is_stopped_during_the_repair_leaves_nothing(temp: Path, number: int, code: int) -> None:
    with start() as process:
        until(process, "a repository with")
        assert len(left(temp)) == 1
        ended_by(process, number, code, temp)


@pytest.mark.ci
@pytest.mark.parametrize("words", ["-m tool_tree", "c1 shell sleep 600"], ids=["as a run begins", "over a tree"])
def test_a_demo_that_is_stopped_during_its_stops_leaves_nothing(temp: Path, words: str) -> None:
    with start() as process:
        until(process, words)
        ended_by(process, signal.SIGINT, 130, temp)


def test_a_demo_that_nobody_reads_leaves_no_folder_and_no_words(temp: Path) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    ended = subprocess.run(
        [*COMMAND, "demo"],
        stdin=subprocess.DEVNULL,
        stdout=write_fd,
        stderr=subprocess.PIPE,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    os.close(write_fd)
    assert (ended.returncode, "bug" in ended.stderr) == (130, False), ended.stderr
    assert left(temp) == []


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param((DEAF_TO_STOPS, TREE_FORGOTTEN), marks=pytest.mark.ci),  # no line of one is a line of the other
        pytest.param((PATIENT,), marks=pytest.mark.exhaustive),
        pytest.param((HASTY,), marks=pytest.mark.exhaustive),
    ],
    ids=lambda broken: " and ".join(one.what for one in broken),
)
def test_a_stop_that_is_broken_does_not_hold(
    temp: Path, tmp_path_factory: pytest.TempPathFactory, broken: tuple[Breakage, ...]
) -> None:
    root = checkout.copy(tmp_path_factory.mktemp("broken") / "checkout")
    (root / ".venv").symlink_to(checkout.ROOT / ".venv")
    with ExitStack() as breaking:
        for one in broken:
            breaking.enter_context(one.applied(root))
        command = (sys.executable, "-B", "-I", "-S", str(root / "bin" / "start.py"))
        ended = Running(["demo"], command=command).end(2 * WITHIN_S)
    (folder,) = left(temp)
    assert ended.stderr.endswith(f"the repository and the server's log are kept in {temp / folder}\n")
    assert ended.exit_code == 1
    assert {(one.check, one.says) for one in broken} <= set(failing(ended.stdout.decode()))


def failing(stdout: str) -> Iterator[tuple[str, str]]:
    """Part and words of each line of the receipt that does not hold."""
    part = ""
    for line in stdout.partition("\nreceipt: ")[2].splitlines()[1:]:
        if not line.startswith(" "):
            part = line
        elif line.startswith("  FAIL  "):
            yield part, line.removeprefix("  FAIL  ").partition("  ")[0]
