"""The instrument that stops many sessions at random and hurts their workers finds nothing left, and sees what there is
(G1, G2, L2)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Samples
from support import checkout
from support.breakages import Breakage
from support.client_stage import SESSION, Acting, staged
from support.command import COMMAND, Running, run

from haltline.cli.lane import Lane
from haltline.cli.soak_plan import Rates
from haltline.cli.soak_run import Soak
from haltline.protocol.client_messages import ClientHello, CloseSession, SessionClosed

WITHIN_S = 120


@pytest.mark.timeout(600)
def test_sessions_stopped_at_random_whose_workers_are_hurt_leave_nothing(samples: Samples) -> None:
    sessions, rounds = samples(6, 20, 50), samples(1, 3, 10)
    rate = str(samples(40, 25, 25))
    asked = ["--sessions", str(sessions), "--rounds", str(rounds), "--kill-workers", rate, "--stop-workers", rate]
    ended = run("soak", *asked, "--seed", "3", "--json", within_s=WITHIN_S * rounds)
    assert ended.exit_code == 0, ended.stdout
    report = json.loads(ended.stdout)
    missed = ("survivors", "open_streams", "stuck", "unexplained")
    assert [report[name] for name in missed] == [0, 0, 0, 0]
    assert [sum(one["results"].values()) for one in report["rounds"]] == [sessions] * rounds
    assert sum(one["killed"] for one in report["rounds"]) > 0
    assert sum(one["stopped"] for one in report["rounds"]) > 0


def test_the_end_of_the_last_session_is_heard_from_a_supervisor_that_has_ended_since(home: Path) -> None:
    """It ends with its last session, and its death may be seen before its last words: `in round 4 the supervisor
    ended`, of 3."""
    with staged(home) as stage:
        stage.bind()
        lane = Lane(stage.owned.endpoints, stage.owned.token)
        stage.hear(ClientHello)
        death = os.pidfd_open(stage.supervisor.pid)
        soak = Soak(
            lane, stage.signals_r, death,
            gateway_url="", ours=frozenset(), cwd="/", seed=1, rates=Rates(kill=0, stop=0), isolation="auto",
            version="0",
        )  # fmt: skip
        soak._sessions = [SESSION]
        stage.supervisor_dies()
        stage.supervisor.wait()
        closing = Acting(soak.close)
        stage.hear(CloseSession)
        stage.say(SessionClosed(session_id=SESSION))
        closing.result()
        lane.close()
        os.close(death)


BROKEN = Breakage(
    "soak",
    "the tool worker asks the tree to end, and never looks whether it does",
    "while delay is not None:\n            await self._death(delay)",
    "while False:\n            await self._death(0.0)",
    "MISSED: 6 sessions, 1 rounds",
)


@pytest.mark.ci
def test_a_tree_that_is_left_alive_is_an_objective_missed(tmp_path: Path) -> None:
    root = checkout.copy(tmp_path / "checkout")
    (root / ".venv").symlink_to(checkout.ROOT / ".venv")
    with BROKEN.applied(root):
        command = (sys.executable, "-B", "-I", "-S", str(root / "bin" / "start.py"))
        ended = Running(["soak", "--sessions", "6", "--rounds", "1"], command=command).end(WITHIN_S)
    last = ended.stdout.decode().splitlines()[-1]
    assert ended.exit_code == 99
    assert last.startswith(BROKEN.says)
    assert "survivors 0" not in last


def test_a_soak_that_is_stopped_leaves_nothing() -> None:
    """That no process is left is seen by the fixture of every test."""
    with subprocess.Popen(
        [*COMMAND, "soak", "--sessions", "4", "--rounds", "1000", "--stop-workers", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("round 1, ")
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 130


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kill-workers", "101"), "101 is not between 0 and 100"),
        (("--kill-workers", "60", "--stop-workers", "60"), "more than 100 % together"),
    ],
)
def test_rates_that_cannot_be_are_refused_in_words(arguments: tuple[str, ...], words: str) -> None:
    ended = run("soak", *arguments)
    assert (ended.exit_code, ended.stdout) == (2, b"")
    assert words in ended.stderr
