"""What somebody at a second terminal types, and what is in the first one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
from support.command import Ended, Event, Running, run
from support.terminals import wait_until

from haltline.cli.receipts import Stopped
from haltline.protocol.client_messages import PsRow
from haltline.protocol.kinds import Rung

_rows = msgspec.json.Decoder(list[Stopped])
_listed = msgspec.json.Decoder(list[PsRow])


def is_delta(event: Event) -> bool:
    return (event["type"], event.get("role"), event.get("delta")) == ("message", "assistant", True)


def session_of(running: Running) -> str:
    return str(running.until("init")["session_id"])


def streaming(*options: str) -> Running:
    """A run that has shown its first text, which goes on for a minute."""
    running = Running(["run", "-m", "demo/slow", "--json", *options, "hi"])
    running.until(is_delta)
    return running


def planted() -> Running:
    """A run in the middle of a tool, which has started daemons that ignore SIGTERM."""
    running = Running(["run", "-m", "demo/tool_tree", "-y", "--json", "hi"])
    running.until("tool_start")
    return running


def rung_of_a_killed_tool_worker(running: Running) -> Rung:
    """A namespace takes all of its worker's tree along."""
    return "pidns" if running.until("init")["isolation"] == "pidns" else "worker_kill"


def ps(*options: str) -> list[PsRow]:
    return _listed.decode(run("ps", "--json", *options).stdout)


def receipts(ended: Ended) -> list[Stopped]:
    """Of a command with `--json`: whole, but for the times, which are 0 where there is one."""
    return [
        msgspec.structs.replace(
            row,
            stream_ms=None if row.stream_ms is None else 0.0,
            tools_ms=None if row.tools_ms is None else 0.0,
            total_ms=None if row.total_ms is None else 0.0,
        )
        for row in _rows.decode(ended.stdout)
    ]


def a_name_in(folder: Path) -> str:
    """The first file that is made there."""
    wait_until(lambda: any(folder.glob("*")))
    return next(folder.glob("*")).name


def supervisor_folder() -> Path:
    """The runtime folder of the only supervisor, once it is there; nobody may be in it yet."""
    run_folder = Path(os.environ["HALTLINE_HOME"]) / "run"
    return run_folder / a_name_in(run_folder)


def folder_of(running: Running) -> Path:
    """The runtime folder of its supervisor."""
    session_id = session_of(running)
    (found,) = Path(os.environ["HALTLINE_HOME"]).glob(f"run/*/sessions/{session_id}")
    return found.parent.parent


def crowd_the_door(folder: Path) -> list[socket.socket]:
    """As many waiting before a door as its kernel lets wait."""
    waiting: list[socket.socket] = []
    while True:
        knocking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        waiting.append(knocking)
        try:
            knocking.connect(str(folder / "door"))
        except BlockingIOError:
            return waiting
