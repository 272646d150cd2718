"""The instrument that stops many sessions at random finds nothing left, and sees what there is."""

from __future__ import annotations

import json

from support.command import run


def test_sessions_stopped_at_random_leave_nothing() -> None:
    ended = run("soak", "--sessions", "6", "--rounds", "2", "--seed", "1", "--json", within_s=60)
    assert ended.exit_code == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["survivors"], report["open_streams"], report["stuck"]) == (0, 0, 0)
    assert [sum(one["results"].values()) for one in report["rounds"]] == [6, 6]
    assert sum(one["results"].get("cancelled", 0) for one in report["rounds"]) > 0
