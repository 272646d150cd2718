"""Mechanisms of the product, and the smallest change that breaks each: what the self-test has to notice."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import checkout

_serials = itertools.count(1)


@dataclass(frozen=True)
class Breakage:
    """`old` stands once in all of the product; with `new` in its place `what` is broken, and the line of `check` has to
    hold `says`."""

    check: str
    what: str
    old: str
    new: str
    says: str

    @property
    def id(self) -> str:
        return f"{self.check}: {self.what}"

    def place(self, root: Path) -> Path:
        """The file that holds `old`."""
        files = [path for room in checkout.ROOMS for path in (root / room).rglob("*.py")]
        found = [path for path in files for _ in range(path.read_text().count(self.old))]
        assert len(found) == 1, f"stands {len(found)} times in the product, not once: {self.old}"
        return found[0]

    @contextmanager
    def applied(self, root: Path) -> Generator[None]:
        """Broken in this copy of the checkout. Python knows a compiled file by second and size of its source, so each
        broken one has a time of its own, and the whole one has its old time back."""
        path = self.place(root)
        whole, times = path.read_bytes(), path.stat()
        path.write_text(whole.decode().replace(self.old, self.new))
        serial = next(_serials)
        os.utime(path, (serial, serial))
        try:
            yield
        finally:
            path.write_bytes(whole)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


BREAKAGES = (
    Breakage(
        "tool_error",
        "a failed write is told as one that went well",
        'return self._watch.outcome("failed", failure.text)',
        'return self._watch.outcome("done", failure.text, exit_code=0)',
        "results: expected failed done, came 2x done",
    ),
    Breakage(
        "tool_error",
        "an exception in a tool ends its worker",
        "except files.Failed as failure:\n            return",
        "except files.Failed as failure:\n            raise SystemExit(1) from failure\n            return",
        "workers lost",
    ),
    Breakage(
        "tool_error",
        "a write says that it wrote and does not",
        "return files.write_file(place, self._arguments, self._asked)",
        'return FileResult(text="wrote", changed="yes")',
        "file: expected written by the scenario tool_error\\n, came none",
    ),
    Breakage(
        "bad_args",
        "a fifth round is allowed",
        "INVALID_ROW = 4",
        "INVALID_ROW = 5",
        "calls: expected 4, came 5",
    ),
    Breakage(
        "bad_args",
        "the fourth is not fed back",
        "ends.nothing_changed(validity.status, validity.text)",
        'ends.nothing_changed(validity.status, validity.text if tripped is None else "")',
        "feedback 4",
    ),
    Breakage(
        "bad_args",
        "the raw text is not given back",
        "This is what came:\\n{head_and_tail(raw, QUOTED_BYTES)}\\n",
        "",
        "feedback 1",
    ),
    Breakage(
        "loop",
        "the third call runs",
        "STREAK = 3",
        "STREAK = 4",
        "runs: expected 2, came 3",
    ),
    Breakage(
        "loop",
        "repetition is never seen",
        "if streak >= STREAK and not",
        "if streak < 0 and not",
        "exit: expected 0, came 53",
    ),
    Breakage(
        "tool_timeout",
        "the limit is not kept",
        "limit_s=message.timeout_s,",
        "limit_s=600.0,",
        "results: expected timed_out 2x done",
    ),
    Breakage(
        "tool_timeout",
        "the limit ends the call and not its processes",
        "swept = await tree.end_call(LIMIT_GRACE_S)",
        'swept = SweepResult(killed=0, survivors=(), rung="ack")',
        "of 2 processes alive: expected 0, came 2",
    ),
    Breakage(
        "rate_limit",
        "retry-after is not read",
        "asked_ms = failure.retry_after_ms or 0",
        "asked_ms = 0",
        "announced",
    ),
    Breakage(
        "rate_limit",
        "the announced wait is not waited",
        "d.now + ms / 1000)",
        "d.now + ms / 100000)",
        "answered after",
    ),
    Breakage(
        "rate_limit",
        "a refused rate ends the run",
        'case "rate_limited" | "server" | "network" | "stream_truncated":',
        'case "rate_limited":\n            return "surface"\n        case "server" | "network" | "stream_truncated":',
        "exit: expected 0, came 75",
    ),
    Breakage(
        "truncated",
        "what was shown is forgotten, and asked for again",
        'return "retry" if again != "no" and emitted == 0 else "surface"',
        'return "retry" if again != "no" else "surface"',
        "attempts: expected 1, came 2",
    ),
    Breakage(
        "truncated",
        "what was received is not kept",
        "    if text:\n        d.show(",
        '    if text and partial:\n        text = ""\n    if text:\n        d.show(',
        "kept",
    ),
    Breakage(
        "truncated",
        "a stream without an end signal counts as complete",
        'if refusal and finish == "stop" else finish',
        'if refusal and finish == "stop" else finish or "stop"',
        "exit: expected 76, came 0",
    ),
    Breakage(
        "backoff",
        "no jitter",
        "return window / 2 + jitter * window / 2",
        "return window",
        "delays: expected 300 600 1200",
    ),
    Breakage(
        "backoff",
        "the window does not grow",
        "base_ms=400.0, factor=2.0",
        "base_ms=400.0, factor=1.0",
        "second: expected 400..800 ms, came 200..400 ms",
    ),
    Breakage(
        "backoff",
        "no cap",
        "cap_ms=8_000.0",
        "cap_ms=8_000_000.0",
        "cap: expected 8000",
    ),
    Breakage(
        "backoff",
        "waits are announced and not waited",
        "d.now + ms / 1000)",
        "d.now + ms / 100000)",
        "kept: expected 2, came 0",
    ),
    Breakage(
        "backoff",
        "waits take ten times as long as announced",
        "d.now + ms / 1000)",
        "d.now + ms / 100)",
        "kept: expected 2",
    ),
    Breakage(
        "rate_limit",
        "the wait is ten times as long as announced",
        "d.now + ms / 1000)",
        "d.now + ms / 100)",
        "answered after: expected 1000..3500 ms",
    ),
    Breakage(
        "backoff",
        "one retry only",
        'jitter="equal", attempts=3',
        'jitter="equal", attempts=2',
        "requests: expected 3, came 2",
    ),
    Breakage(
        "keys",
        "every sequence that begins with Esc stops",
        'if key in (b"\\x1b", b"\\x03"):',
        'if key.startswith((b"\\x1b", b"\\x03")):',
        "do not: expected",
    ),
    Breakage(
        "keys",
        "the letter c stops",
        'if key in (b"\\x1b", b"\\x03"):',
        'if key in (b"\\x1b", b"\\x03", b"c"):',
        "do not: expected",
    ),
    Breakage(
        "keys",
        "Esc does not stop",
        'if key in (b"\\x1b", b"\\x03"):',
        'if key == b"\\x03":',
        "stop: expected 2, came 1",
    ),
    Breakage(
        "cancel",
        "the tree gets no SIGTERM, only SIGKILL after the grace",
        "if process.identity not in self._termed:",
        "if False:",
        "gone: expected 0..1000 ms",
    ),
    Breakage(
        "cancel",
        "the tool worker says that it has ended the tree and has not",
        "ending = self._tree.end(cancel.grace_s, spare=lambda: self._background.not_before(cancel.generation))",
        'ending = asyncio.sleep(0, SweepResult(killed=0, survivors=(), rung="ack"))',
        "ended: expected 3, came 0",
    ),
    Breakage(
        "cancel",
        "the client leaves at the first press, and waits for nothing",
        "meaning = _MEANINGS[min(self._count, len(_MEANINGS) - 1)]",
        'meaning: Meaning = "leave"',
        "survivors: expected 0, came none",
    ),
    Breakage(
        "cancel",
        "the tool worker does not hear it",
        "older = [record for record in self._records if",
        "return\n        older = [record for record in self._records if",
        "gone: expected 0..1000 ms, came nothing",
    ),
    Breakage(
        "limits",
        "turns are not counted",
        "turns=ledger.turns + 1)",
        "turns=ledger.turns)",
        "limit: expected turns 2, came none",
    ),
    Breakage(
        "limits",
        "time is looked at too late",
        "left = [row.allowed - row.used for row in standing",
        "left = [row.allowed + 1.5 - row.used for row in standing",
        "used: expected 1..2 s, came 2.5",
    ),
    Breakage(
        "limits",
        "tokens are not charged",
        "usage=plus(ledger.usage, usage)",
        "usage=ledger.usage",
        "limit: expected tokens 100",
    ),
    Breakage(
        "limits",
        "one more request is made",
        "if row.used >= row.allowed and (new_turn",
        "if row.used > row.allowed and (new_turn",
        "requests: expected 2 1 1, came 3",
    ),
    Breakage(
        "once",
        "what was shown is shown again by a retry",
        'return "retry" if again != "no" and emitted == 0 else "surface"',
        'return "retry" if again != "no" else "surface"',
        "after a break: expected 5",
    ),
    Breakage(
        "once",
        "people get the whole after its pieces",
        "pieces = () if self._message_has_deltas else self._text(message.text)",
        "pieces = self._text(message.text)",
        "plain output",
    ),
    Breakage(
        "once",
        "a piece is sent twice",
        'event = events.Message(role="assistant", text=message.text, delta=True)',
        'event = events.Message(role="assistant", text=message.text * 2, delta=True)',
        "plain pieces: expected 10",
    ),
    Breakage(
        "once",
        "a stream without an end signal counts as complete",
        'if refusal and finish == "stop" else finish',
        'if refusal and finish == "stop" else finish or "stop"',
        "exits: expected 0 0 0 76 76",
    ),
)
