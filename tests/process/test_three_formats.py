"""One run in each wire format against a real HTTP server: a call, its result, an answer (D1, D6, D7)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.command import run
from support.played_server import Played, playing
from support.wire_readings import sample

from haltline.protocol.kinds import Api

DESCRIBED: Mapping[Api, tuple[str, str]] = {
    "chat": ("chat-tool-single", "chat-text-usage-last"),
    "responses": ("resp-tool", "resp-text"),
    "messages": ("msg-tool", "msg-text"),
}
"""The samples of both answers, by name."""


def bodies(api: Api) -> tuple[bytes, bytes]:
    """A call of read_file for `a.py`, then words."""
    calls, says = (sample(name)[0] for name in DESCRIBED[api])
    if api == "responses":
        for there, here in (
            (b'"name":"ls"', b'"name":"read_file"'),
            (b'\\"d\\":', b'\\"path\\":'),
            (b'\\".\\"', b'\\"a.py\\"'),
        ):
            calls = calls.replace(there, here)
    return calls, says


def expected(api: Api) -> tuple[str, dict[str, int]]:
    """The text of both answers, and the sum of their usages."""
    both = [sample(name)[1] for name in DESCRIBED[api]]
    text = "".join(one["text"] for one in both)
    return text, {part: sum(one["usage"][part] for one in both) for part in both[0]["usage"]}


def results(api: Api, body: Mapping[str, Any]) -> list[str]:
    """The texts of the tool results in a request."""
    match api:
        case "chat":
            return [message["content"] for message in body["messages"] if message["role"] == "tool"]
        case "responses":
            return [item["output"] for item in body["input"] if item["type"] == "function_call_output"]
        case "messages":
            blocks = [block for message in body["messages"] for block in message["content"]]
            return [block["content"] for block in blocks if block["type"] == "tool_result"]


def base_url(played: Played, api: Api) -> str:
    return played.address if api == "messages" else f"{played.address}/v1"


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_run_asks_calls_and_answers(api: Api, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('here')\n")
    with playing(*bodies(api)) as played:
        ended = run(
            *("run", "-m", "m-1", "--api", api, "--base-url", base_url(played, api), "-C", str(tmp_path)),
            *("--json", "look"),
        )
    assert ended.exit_code == 0, ended.stderr
    text, usage = expected(api)
    assert (ended.events[0]["api"], ended.text) == (api, text)
    assert ended.result["usage"] == usage | {"estimated": False}
    assert [(event["status"], event["ok"]) for event in ended.of("tool_result")] == [("done", True)]
    paths = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
    assert [asked.path for asked in played.asked] == [paths[api]] * 2
    first, second = (results(api, asked.body) for asked in played.asked)
    assert first == []
    assert len(second) == 1
    assert "print('here')" in second[0]


def test_a_providers_name_is_enough_and_the_key_goes_where_it_looks_for_it() -> None:
    """`anthropic/NAME` with ANTHROPIC_API_KEY; an OpenAI key beside it stays at home (J4)."""
    with playing(bodies("messages")[1]) as played:
        ended = run(
            *("run", "-m", "anthropic/claude-x", "hi"),
            extra={
                "ANTHROPIC_BASE_URL": played.address,
                "ANTHROPIC_API_KEY": "sk-ant-test",
                "OPENAI_API_KEY": "sk-other",
            },
        )
    assert (ended.exit_code, ended.stdout.decode().strip()) == (0, "Hello!"), ended.stderr
    (asked,) = played.asked
    assert (asked.path, asked.body["model"]) == ("/v1/messages", "claude-x")
    assert (asked.headers["x-api-key"], "authorization" in asked.headers) == ("sk-ant-test", False)
    assert "sk-other" not in str(asked)


THINKS = b"""\
data: {"type":"message_start","message":{"usage":{"input_tokens":1}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Look first."}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2lnbmVk"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"glob",
data: "input":{"pattern":"*"}}}

data: {"type":"content_block_stop","index":1}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}

data: {"type":"message_stop"}

"""


def test_signed_thinking_goes_back_with_its_call_through_all_processes(tmp_path: Path) -> None:
    """D7."""
    with playing(THINKS, bodies("messages")[1]) as played:
        ended = run(
            *("run", "-m", "m-1", "--api", "messages", "--base-url", played.address, "-C", str(tmp_path)),
            *("--json", "look"),
        )
    assert ended.exit_code == 0, ended.stderr
    (_, assistant, _) = played.asked[1].body["messages"]
    assert assistant["content"] == [
        {"type": "thinking", "thinking": "Look first.", "signature": "c2lnbmVk"},
        {"type": "tool_use", "id": "c1", "name": "glob", "input": {"pattern": "*"}},
    ]
