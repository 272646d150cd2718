"""Where an API key is and where it is not, while a session with one is running (J4)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support import scripted_gateway
from support.chain import MEMBERS, members
from support.command import WITHIN_S, Running
from support.isolations import ISOLATIONS

from haltline.protocol.kinds import Isolation

KEY = "key-that-nobody-else-may-have-7f3a"


def holds_key(pid: int) -> bool:
    """Whether the kernel shows the key in the environment of this process of ours, which is closed to its own user:
    only root may look, and not in every container."""
    try:
        block = Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        return False
    assert os.geteuid() == 0, f"the memory of process {pid} is open to others of its user"
    return KEY.encode() in block


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "MY_OWN_API_KEY"])
def test_a_key_is_in_no_block_file_or_tool_of_ours_and_reaches_the_server(
    home: Path, tmp_path: Path, variable: str
) -> None:
    """Also where the user's configuration names the variable."""
    (home / "config.toml").write_text(f"key_variable = '{variable}'\n")
    with scripted_gateway.running(tmp_path) as gateway:
        running = Running(
            ["run", "-m", "slow", "--base-url", gateway.url, "-y", "--json", "-C", str(tmp_path), "hi"],
            extra={variable: KEY},
        )
        running.until(lambda event: event["type"] == "message" and bool(event["delta"]))
        pids = members(running)
        holders = [member for member in MEMBERS[1:] if holds_key(pids[member])]  # the client has it from its user
        running.process.send_signal(signal.SIGINT)
        ended = running.end()
        sent = [line.headers.get("authorization") for line in gateway.log() if line.headers is not None]
    assert holders == []
    assert KEY.encode() not in ended.stdout
    assert KEY not in ended.stderr
    for folder, _names, files in os.walk(home):
        for name in files:
            assert KEY.encode() not in (Path(folder) / name).read_bytes(), name
    assert sent == ["present"]  # the gateway's log hides keys too


def environment_of(pid: int) -> bytes:
    """A tool is its user's own, and open to it. Empty for the moment in which it executes its program."""
    deadline = time.monotonic() + WITHIN_S
    while not (block := Path(f"/proc/{pid}/environ").read_bytes()) and time.monotonic() < deadline:
        os.sched_yield()
    return block


@pytest.mark.parametrize(
    ("variable", "isolation"),
    [
        ("OPENAI_API_KEY", ISOLATIONS[-1]),
        ("MY_OWN_API_KEY", ISOLATIONS[-1]),
        pytest.param("OPENAI_API_KEY", "subreaper", marks=pytest.mark.ci),
        pytest.param("OPENAI_API_KEY", "groups", marks=pytest.mark.ci),
    ],
)
def test_a_tool_does_not_see_the_key(tmp_path: Path, variable: str, isolation: Isolation) -> None:
    options = ("-m", "demo/tool_tree", "-y", "--json", "--isolation", isolation, "-C", str(tmp_path))
    running = Running(["run", *options, "hi"], extra={variable: KEY})
    pid = int(str(running.until("tool_start")["pid"]))
    block = environment_of(pid)
    running.process.send_signal(signal.SIGINT)
    running.end()
    assert KEY.encode() not in block
    assert b"PATH=" in block
