"""The scripted gateway as a process of its own, and its log as it is written."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import httpx
import msgspec

Api = Literal["chat", "responses", "messages"]
APIS: tuple[Api, ...] = ("chat", "responses", "messages")

PATHS: dict[Api, str] = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}

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
    def __init__(self, process: "subprocess.Popen[str] | subprocess.Popen[bytes]", url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self._log = log

    @property
    def chat_url(self) -> str:
        return f"{self.url}/chat/completions"

    def url_of(self, api: Api) -> str:
        """Where requests of a wire format are posted."""
        return f"{self.url}/{PATHS[api]}"

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

    def requests(self, *, session: str) -> list[LogLine]:
        return [line for line in self.log() if (line.event, line.session) == ("request", session)]

    def count(self, event: str, *, session: str) -> int:
        return sum((line.event, line.session) == (event, session) for line in self.log())

    def wait_until_closed(self, *, session: str) -> None:
        """Until each response of a session has ended, or was left."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            lines = [line for line in self.log() if line.session == session]
            open_ids = {line.id for line in lines if line.event == "request"}
            open_ids -= {line.id for line in lines if line.event in ("end", "disconnect")}
            if not open_ids:
                return
            select.select((), (), (), 0.005)
        raise AssertionError(f"requests of {session} are open after {PATIENCE_S} s; the log has {self.log()}")

    def state(self) -> State:
        answer = httpx.get(f"{self.url.removesuffix('/v1')}/_haltline/state", trust_env=False)
        return msgspec.json.decode(answer.content, type=State)


def request(
    model: str, *, stream: bool = True, text: str = "Hello.", usage: bool = False, api: Api = "chat"
) -> dict[str, object]:
    """A request of one user message. `usage` asks for what chat completions alone has to be asked for."""
    said = [{"role": "user", "content": text}]
    body: dict[str, object] = {"model": model, "stream": stream, "input" if api == "responses" else "messages": said}
    if api == "messages":
        body["max_tokens"] = 1_024
    if usage:
        body["stream_options"] = {"include_usage": True}
    return body


def headers(session: str, api: Api = "chat") -> dict[str, str]:
    """With a key, as each format has it."""
    if api == "messages":
        return {"x-session-id": session, "x-api-key": "a-secret", "anthropic-version": "2023-06-01"}
    return {"x-session-id": session, "authorization": "Bearer a-secret"}


class Function(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: str = ""


class CallPiece(msgspec.Struct, frozen=True):
    index: int
    function: Function


class Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    tool_calls: tuple[CallPiece, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    delta: Delta
    finish_reason: str | None


class Error(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class Event(msgspec.Struct, frozen=True):
    """One chunk of a stream, or an error in its place."""

    choices: tuple[Choice, ...] = ()
    usage: dict[str, object] | None = None
    error: Error | None = None


class Stream(msgspec.Struct, frozen=True):
    """All that a streamed body says."""

    events: tuple[Event, ...]
    done: bool
    """`[DONE]` came last."""

    @property
    def deltas(self) -> list[Delta]:
        return [choice.delta for event in self.events for choice in event.choices]

    @property
    def text(self) -> str:
        return "".join(delta.content or "" for delta in self.deltas)

    @property
    def refusal(self) -> str:
        return "".join(delta.refusal or "" for delta in self.deltas)

    @property
    def finish(self) -> list[str]:
        return [choice.finish_reason for event in self.events for choice in event.choices if choice.finish_reason]

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Name and raw arguments of each call."""
        found: dict[int, tuple[str, str]] = {}
        for piece in (piece for delta in self.deltas for piece in delta.tool_calls):
            name, arguments = found.get(piece.index, ("", ""))
            found[piece.index] = (name + piece.function.name, arguments + piece.function.arguments)
        return [found[index] for index in sorted(found)]


def read_stream(body: str) -> Stream:
    data = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    done = bool(data) and data[-1] == "[DONE]"
    return Stream(tuple(msgspec.json.decode(item, type=Event) for item in (data[:-1] if done else data)), done)


@contextmanager
def running(
    folder: Path, *, scenario: str | None = None, program: Sequence[str] = ("-m", "haltline.gateway")
) -> Generator[Gateway]:
    """A gateway on a free port, ended by SIGTERM; fails if it does not end well. `program`: how Python finds it."""
    log = folder / "gateway.jsonl"
    command = [sys.executable, "-I", *program, "--log", str(log)]
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
