"""The glob and search tools: find.py in a process of its own, its findings as text."""

import asyncio
import os
import signal
import sys

import msgspec

from haltline.protocol.messages import Outcome
from haltline.protocol.times import KILL_S
from haltline.protocol.tools import Glob, Search
from haltline.worker.tool import words
from haltline.worker.tool.calls import Room, Stopwatch, Terms
from haltline.worker.tool.child import Child
from haltline.worker.tool.nameless import nameless_file
from haltline.worker.tool.output import Output
from haltline.worker.tool.workspace import Nowhere, Place

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "find.py")
FINDINGS_BYTES = 4_194_304
"""Kept of what find.py prints, far above what its own bounds let through."""


class _End(msgspec.Struct, frozen=True):
    more: bool = False
    files: int = 0
    bad_pattern: str | None = None
    missing: bool = False


class _Finding(msgspec.Struct, frozen=True):
    """One line of find.py."""

    path: str | None = None
    line: int = 0
    text: str = ""
    end: _End | None = None


class FindCall:
    """One glob or one search. Read-only, so several may run side by side."""

    def __init__(self, room: Room, terms: Terms, arguments: Glob | Search) -> None:
        self._room = room
        self._terms = terms
        self._arguments = arguments
        self._watch = Stopwatch(room.loop)
        self._stop: asyncio.Future[None] = room.loop.create_future()
        self._child: Child | None = None

    def stop(self, grace_s: float) -> None:  # noqa: ARG002  (nothing to tidy up, so no grace is needed)
        if not self._stop.done() and (self._child is None or not self._child.has_ended()):
            self._stop.set_result(None)

    async def run(self) -> Outcome:
        try:
            place = await self._room.loop.run_in_executor(self._room.threads, self._place)  # the disk may be slow
        except Nowhere:
            return self._watch.outcome("failed", words.no_place(self._arguments.path))
        if self._stop.done():
            return self._watch.outcome("cancelled_not_started", words.not_started())
        output = Output(FINDINGS_BYTES, self._room.output_came)
        with nameless_file(_request(self._arguments, place)) as request:
            child = self._child = Child(
                self._room.tree,
                [sys.executable, "-I", "-S", PROGRAM],
                output=output,
                cwd="/",
                environment=self._room.environment,
                stdin=request,
            )
        self._terms.started(child.outer_pid)
        try:
            await asyncio.wait(
                (child.ended, self._stop),
                timeout=self._terms.limit_s - self._watch.seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            ended = not self._stop.done() and child.has_ended()
            if not ended:
                child.signal(signal.SIGKILL)
                await asyncio.wait((child.ended,), timeout=KILL_S)
            child.drain()
        finally:
            child.close()
        if ended:
            return self._found(place, child.ended.result(), output)
        found = _lines(self._arguments, place, _findings(output), self._room.limits.output_bytes)
        if self._stop.done():
            return self._watch.outcome("cancelled_killed", words.find_cancelled(found))
        return self._watch.outcome("timed_out", words.find_timed_out(self._terms.limit_s, found))

    def _place(self) -> Place:
        return self._room.workspace.place(self._arguments.path, outside_allowed=self._terms.outside_allowed)

    def _found(self, place: Place, code: int, output: Output) -> Outcome:
        findings = _findings(output)
        if code != 0 or not findings or (end := findings[-1].end) is None:
            raise RuntimeError(f"find.py ended with {code}: {output.text()[-2_000:]}")
        if end.missing:
            return self._watch.outcome("failed", words.cannot_read(place.shown, "there is no such file or folder"))
        if end.bad_pattern is not None:
            return self._watch.outcome("failed", words.bad_pattern(self._arguments.pattern, end.bad_pattern))
        text = _lines(self._arguments, place, findings, self._room.limits.output_bytes)
        if not text:
            match self._arguments:
                case Glob(pattern=pattern):
                    text = words.no_files(pattern, place.shown)
                case Search(pattern=pattern):
                    text = words.no_matches(pattern, end.files)
        return self._watch.outcome("done", text, exit_code=0)


def _request(arguments: Glob | Search, place: Place) -> bytes:
    match arguments:
        case Glob(pattern=pattern):
            return msgspec.json.encode({"tool": "glob", "root": place.real, "pattern": pattern})
        case Search(pattern=pattern, glob=glob):
            return msgspec.json.encode({"tool": "search", "root": place.real, "pattern": pattern, "glob": glob})


def _findings(output: Output) -> list[_Finding]:
    """What was found so far; a last line that was cut by a kill is left out."""
    lines = output.text().split("\n")
    return [msgspec.json.decode(line, type=_Finding) for line in lines[:-1] if line.startswith("{")]


def _lines(arguments: Glob | Search, place: Place, findings: list[_Finding], room: int) -> str:
    """As the model reads them, within `room` bytes; a last line says that there are more."""
    shown: list[str] = []
    folder = place.shown if os.path.isdir(place.real) else os.path.dirname(place.shown)
    more = any(finding.end is not None and finding.end.more for finding in findings)
    for finding in findings:
        if finding.path is None:
            continue
        line = os.path.normpath(os.path.join(folder, finding.path))
        if isinstance(arguments, Search):
            line = f"{line}:{finding.line}: {finding.text}"
        line = line.encode("utf-8", "replace").decode()
        room -= len(line.encode()) + 1
        if room < 0:
            more = True
            break
        shown.append(line)
    if more:
        is_search = isinstance(arguments, Search)
        shown.append(words.more_matches(len(shown)) if is_search else words.more_files(len(shown)))
    return "\n".join(shown)
