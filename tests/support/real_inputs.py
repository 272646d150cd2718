"""Things that we did not make, for the tests to run against: bin/test fetches them into .cache (bin/setup.py).

- llmock, a mock of model servers by somebody else, in a venv of its own. `serve()` starts it.
- the source of small distributions with their own tests, for an agent to mend: SPECIMENS. `copy` copies one.

The mock answers with any key and any model name. Unscripted it says some words; offered tools, it calls the one whose
name and description share most words with the last prompt, with arguments made up from the schema ("mock-command"),
and answers in words once a tool result is the last message. Scripted behaviours are taken in the order in which they
were queued, at most one of each type per request; a failure is taken alone and leaves the others waiting.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import msgspec
from support.checkout import ROOT

CACHE = ROOT / ".cache"

WITHIN_S = 20.0
"""Longest wait for the mock to listen, to answer, and to end. It starts in about 1 s."""

SUITE_S = 30.0
"""A suite that takes longer hangs; each takes 1 to 5 s."""

Api = Literal["chat", "responses", "messages"]

Behaviour = Mapping[str, object]
"""As the mock's HTTP interface takes it; made by the functions below."""


class Served(msgspec.Struct, frozen=True):
    """One request as the mock saw it."""

    path: str
    status: int
    fault: str | None
    """What it was answered with, e.g. "scenario:429"; None for an answer."""
    completed: bool
    """Whether the client read the answer to its end."""
    body: dict[str, object]


class _Requests(msgspec.Struct, frozen=True):
    requests: list[Served]


class _Finding(msgspec.Struct, frozen=True):
    code: str


class _Verdict(msgspec.Struct, frozen=True):
    findings: list[_Finding]


class Mock:
    """A running llmock, on a free port of 127.0.0.1."""

    def __init__(self, address: str) -> None:
        self.address = address

    def base_url(self, api: Api) -> str:
        return f"{self.address}/anthropic" if api == "messages" else f"{self.address}/v1"

    def script(self, *behaviours: Behaviour) -> None:
        """Queues them behind those that wait."""
        self._ask("POST", "scenario", msgspec.json.encode({"behaviors": behaviours}))

    def requests(self) -> list[Served]:
        """All so far, oldest first. The mock waits up to 2 s for those under way."""
        return msgspec.json.decode(self._ask("GET", "requests"), type=_Requests).requests

    def findings(self) -> list[str]:
        """What the mock holds against its client, e.g. "retry_after_ignored", "retried_non_retryable",
        "truncated_stream_accepted", "no_backoff", "gave_up"; empty is a pass.
        """
        verdict = msgspec.json.decode(self._ask("GET", "verdict"), type=_Verdict)
        return [finding.code for finding in verdict.findings]

    def _ask(self, method: str, what: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.address}/_llmock/{what}", body, method=method)
        with urllib.request.urlopen(request, timeout=WITHIN_S) as response:
            answer: bytes = response.read()
            return answer


def says(text: str, *, finish: str | None = None) -> Behaviour:
    """An answer in words, one piece per word. `finish` as chat completions says it ("length"), in every format."""
    return {"type": "reply", "text": text, "finish_reason": finish}


def calls(tool: str, **arguments: object) -> Behaviour:
    """A response with one tool call."""
    return {"type": "reply", "tool_calls": [{"name": tool, "arguments": arguments}]}


def fails(
    status: int,
    *,
    retry_after_s: float | None = None,
    code: str | None = None,
    message: str | None = None,
    times: int = 1,
) -> Behaviour:
    """An HTTP error in the provider's own shape. 429 and 5xx ask for 1 s where retry_after_s is None."""
    fields = {"code": code, "message": message, "retry_after": retry_after_s, "times": times}
    return {"type": "fail", "status": status, **fields}


def breaks(
    kind: Literal["disconnect", "truncate", "stall", "malformed"], *, after: int, stall_s: float = 30.0
) -> Behaviour:
    """A fault in the stream after that many events; the events that open a response count (chat 1, responses 4,
    messages 3).
    """
    return {"type": "stream_fault", "kind": kind, "after_chunks": after, "stall_seconds": stall_s}


def calls_badly(kind: Literal["malformed_arguments", "unknown_tool"]) -> Behaviour:
    """The call that it would make, spoilt; only for a request that offers tools."""
    return {"type": "tool_fault", "kind": kind}


@contextmanager
def serve(*options: str) -> Generator[Mock]:
    """A mock of its own, ended at the end. Options as of `llmock serve`, e.g. "--stream-chunk-delay-ms", "20"."""
    program = CACHE / "llmock-venv" / "bin" / "llmock"
    assert program.exists(), "llmock is not there; bin/test fetches it"
    command = [str(program), "serve", "--port", "0", "--log-level", "info", *options]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        try:
            yield Mock(_address(process.stdout))
        finally:
            process.terminate()
            process.communicate(timeout=WITHIN_S)


def _address(output: IO[bytes]) -> str:
    """Reads until the mock says where it listens."""
    said = b""
    deadline = time.monotonic() + WITHIN_S
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            assert selector.select(deadline - time.monotonic()), f"llmock never listened: {said!r}"
            piece = os.read(output.fileno(), 65536)
            assert piece, f"llmock ended: {said!r}"
            said += piece
            listening = re.search(rb"running on (http://127\.0\.0\.1:\d+)", said)
            if listening:
                return listening[1].decode()


class Specimen(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a distribution that nobody made for this."""

    name: str
    module: str
    """The file to break, relative to its folder."""
    suite: tuple[str, ...]
    """What Python runs its tests with."""
    importable: str = "."
    """The folder that its tests import from."""

    def copy(self, to: Path) -> Path:
        """To a new folder, which is returned."""
        sources = sorted((CACHE / "sdists").glob(f"{self.name}-*"))
        assert sources, f"the source of {self.name} is not there; bin/test fetches it"
        return shutil.copytree(sources[-1], to)

    def passes(self, folder: Path) -> bool | None:
        """Whether the copy's own tests pass; None: they do not end. 1 to 5 s where they do."""
        environment = {**os.environ, "PYTHONPATH": self.importable}
        command = [sys.executable, "-B", "-m", *self.suite]
        try:
            ended = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=SUITE_S,
            )
        except subprocess.TimeoutExpired:
            return None
        return ended.returncode == 0


UNITTEST = ("unittest", "discover", "--failfast")
PYTEST = ("pytest", "-q", "-x", "-p", "no:cacheprovider")

SPECIMENS = (
    Specimen(name="inflection", module="inflection/__init__.py", suite=(*PYTEST, "test_inflection.py")),
    Specimen(name="cachetools", module="src/cachetools/__init__.py", suite=UNITTEST, importable="src"),
    Specimen(name="unidiff", module="unidiff/patch.py", suite=UNITTEST),
)
"""Tests of pytest in one file beside the package; a `src` layout; a parser with samples as files."""
