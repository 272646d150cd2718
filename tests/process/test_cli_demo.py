"""`demo` as a real process: what it leaves on the disk, whichever way it ends."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from support.command import COMMAND, run

WITHIN_S = 30


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the demo puts its repository; nothing else does."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def left(temp: Path) -> list[str]:
    return [path.name for path in temp.glob("haltline-demo-*")]


def test_the_demo_repairs_a_repository_and_every_line_of_its_receipt_holds(temp: Path) -> None:
    ended = run("demo")
    assert ended.exit_code == 0, ended.stderr
    assert b"receipt: 7/7 hold" in ended.stdout
    assert ended.stderr.endswith("the repository is removed; `haltline demo --keep` keeps one, to try approvals in\n")
    assert left(temp) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 130)])
def test_a_demo_that_is_stopped_says_so_and_leaves_no_folder(temp: Path, number: int, code: int) -> None:
    process = subprocess.Popen(
        [*COMMAND, "demo"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        assert "a repository with" in process.stderr.readline()
        assert len(left(temp)) == 1
        process.send_signal(number)
        assert process.wait(WITHIN_S) == code
        assert process.stderr.read().endswith("stopped; the repository is removed\n")
    assert left(temp) == []


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


def test_a_kept_repository_can_be_repaired_again_by_the_line_that_is_printed(temp: Path) -> None:
    ended = run("demo", "--keep")
    assert ended.exit_code == 0, ended.stderr
    said = ended.stderr.splitlines()[-1]
    program, *arguments = shlex.split(said)
    (folder,) = left(temp)
    assert (program, "-y" in arguments, str(temp / folder) in arguments) == ("haltline", False, True)
    again = run(*arguments, "-y", "--json")
    assert again.result["reason"] == "completed"
    assert "edit_file" in {event["name"] for event in again.of("tool_use")}, "there was something to mend"
