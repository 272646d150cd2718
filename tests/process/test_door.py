"""L4: a tool cannot talk to the supervisor, whatever it does to look like somebody else; a second terminal can."""

from __future__ import annotations

import itertools
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from support.asking_gateway import AskingGateway, asking
from support.command import COMMAND, Running
from support.isolations import ISOLATIONS

from haltline.protocol.client_messages import PsRow, Refused
from haltline.protocol.kinds import Isolation

KNOCKS = Path(__file__).resolve().parent.parent / "support" / "vices" / "knocks.py"
A_TOOL_MAY_NOT = "a tool of a session may not control sessions; use a terminal of your own"
NOT_VALID = [repr(Refused(words="this token is not valid (any more)"))]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What knocks.py found."""

    exit_code: int
    stdout: str
    stderr: str
    door: str
    after_death: list[str]
    clients: list[str]
    mailbox: list[str]


@pytest.fixture
def gateway() -> Iterator[AskingGateway]:
    with asking() as made:
        yield made


def knocking(home: Path, told: Path, mode: Literal["plain", "daemon"]) -> list[str]:
    return [sys.executable, "-B", str(KNOCKS), str(told), str(home / "run"), mode, *COMMAND, "ps", "--json"]


def read(told: Path) -> Told:
    return msgspec.json.decode(told.read_bytes(), type=Told)


QUICK = {("plain", ISOLATIONS[0]), ("daemon", ISOLATIONS[-1])}


@pytest.mark.parametrize(
    ("mode", "isolation"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.ci)
        for case in itertools.product(("plain", "daemon"), ISOLATIONS)
    ],
)
def test_a_tool_is_refused_where_a_second_terminal_is_served(
    gateway: AskingGateway, home: Path, tmp_path: Path, mode: Literal["plain", "daemon"], isolation: Isolation
) -> None:
    """`daemon`: with a session of its own and a parent that has ended. It is still below the tool worker, and in a
    namespace it is where the kernel says so to the door, in the door's numbers."""
    inside, outside = tmp_path / "inside.json", tmp_path / "outside.json"
    gateway.command = shlex.join(knocking(home, inside, mode))
    running = Running(
        [
            *("run", "-m", "any", "--base-url", gateway.base_url, "-y", "--json", "-C", str(tmp_path)),
            *("--isolation", isolation, "knock"),
        ]
    )
    result = running.until("tool_result")
    assert (result["status"], result["ok"]) == ("done", True), result
    assert read(inside) == Told(
        exit_code=77,
        stdout="[]\n",
        stderr=f"haltline ps: {A_TOOL_MAY_NOT}\n",
        door=f"refused: {A_TOOL_MAY_NOT}\n",
        after_death=["refuse"],
        clients=NOT_VALID,
        mailbox=[],
    )

    subprocess.run(knocking(home, outside, mode), check=True, timeout=30)
    served = read(outside)
    assert (served.exit_code, served.stderr, served.door) == (0, "", "a token")
    assert [row.role for row in msgspec.json.decode(served.stdout, type=list[PsRow])] == ["session", "llm", "tool"]
    assert (served.clients, served.mailbox) == (NOT_VALID, [])  # a made-up token is none for anybody

    gateway.go_on()
    ended = running.end()
    assert (ended.exit_code, ended.text) == (0, "done")


def test_a_tool_is_refused_by_the_supervisor_of_another_run_too(
    gateway: AskingGateway, home: Path, tmp_path: Path
) -> None:
    other = Running(["run", "-m", "demo/slow", "--json", "hi"])
    other.until("message")
    gateway.command = f"{shlex.join([*COMMAND, 'ps', '--json'])}; echo; echo code $?"
    running = Running(
        ["run", "-m", "any", "--base-url", gateway.base_url, "-y", "--json", "-C", str(tmp_path), "knock"],
        extra={"HALTLINE_HOME": str(home)},
    )
    text = str(running.until("tool_result")["text"])
    assert text.count(A_TOOL_MAY_NOT) == 2
    assert "[]" in text.splitlines()
    gateway.go_on()
    running.end()
    other.process.send_signal(signal.SIGINT)
    other.end()
