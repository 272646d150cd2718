"""The scripted gateway as a process of its own, and its log as it is written."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec

PATIENCE_S = 20.0
"""How long a test waits for something that must happen."""


class LogLine(msgspec.Struct, frozen=True):
    """A line of the log, as far as tests look at it."""

    event: str
    mono: float
    wall: str
    id: str
    connection: int
    session: str
    scenario: str
    n: int
    status: int | None = None
    headers: dict[str, str] | None = None
    body: object = None
    index: int | None = None
    text: str | None = None
    reason: str | None = None
    pieces: int | None = None

    @property
    def place(self) -> tuple[str, str, int]:
        return (self.event, self.session, self.n)


class State(msgspec.Struct, frozen=True):
    open_connections: int
    open_streams: int
    requests: int


class Gateway:
    def __init__(self, process: "subprocess.Popen[str]", url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self._log = log

    @property
    def chat_url(self) -> str:
        return f"{self.url}/chat/completions"

    def log(self) -> list[LogLine]:
        return [msgspec.json.decode(line, type=LogLine) for line in self._log.read_bytes().splitlines()]

    def wait_for(self, event: str, *, session: str, count: int = 1) -> LogLine:
        """The line of the count-th such event of a session, once it is there."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = [line for line in self.log() if (line.event, line.session) == (event, session)]
            if len(found) >= count:
                return found[count - 1]
            select.select((), (), (), 0.005)
        raise AssertionError(f"no {event} of {session} within {PATIENCE_S} s; the log has {self.log()}")

    def state(self) -> State:
        answer = httpx.get(f"{self.url.removesuffix('/v1')}/_haltline/state", trust_env=False)
        return msgspec.json.decode(answer.content, type=State)


def request(model: str, *, stream: bool = True, text: str = "Hello.", usage: bool = False) -> dict[str, object]:
    """A chat completions request of one user message."""
    body: dict[str, object] = {
        "model": model,
        "stream": stream,
        "messages": [{"role": "user", "content": text}],
    }
    if usage:
        body["stream_options"] = {"include_usage": True}
    return body


def events(body: str) -> list[object]:
    """The data of a stream's events, `[DONE]` as it is."""
    data = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    return [item if item == "[DONE]" else json.loads(item) for item in data]


@contextmanager
def running(folder: Path, *, scenario: str | None = None) -> Iterator[Gateway]:
    """A gateway on a free port, ended by SIGTERM; fails if it does not end well."""
    log = folder / "gateway.jsonl"
    command = [sys.executable, "-I", "-m", "haltline.gateway", "--log", str(log)]
    if scenario is not None:
        command += ["--scenario", scenario]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        url = first.removeprefix("listening on ").strip()
        assert url.startswith("http://127.0.0.1:"), first
        yield Gateway(process, url, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
