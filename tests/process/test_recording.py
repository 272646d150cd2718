"""What a client was shown is in the journal, whatever its supervisor was waiting for when it died (K2, P7)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.chain import members
from support.command import Event, Running

from haltline.supervisor.journal import Journal


def recorded(home: Path, session: str) -> dict[int, str]:
    journal = Journal.open(str(home / "state/journal.db"))
    rows = {row.seq: row.type for row in journal.rows(session)}
    journal.close()
    return rows


def is_delta(event: Event) -> bool:
    return event["type"] == "message" and bool(event["delta"])


@pytest.mark.parametrize(
    ("model", "last"),
    [("rate_limit", "retry"), ("tool_tree", "tool_start"), ("slow", "message")],
)
def test_what_was_shown_is_recorded_when_the_supervisor_dies(home: Path, model: str, last: str) -> None:
    running = Running(["run", "-m", f"demo/{model}", "-y", "--json", "hi"])
    running.until(last)
    os.kill(members(running)["supervisor"], signal.SIGKILL)
    ended = running.end()
    assert ended.result["reason"] == "worker_failed"
    shown = [event for event in ended.events[:-1] if not is_delta(event)]  # the last is the client's own
    rows = recorded(home, str(ended.events[0]["session_id"]))
    assert [(event["seq"], event["type"]) for event in shown if rows.get(int(str(event["seq"]))) != event["type"]] == []
