"""The other five checks of the self-test, and all eleven in their order.

Six faults, then backoff, keys, cancel, limits, and `once`: that the same text is never shown twice is looked at where
nothing goes wrong (the plain run) and where something does, so the two are one check and there are eleven.
The server of `backoff`, `limits` and `once` keeps a log, which says how many requests were really made and when.
"""

import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from haltline.cli import keys, selftest_faults
from haltline.cli.selftest_faults import SLACK_MS, ended, limit, result_text, tools
from haltline.cli.selftest_findings import Finding, at_least, pieces, same, says, within
from haltline.cli.selftest_run import Seen, Server, Stage
from haltline.gateway.scenarios import BROKEN_AFTER, FAILURES, OK_PIECES
from haltline.protocol import processes
from haltline.protocol.events import CancelStep, Counters, Message, Retry, ToolResult, ToolStart
from haltline.protocol.settings import INTERACTIVE
from haltline.supervisor import retry

STOPPED_WITHIN_MS: Final = 1000.0
"""F6: a command that obeys SIGTERM is gone within 1 s of the key."""
TOOL_PROCESSES: Final = 3
"""Of the scenario's command: the shell and two that wait (gateway/scenarios.py, LONG_COMMAND)."""
ALMOST_ONE: Final = 1 - 2**-53
"""The largest jitter."""

STOPPING_KEYS: Final = (b"\x1b", b"\x03")
OTHER_KEYS: Final = (
    *(b"c", b"C", b"q", b" ", b"\r", b"\x04", b"\x1a", b"\x7f", "é".encode()),
    *(b"\x1b" + letter for letter in (b"c", b"C", b"b", b"f", b"d", b"\r", b"\x7f", "é".encode())),  # Alt
    *(b"\x1b[A", b"\x1b[B", b"\x1b[C", b"\x1b[D", b"\x1bOA", b"\x1b[1;5C", b"\x1b[1;3D", b"\x1b\x1b[A"),  # arrows
    *(b"\x1bOP", b"\x1bOS", b"\x1b[15~", b"\x1b[24~", b"\x1b[15;5~", b"\x1b[[A"),  # function keys
    *(b"\x1b[H", b"\x1b[F", b"\x1b[3~", b"\x1b[5~", b"\x1b[6~", b"\x1b[Z"),
)


def backoff(stage: Stage) -> list[Finding]:
    """The policy's numbers (C4), and that a real run announces waits of that size and waits them out."""
    with stage.server() as server:
        seen = stage.run(*_asking(server, "server_error"))
        came = server.requests("server_error")
    waits = seen.of(Retry)
    gaps_ms = [(after - before) * 1000 for before, after in pairwise(came)]
    kept = [wait.wait_ms <= gap <= wait.wait_ms + SLACK_MS for gap, wait in zip(gaps_ms, waits, strict=False)]
    low, high = retry.delay(INTERACTIVE, 2, 0.0), retry.delay(INTERACTIVE, 2, ALMOST_ONE)
    return [
        same("delays", [300.0, 600.0, 1200.0], [retry.delay(INTERACTIVE, n, 0.5) for n in (1, 2, 3)]),
        same("second", "400..800 ms", f"{low:g}..{high:g} ms"),
        same("cap", 8000.0, max(retry.delay(INTERACTIVE, n, ALMOST_ONE) for n in range(1, 65))),
        same("attempts of", [(2, 3), (3, 3)], [(wait.attempt, wait.of) for wait in waits], shown=False),
        *(
            within(f"wait {n}", window / 2, window, waits[n - 1].wait_ms if n <= len(waits) else None, " ms")
            for n, window in ((1, 400), (2, 800))
        ),
        same("kept", FAILURES, sum(kept)),
        same("requests", FAILURES + 1, len(came)),
        pieces("pieces", OK_PIECES, seen.text),
        *ended(
            seen,
            attempts=FAILURES + 1,
            counters=Counters(transport_retry=FAILURES),
            said="".join(OK_PIECES),
        ),
    ]


def stopping_keys(_stage: Stage) -> list[Finding]:
    """Esc and Ctrl+C stop; letters, Alt and anything, arrows and function keys do not (F2)."""
    return [
        same("stop", len(STOPPING_KEYS), sum(_presses(key) == 1 for key in STOPPING_KEYS)),
        same("do not", len(OTHER_KEYS), sum(_presses(key) == 0 for key in OTHER_KEYS)),
        same("stopping wrongly", [], [repr(key) for key in OTHER_KEYS if _presses(key)], shown=False),
    ]


def cancel(stage: Stage) -> list[Finding]:
    """A command of 15 s is running; the run is told to stop, and a second later nothing of it is there."""
    with stage.running("-o", "stream-json", fault="tool_long") as running:
        started = running.until(ToolStart)
        tree = running.processes_of(started.pid, TOOL_PROCESSES)
        fds = [fd for identity in tree if (fd := processes.open_pidfd(identity)) is not None]
        alive = len(fds)
        began = time.monotonic()
        running.process.send_signal(signal.SIGINT)
        gone_ms = _all_gone_ms(fds, began)
        seen = running.end()
    result = seen.result
    receipt = result.cancel
    steps = [f"{one.role} {one.survivors}" for one in seen.of(CancelStep) if one.phase == "done"]
    return [
        same("running", TOOL_PROCESSES, alive),
        within("gone", 0, STOPPED_WITHIN_MS, gone_ms, " ms"),
        within("told after", 0, STOPPED_WITHIN_MS, None if receipt is None else receipt.total_ms, " ms"),
        same("ended", TOOL_PROCESSES, None if receipt is None else receipt.killed),
        same("survivors", 0, None if receipt is None else receipt.survivors),
        same("done", ["llm 0", "tool 0"], sorted(steps), shown=False),
        *tools(seen, runs=1, statuses=["cancelled_killed"]),
        same("by", ["signal"], _stopped_by(seen), shown=False),
        says("the stopped result", ["may have partly run"], result_text(seen.of(ToolResult), 0)),
        *ended(seen, attempts=1, reason="cancelled", exit_code=130, said=""),
    ]


