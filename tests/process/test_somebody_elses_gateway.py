"""A gateway that is not ours, `llmock`, in its three formats: answers, calls, refusals and breaks have the events and
exit codes of the contract, and the mock finds nothing to hold against its client."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from support import real_inputs
from support.command import Ended, run
from support.real_inputs import Api, Mock, breaks, calls, fails, says
from xprocess import ProcessStarter, XProcess

APIS = pytest.mark.parametrize("api", ["chat", "responses", "messages"])
CHAT_FIRST = pytest.mark.parametrize(
    "api", ["chat", *(pytest.param(api, marks=pytest.mark.ci) for api in ("responses", "messages"))]
)

OPENING: Mapping[Api, int] = {"chat": 1, "responses": 4, "messages": 3}
"""Events that open a response of the mock."""


CI = pytest.mark.ci

OPENING_EVENTS: dict[Api, int] = {"chat": 1, "responses": 4, "messages": 3}
"""Before the first piece of text."""


PATHS: dict[Api, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/anthropic/v1/messages",
}


class Starter(ProcessStarter):
    pattern = "running on http://127"
    timeout = 60
    terminate_on_interrupt = True
    args: ClassVar[list[str]] = [
        str(real_inputs.CACHE / "llmock-venv/bin/llmock"),
        *("serve", "--host", "127.0.0.1", "--port", "0", "--log-level", "info"),
    ]


@pytest.fixture(scope="module")
def address(pytestconfig: pytest.Config, tmpdir_factory: pytest.TempdirFactory) -> Iterator[str]:
    """One mock for all tests here; its log lies outside the checkout."""
    with XProcess(pytestconfig, tmpdir_factory.mktemp("xprocess")) as processes:
        _pid, log = processes.ensure("llmock", Starter)
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", Path(log).read_text())
        assert found is not None
        yield found[1]
        vars(pytestconfig)["_extlogfiles"].clear()  # the plugin would go on reading the log that is closed here
        for resources in processes.resources:
            resources.info[0].terminate()
            resources.release()


@pytest.fixture
def mock(address: str) -> Mock:
    return Mock(address)


def ask(mock: Mock, api: Api, *options: str) -> Ended:
    return run(
        *("run", "-m", "any-model", "--api", api, "--base-url", mock.base_url(api), "-y", "--json", *options),
        *("--retry", "interactive", "say something"),
        extra={"OPENAI_API_KEY": "any-key", "ANTHROPIC_API_KEY": "any-key"},
    )


@CHAT_FIRST
def test_a_plain_answer(api: Api, mock: Mock) -> None:
    mock.script(says("two words"))
    ended = ask(mock, api)
    assert (ended.exit_code, ended.text, ended.result["attempts"]) == (0, "two words", 1)
    assert mock.requests()[-1].path.endswith(PATHS[api])


@APIS
def test_a_tool_call_and_its_result(api: Api, mock: Mock, tmp_path: Path) -> None:
    mock.script(calls("shell", command="echo made > file"), says("done"))
    ended = ask(mock, api, "-C", str(tmp_path))
    assert (ended.exit_code, ended.text) == (0, "done")
    assert [event["status"] for event in ended.of("tool_result")] == ["done"]
    assert (tmp_path / "file").read_text() == "made\n"


@CHAT_FIRST
def test_a_refusal_is_waited_out(api: Api, mock: Mock) -> None:
    mock.script(fails(429, retry_after_s=1), says("after the wait"))
    ended = ask(mock, api)
    assert (ended.exit_code, ended.text, ended.result["attempts"]) == (0, "after the wait", 2)
    (retry,) = ended.of("retry")
    assert (retry["attempt"], retry["of"], retry["kind"]) == (2, 3, "rate_limited")
    assert int(str(retry["wait_ms"])) >= 1000


@CHAT_FIRST
def test_a_cut_stream_is_surfaced_with_its_text(api: Api, mock: Mock) -> None:
    mock.script(says("one two three"), breaks("truncate", after=OPENING[api] + 2))
    ended = ask(mock, api)
    assert (ended.exit_code, ended.result["reason"], ended.result["kind"]) == (76, "failed", "stream_truncated")
    assert ended.result["text"] == ended.text != ""
    assert ended.result["attempts"] == 1


def test_the_mock_holds_no_impatience_against_its_client(mock: Mock) -> None:
    """Retry-after kept, nothing final tried again, over all tests above. (It would have a cut stream asked for again
    even after text; A6 says otherwise.)"""
    assert not {"retry_after_ignored", "retried_non_retryable", "no_backoff"} & set(mock.findings())
