"""What a run may touch without being asked: the workspace, links resolved (J1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.asking_gateway import asking
from support.command import run


@pytest.mark.parametrize(
    ("options", "status", "types"),
    [
        (["--approval-mode", "plan"], "denied", ["tool_use", "tool_result"]),
        (["--approval-mode", "auto-edit"], "denied", ["tool_use", "tool_result"]),
        (["-y"], "done", ["tool_use", "tool_start", "tool_result"]),
    ],
)
def test_a_link_that_leads_outside_is_read_only_where_everything_is_allowed(
    tmp_path: Path, options: list[str], status: str, types: list[str]
) -> None:
    """J1, J3: nobody can be asked here; the model is told, and the run goes on."""
    (tmp_path / "secret").write_text("hidden\n")
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "link").symlink_to("../secret")
    with asking() as gateway:
        gateway.path = "link"
        gateway.go_on()
        ended = run(
            *("run", "-m", "any", "--base-url", gateway.base_url, "-C", str(tmp_path / "room"), "--json", "hi"),
            *options,
            extra={"OPENAI_API_KEY": "any-key"},
        )
    (result,) = ended.of("tool_result")
    assert (result["status"], "hidden" in str(result["text"])) == (status, status == "done")
    assert [event["type"] for event in ended.events if str(event["type"]).startswith("tool")] == types
    assert (ended.text, ended.exit_code) == ("done", 0)
