"""Bug reports whose inputs need a process of their own kind, each with the input of its report. Others stand beside
what they concern; the id of each report is in the docstring of its test."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support import real_inputs
from support.command import run
from support.real_inputs import says
from support.tool_worker import ToolWorker

from haltline.protocol.settings import ToolLimits

DELAYED_READER = """
import time
from haltline.worker.tool import child
read = child.Child._readable
delays = [0.5]
def late(self):
    time.sleep(delays.pop() if delays else 0)
    read(self)
child.Child._readable = late
"""
"""The first read of a pipe comes half a second late; the pipe is full by then."""

MEMORY_KIB = 200 * 1024
NOBODYS_GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
"""No credential helper of the person who runs the tests, and git's words in English."""


class AsksForAPassword(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="private"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class names it)
        """Nothing on stderr."""


@contextmanager
def private_server() -> Generator[str]:
    """Address of a server that asks everybody for a password."""
    with HTTPServer(("127.0.0.1", 0), AsksForAPassword) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_git_that_is_asked_for_a_password_fails_at_once(tmp_path: Path) -> None:
    """R07: `git ls-remote` against a loopback server that asks for a password. (`cat` and `read x`: test_tools.)"""
    with private_server() as address, ToolWorker(tmp_path, environment=NOBODYS_GIT) as worker:
        before = time.monotonic()
        outcome = worker.run("shell", command=f"git ls-remote {address}/private.git")
        assert time.monotonic() - before < 5
    assert (outcome.status, outcome.exit_code) == ("failed", 128)
    assert f"could not read Username for '{address}': terminal prompts disabled" in outcome.text


def test_the_last_two_mebibytes_arrive_though_the_reader_is_late(tmp_path: Path) -> None:
    """R15."""
    with ToolWorker(tmp_path, limits=ToolLimits(output_bytes=4_194_304), prelude=DELAYED_READER) as worker:
        outcome = worker.run("shell", command=r"head -c 2097152 /dev/zero | tr '\0' x")
    assert outcome.text == "x" * 2_097_152 + "\n[exit code 0]"


def test_a_command_that_says_nothing_ends_at_its_limit(tmp_path: Path) -> None:
    """R66: it prints nothing and never returns."""
    with ToolWorker(tmp_path) as worker:
        before = time.monotonic()
        outcome = worker.run("shell", command="exec sleep 25", timeout_s=0.5)
        assert time.monotonic() - before < 3 * 0.5 + 1
        assert worker.alive() == []
    assert (outcome.status, outcome.changed) == ("timed_out", "maybe")
    assert outcome.text.endswith("[stopped after 0.5 s]")


@pytest.mark.parametrize("flood", ["yes", r"head -c 500000000 /dev/zero | tr '\0' y"], ids=["yes", "one-line"])
def test_a_reported_flood_is_bounded(tmp_path: Path, flood: str) -> None:
    """R86: `yes`, and one line of 500 MB. There is no live view of a running tool beside the result."""
    with ToolWorker(tmp_path) as worker:
        outcome = worker.run("shell", command=flood, timeout_s=1.5)
        status = Path(f"/proc/{worker.pid}/status").read_text()
    assert outcome.status == "timed_out"
    assert "bytes not kept ...]" in outcome.text
    assert len(outcome.text) < 34_000
    assert int(status.partition("VmHWM:")[2].split()[0]) < MEMORY_KIB


def test_the_models_emoji_is_printed_in_a_c_locale() -> None:
    """R92: LC_ALL=C PYTHONUTF8=0, model text with an arrow and an emoji."""
    with real_inputs.serve() as mock:
        mock.script(says("grün → \U0001f333"))
        ended = run(
            *("run", "-m", "any-model", "--base-url", mock.base_url("chat"), "say something"),
            extra={"OPENAI_API_KEY": "any-key", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        )
    assert (ended.exit_code, ended.stdout.decode(), ended.stderr) == (0, "grün → \U0001f333\n", "")


def test_a_model_that_calls_the_same_for_ever_is_stopped(tmp_path: Path) -> None:
    """R58: at most five executions."""
    ended = run("run", "-m", "demo/loop_stubborn", "-y", "--json", "-C", str(tmp_path), "x")
    assert (ended.result["reason"], ended.exit_code) == ("loop", 54)
    assert int(str(ended.result["tool_runs"])) <= 5
