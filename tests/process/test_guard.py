"""A guard that is stopped, or hangs: everybody else ends all the same, and so does it (G1, G2)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import pytest
from support.chain import members, seconds_until_gone
from support.command import Running

from haltline.protocol import times

SLACK = 3


@pytest.mark.parametrize("then", ["ctrl_c", "client", pytest.param("supervisor", marks=pytest.mark.ci)])
def test_a_stopped_guard_hinders_nobody_and_is_gone_with_the_rest(
    then: Literal["ctrl_c", "client", "supervisor"],
) -> None:
    """Woken by whoever leaves it something to do."""
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--json", "hi"])
    running.until("tool_start")
    pids = members(running)
    os.kill(pids["guard"], signal.SIGSTOP)
    began = time.monotonic()
    if then == "ctrl_c":
        running.process.send_signal(signal.SIGINT)
    else:
        os.kill(pids[then], signal.SIGKILL)
    # The supervisor that lost its client gives the tree its grace, and then leaves.
    seconds_until_gone(began, times.DEATH_S * SLACK)
    assert running.end().exit_code == {"ctrl_c": 130, "client": -signal.SIGKILL, "supervisor": 79}[then]


def test_a_stopped_supervisor_is_woken_for_the_end_of_its_client() -> None:
    """G2, F10: nobody is left who could continue it, and a tool's tree would live for as long as the guard waits."""
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--json", "hi"])
    running.until("tool_start")
    pids = members(running)
    os.kill(pids["supervisor"], signal.SIGSTOP)
    began = time.monotonic()
    os.kill(pids["client"], signal.SIGKILL)
    seconds_until_gone(began, times.DEATH_S * SLACK)
    running.end()


def test_guard_and_supervisor_shot_at_once_leave_no_folder(tmp_path: Path) -> None:
    """G2: nobody but the client is left who could remove it."""
    running = Running(["run", "-m", "demo/slow", "--json", "hi"], extra={"HALTLINE_HOME": str(tmp_path / "h")})
    running.until("message")
    pids = members(running)
    runtime = tmp_path / "h" / "run"
    before = os.listdir(runtime)
    for member in ("guard", "supervisor"):
        os.kill(pids[member], signal.SIGKILL)
    assert running.end().exit_code == 79
    assert (len(before), os.listdir(runtime)) == (1, [])


def test_the_work_of_a_guard_that_does_not_go_is_done_by_the_client(tmp_path: Path) -> None:
    """Whatever it hangs in: it is ended with all that is below it, and its folder is gone."""
    folder = tmp_path / "run"
    folder.mkdir()
    program = """
import os, signal, subprocess, sys
from haltline.cli.owned import Owned
from haltline.protocol import linux
from haltline.supervisor import chain
made = chain.Chain(sys.argv[1], log_kept=sys.argv[1] + ".log")
ready_r, ready_w = os.pipe()

def hang():
    os.setsid()
    linux.become_subreaper()
    subprocess.Popen(["sh", "-c", "(setsid sleep 25 &) ; trap '' TERM; sleep 26"])
    os.write(ready_w, b".")
    while True:
        signal.pause()

guard_pid = chain.fork(hang)
os.read(ready_r, 1)
bystander = subprocess.Popen(["sleep", "27"])
owned = Owned(chain=made, guard_pid=guard_pid, signals_fd=ready_r)
assert owned.wait_for_guard(0.05) is False
assert owned.stand_in_for_guard() is True
assert owned.wait_for_guard(5.0) is True
assert bystander.poll() is None
bystander.kill()
"""
    (folder / "log").write_text("last words\n")
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=30)
    assert (folder.exists(), Path(f"{folder}.log").read_text()) == (False, "last words\n")
