"""`haltline selftest` as a user runs it: the same lines each time; for each broken mechanism, one that fails (M3)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import Samples
from support import checkout
from support.breakages import BREAKAGES, Breakage
from support.command import COMMAND

Ended = subprocess.CompletedProcess[str]

NAMES = (
    *("tool_error", "bad_args", "loop", "tool_timeout", "rate_limit", "truncated"),
    *("backoff", "keys", "cancel", "limits", "once"),
)

HOSTILE = {
    "HALTLINE_MODEL": "somebody-elses",
    "HALTLINE_INJECT": "unauthorized",
    "OPENAI_API_KEY": "sk-of-the-user",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
}
"""What the user has set for their own runs."""


def selftest(
    *arguments: str, command: tuple[str, ...] = COMMAND, extra: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Ended:
    return subprocess.run(
        [*command, "selftest", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=110,
        check=False,
        env={**os.environ, **(extra or {})},
        cwd=cwd,
    )


@pytest.fixture
def temp(home: Path) -> Path:
    """A temporary folder that is short enough for sockets, to see what is left in it."""
    folder = home / "t"
    folder.mkdir()
    return folder


@pytest.mark.timeout(240)
def test_eleven_checks_pass_with_the_same_lines_each_time(
    home: Path, temp: Path, tmp_path: Path, samples: Samples
) -> None:
    """Whatever the user has set, wherever they are, and without a trace in their folders."""
    (tmp_path / ".haltline.toml").write_text('model = "somebody-elses"\n[limits]\nturns = 1\n')
    extra = {**HOSTILE, "TMPDIR": str(temp)}
    runs = [selftest(cwd=tmp_path, extra=extra) for _ in range(samples(1, 2, 5))]
    lines = runs[0].stdout.splitlines()
    assert [(run.returncode, run.stderr, run.stdout) for run in runs] == [(0, "", runs[0].stdout)] * len(runs)
    assert lines[-1] == "11/11 passed"
    assert [tuple(line.split()[:2]) for line in lines[:-1]] == [("ok", name) for name in NAMES]
    assert list(temp.iterdir()) == []
    assert sorted(path.name for path in home.iterdir()) == ["t"]
    assert [path.name for path in tmp_path.iterdir()] == [".haltline.toml"]


def test_named_checks_are_made_alone_and_can_be_read_by_programs() -> None:
    ended = selftest("--json", "loop", "keys")
    assert (ended.returncode, ended.stderr, ended.stdout.count("\n")) == (0, "", 1)
    said = json.loads(ended.stdout)
    assert (said["v"], said["passed"], said["of"]) == (1, 2, 2)
    assert [(check["name"], check["passed"]) for check in said["checks"]] == [("loop", True), ("keys", True)]
    assert {"what": "runs", "expected": "2", "holds": True} in said["checks"][0]["findings"]


@pytest.mark.parametrize(
    ("number", "exit_code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 130)],
    ids=str,
)
def test_a_signal_ends_it_and_all_that_it_started(temp: Path, number: int, exit_code: int) -> None:
    """That no process is left is seen by the fixture of every test."""
    process = subprocess.Popen(
        [*COMMAND, "selftest", "keys", "cancel"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temp)},
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"ok  keys")
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (exit_code, b"", b"")
    assert list(temp.iterdir()) == []


def test_help_and_a_check_that_does_not_exist_name_the_eleven() -> None:
    ended = selftest("--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"Without CHECK all 11: {', '.join(NAMES)}." in " ".join(ended.stdout.split())
    ended = selftest("sleep")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "'sleep' is not one of 'tool_error'" in ended.stderr


def test_a_reader_that_leaves_ends_it(temp: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "selftest", "keys", "cancel"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temp)},
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, b"")
    assert list(temp.iterdir()) == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout to break, with the packages of this one."""
    root = checkout.copy(tmp_path_factory.mktemp("broken") / "checkout")
    (root / ".venv").symlink_to(checkout.ROOT / ".venv")
    return root


@pytest.mark.ci
@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda one: one.id)
def test_a_check_fails_when_its_mechanism_is_broken(copy: Path, temp: Path, breakage: Breakage) -> None:
    command = (sys.executable, "-B", "-I", "-S", str(copy / "bin" / "start.py"))
    with breakage.applied(copy):
        ended = selftest(breakage.check, command=command, extra={"TMPDIR": str(temp)})
    assert ended.stderr == f"haltline: the journal and the logs of the self-test are kept in {next(temp.iterdir())}\n"
    first, last = ended.stdout.splitlines()
    assert (ended.returncode, last) == (1, "0/1 passed")
    assert first.startswith(f"FAIL  {breakage.check}  ")
    assert breakage.says in first


def test_every_check_has_a_mechanism_to_break() -> None:
    assert {breakage.check for breakage in BREAKAGES} == set(NAMES)
    for breakage in BREAKAGES:
        breakage.place(checkout.ROOT)
