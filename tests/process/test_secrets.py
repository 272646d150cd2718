"""Where an API key is and where it is not, while a session with one is running (J4)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from support.chain import MEMBERS, members
from support.command import Running

KEY = "key-that-nobody-else-may-have-7f3a"


def environment_block(pid: int) -> bytes:
    """What the kernel shows of a process's environment; empty where we may not look."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:
        return b""


def test_a_key_is_in_no_block_file_or_tool_of_ours(home: Path, tmp_path: Path) -> None:
    running = Running(
        ["run", "-m", "demo/slow", "-y", "--json", "-C", str(tmp_path), "hi"], extra={"OPENAI_API_KEY": KEY}
    )
    running.until(lambda event: event["type"] == "message" and bool(event["delta"]))
    pids = members(running)
    for member in MEMBERS[1:]:  # the client has it from its user
        assert KEY.encode() not in environment_block(pids[member]), member
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert KEY.encode() not in ended.stdout
    assert KEY not in ended.stderr
    for folder, _names, files in os.walk(home):
        for name in files:
            assert KEY.encode() not in (Path(folder) / name).read_bytes(), name


def test_a_tool_does_not_see_the_key(tmp_path: Path) -> None:
    running = Running(
        ["run", "-m", "demo/tool_tree", "-y", "--json", "-C", str(tmp_path), "hi"], extra={"OPENAI_API_KEY": KEY}
    )
    pid = int(str(running.until("tool_start")["pid"]))
    assert KEY.encode() not in environment_block(pid)
    assert b"PATH=" in environment_block(pid)  # it has an environment, only not that
    running.process.send_signal(signal.SIGINT)
    running.end()
