"""A run is the same whatever wire format its server speaks: events, reason, exit code, counts.

`-m demo` with `--api` speaks that format to the embedded gateway, which refuses what the real providers refuse.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command import Ended, run
from support.scripted_gateway import APIS, Api

OTHERS: tuple[Api, ...] = tuple(api for api in APIS if api != "chat")

QUICK = ("thinking",)
"""A tool and reasoning in both directions: most of what the formats have of their own."""

CI = (
    "ok",
    "rate_limit",
    "quota",
    "truncated",
    "error_event",
    "overflow",
    "length",
    "length_toolcall",
    "bad_args",
    "loop",
    "empty",
    "refusal",
)


OF_ERROR = ("kind", "subkind", "phase", "provider_status", "retryable", "handling")
OF_RESULT = ("reason", "kind", "subkind", "text", "exit_code", "counters", "turns", "attempts", "tool_runs")


def told(scenario: str, api: Api, folder: Path) -> Ended:
    workspace = folder / api
    workspace.mkdir()
    return run(
        *("run", "-m", f"demo/{scenario}", "--api", api, "-y", "--json", "-C", str(workspace)),
        "go on",
    )


def outline(ended: Ended) -> list[tuple[object, ...]]:
    """What happened, without what differs from run to run: ids, times, pieces, tokens, the provider's words."""
    lines: list[tuple[object, ...]] = []
    for event in ended.events:
        match event["type"]:
            case "message" if not event["delta"]:
                lines.append(("message", event["role"], event["text"], event["partial"]))
            case "tool_use":
                lines.append(("tool_use", event["name"], event["arguments_raw"]))
            case "tool_result":
                lines.append(("tool_result", event["status"], event["text"]))
            case "error":
                lines.append(("error", *(event[name] for name in OF_ERROR)))
            case "retry":
                lines.append(("retry", event["attempt"], event["of"], event["kind"]))
            case "result":
                lines.append(("result", *(event[name] for name in OF_RESULT)))
            case _:
                pass
    return lines


@pytest.mark.parametrize("scenario", [*QUICK, *(pytest.param(name, marks=pytest.mark.ci) for name in CI)])
def test_a_scenario_has_one_outcome_in_all_formats(scenario: str, tmp_path: Path) -> None:
    chat, *others = [told(scenario, api, tmp_path) for api in ("chat", *OTHERS)]
    expected = outline(chat)
    assert expected[-1][0] == "result"
    for api, ended in zip(OTHERS, others, strict=True):
        assert outline(ended) == expected, api
        assert next(event for event in ended.events if event["type"] == "init")["api"] == api