def limits(stage: Stage) -> list[Finding]:
    """Turns, seconds and tokens: each ends a run that would go on, is named in its result, and no request follows."""
    with stage.server() as server:
        turns = stage.run(*_asking(server, "poll"), "--max-turns", "2")
        seconds = stage.run(*_asking(server, "slow"), "--timeout", "1s")
        closed_s = server.left_after("slow")
        tokens = stage.run(*_asking(server, "loop_ab"), "--max-tokens-total", "100")
        asked = [len(server.requests(name)) for name in ("poll", "slow", "loop_ab")]
    return [
        *limit(turns, "turns", allowed=2),
        same("used", 2.0, _used(turns)),
        *limit(seconds, "seconds", allowed=1),
        within("used", 1, 2, _used(seconds), " s"),
        within("stream closed after", 0, 2, closed_s, " s"),
        same(
            "ended by", ["limit"], [one.by for one in seconds.of(CancelStep) if one.phase == "requested"], shown=False
        ),
        *limit(tokens, "tokens", allowed=100),
        at_least("used", 100, _used(tokens), ""),
        same("as charged", float(tokens.result.usage.total), _used(tokens), shown=False),
        same("requests", [2, 1, 1], asked),
        same("turns made", [2, 1, 1], [seen.result.turns for seen in (turns, seconds, tokens)], shown=False),
        same("exits", [53, 124, 53], [seen.exit_code for seen in (turns, seconds, tokens)]),
        same("left alive", 0, turns.left + seconds.left + tokens.left),
    ]


def once(stage: Stage) -> list[Finding]:
    """No text is shown twice: not in the plain run, not after a retry, not after a break (C9, A6)."""
    whole, kept = "".join(OK_PIECES), "".join(OK_PIECES[:BROKEN_AFTER])
    with stage.server() as server:
        plain = stage.run(*_asking(server, "ok"))
        read = stage.run(*_asking(server, "ok"), text=True)
        again = stage.run(*_asking(server, "truncated_early"))
        broken = stage.run(*_asking(server, "truncated_clean"))
        torn = stage.run(*_asking(server, "truncated"), text=True)
        asked = [len(server.requests(name)) for name in ("ok", "truncated_early", "truncated_clean", "truncated")]
    return [
        pieces("plain pieces", OK_PIECES, plain.text),
        same("plain whole", [(whole, False)], plain.wholes, shown=False),
        same("plain output", whole, _out(read), shown=False),
        pieces("after a retry", OK_PIECES, again.text),
        same("whole after a retry", [(whole, False)], again.wholes, shown=False),
        pieces("after a break", OK_PIECES[:BROKEN_AFTER], broken.text),
        same("whole after a break", [(kept, True)], broken.wholes, shown=False),
        same("output after a break", kept.rstrip(), _out(torn), shown=False),
        same("requests", [2, 2, 1, 1], asked),
        same("user's lines", 1, sum(one.role == "user" for one in plain.of(Message)), shown=False),
        same("exits", [0, 0, 0, 76, 76], [seen.exit_code for seen in (plain, read, again, broken, torn)]),
        same("left alive", 0, sum(seen.left for seen in (plain, read, again, broken, torn))),
    ]


CHECKS: Final[Mapping[str, Callable[[Stage], list[Finding]]]] = {
    "tool_error": selftest_faults.tool_error,
    "bad_args": selftest_faults.bad_args,
    "loop": selftest_faults.loop,
    "tool_timeout": selftest_faults.tool_timeout,
    "rate_limit": selftest_faults.rate_limit,
    "truncated": selftest_faults.truncated,
    "backoff": backoff,
    "keys": stopping_keys,
    "cancel": cancel,
    "limits": limits,
    "once": once,
}
"""In the order in which they are made."""


def _asking(server: Server, scenario: str) -> tuple[str, ...]:
    return ("--base-url", server.url, "-m", scenario)


def _presses(data: bytes) -> int:
    """Keys that stop, among bytes after which nothing came."""
    return sum(map(keys.cancels, keys.split(data, quiet=True).keys))


def _used(seen: Seen) -> float | None:
    """How much of the limit that tripped was used."""
    tripped = seen.result.limit
    return None if tripped is None else tripped.used


def _stopped_by(seen: Seen) -> list[str | None]:
    """Who asked for each stop."""
    return [one.by for one in seen.of(CancelStep) if one.phase == "requested"]


def _out(seen: Seen) -> str:
    """What stdout has carried, without the line end."""
    return seen.stdout.decode("utf-8", "replace").strip()


def _all_gone_ms(fds: list[int], began: float) -> float | None:
    """Milliseconds until every process behind these pidfds had ended; None: that took more than twice what it may."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    deadline = began + 2 * STOPPED_WITHIN_MS / 1000
    left = set(fds)
    while left and (remaining := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(remaining * 1000):
            poll.unregister(fd)
            left.discard(fd)
    ms = (time.monotonic() - began) * 1000
    for fd in fds:
        os.close(fd)
    return None if left else ms
