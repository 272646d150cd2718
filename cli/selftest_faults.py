"""Six checks of the self-test: each fault injected into a process of its own, and what the agent did about it.

The texts and numbers are those of the scenarios (gateway/scenarios.py). Where the outside can witness something (a
file, the server's own number of a request, a text that only a second answer would hold), it is asked, not the agent.
"""

import os
from typing import Final

from haltline.cli.selftest_findings import Finding, pieces, same, says, within
from haltline.cli.selftest_run import Seen, Stage
from haltline.gateway.scenarios import BROKEN_AFTER, OK_PIECES
from haltline.protocol import processes
from haltline.protocol.events import Counters, Error, Init, Loop, Retry, ToolResult, ToolStart, ToolUse, Worker
from haltline.protocol.kinds import LimitName, Reason

SLACK_MS: Final = 2500.0
"""By this much a busy machine may be late; a wait that is twice as long as it should be is later."""
NO_WAY_BACK: Final = Counters()
"""Nothing had to be tried again."""


def tool_error(stage: Stage) -> list[Finding]:
    """A write fails once; the model is told that nothing was changed, sends it again, and the file is there."""
    workspace = stage.workspace()
    seen = stage.run(fault="tool_error", workspace=workspace)
    results = seen.of(ToolResult)
    return [
        *tools(seen, runs=2, statuses=["failed", "done"]),
        same("changed", ["nothing", "yes"], [result.changed for result in results]),
        says("the failed result", ["could not be written", "nothing was changed"], result_text(results, 0)),
        same("file", "written by the scenario tool_error\n", _content(workspace, "notes.txt"), shown=False),
        *ended(seen, attempts=3, said="The file is written."),
    ]


def bad_args(stage: Stage) -> list[Finding]:
    """Arguments that are never JSON: nothing runs, each is fed back with the raw text, and the fourth ends the run."""
    rounds = 4
    raws = [f'{{"command": "echo attempt {n}' for n in range(1, rounds + 1)]  # n is the server's own count
    seen = stage.run(fault="bad_args")
    results = seen.of(ToolResult)
    return [
        *tools(seen, runs=0, statuses=["refused_arguments"] * rounds),
        same("raw arguments", raws, [use.arguments_raw for use in seen.of(ToolUse)], shown=False),
        *(
            says(f"feedback {n}", ["not a JSON object", "nothing was changed", raw], result_text(results, n - 1))
            for n, raw in enumerate(raws, 1)
        ),
        *limit(seen, "invalid_calls", allowed=rounds),
        *ended(
            seen,
            attempts=rounds,
            reason="limit",
            exit_code=53,
            counters=Counters(invalid_call=rounds),
            said="",
        ),
    ]


def loop(stage: Stage) -> list[Finding]:
    """The same call three times: it runs twice, the third is refused, and the model, being told so, concludes."""
    seen = stage.run(fault="loop")
    return [
        *tools(seen, runs=2, statuses=["done", "done", "refused_loop"]),
        same(
            "told",
            ["same_call 3 feedback"],
            [f"{one.detector} {one.count} {one.action}" for one in seen.of(Loop)],
        ),
        says("the refused result", ["number 3 in a row", "not run again"], result_text(seen.of(ToolResult), 2)),
        *ended(
            seen,
            attempts=4,
            counters=Counters(same_call=1),
            said="I was going in circles. The results are above; I conclude.",
        ),
    ]


def tool_timeout(stage: Stage) -> list[Finding]:
    """A command of 600 s under a limit of 1 s: it ends, with what it had printed, and its two halves run."""
    with stage.running("-o", "stream-json", "--tool-timeout", "1s", fault="tool_timeout") as running:
        tree = running.processes_of(running.until(ToolStart).pid, 2)  # the shell and what it waits for
        running.until(ToolResult)
        alive = sum(map(processes.is_alive, tree))  # before anything but the limit could have ended them
        seen = running.end()
    results = seen.of(ToolResult)
    return [
        *tools(seen, runs=3, statuses=["timed_out", "done", "done"]),
        same("of 2 processes alive", 0, alive),
        within("stopped after", 1000, 1000 + SLACK_MS, float(results[0].ms) if results else None, " ms"),
        says("the stopped result", ["begun", "after 1 s", "Split it"], result_text(results, 0)),
        says("the first half's result", ["first half"], result_text(results, 1)),
        says("the second half's result", ["second half"], result_text(results, 2)),
        *ended(seen, attempts=3, said="The command was too long; its two halves were not."),
    ]


def rate_limit(stage: Stage) -> list[Finding]:
    """The server asks for one second: it is announced, it is waited for, and then the answer comes, once."""
    seen = stage.run(fault="rate_limit")
    waits = seen.of(Retry)
    return [
        same("errors", ["rate_limited 429 retry"], _errors(seen)),
        same("announced", ["attempt 2 of 3 after 1000 ms"], [_announced(wait) for wait in waits]),
        within("answered after", 1000, 1000 + SLACK_MS, seen.answered_ms, " ms"),
        pieces("pieces", OK_PIECES, seen.text),
        *ended(seen, attempts=2, counters=Counters(transport_retry=1), said="".join(OK_PIECES)),
    ]


def truncated(stage: Stage) -> list[Finding]:
    """A stream breaks after five pieces: they stay, are not said again, and no second request is made."""
    kept = OK_PIECES[:BROKEN_AFTER]
    seen = stage.run(fault="truncated")
    return [
        pieces("pieces", kept, seen.text),
        same("kept", [("".join(kept), True)], seen.wholes, shown=False),
        same("errors", ["stream_truncated none surface"], _errors(seen)),
        same("phase", ["body"], [error.phase for error in seen.of(Error)], shown=False),
        same("waits", 0, len(seen.of(Retry))),
        same("kind", "stream_truncated", seen.result.kind, shown=False),
        *ended(seen, attempts=1, reason="failed", exit_code=76, said="".join(kept)),
    ]


def ended(
    seen: Seen,
    *,
    attempts: int,
    said: str,
    reason: Reason = "completed",
    exit_code: int = 0,
    counters: Counters = NO_WAY_BACK,
) -> list[Finding]:
    """How a run ended, that it was the pinned one, and that nothing of it is alive. `said`: the last message."""
    result = seen.result
    lost = [f"{one.role} {one.state}" for one in seen.of(Worker) if one.state not in ("starting", "ready")]
    return [
        same(
            "pinned",
            ["interactive", "yolo"],
            [word for init in seen.of(Init) for word in (init.retry, init.approval_mode)],
            shown=False,
        ),
        same("attempts", attempts, result.attempts),
        same("counters", _nonzero(counters), _nonzero(result.counters), shown=False),
        same("reason", reason, result.reason, shown=False),
        same("last message", said, result.text, shown=False),
        same("workers lost", [], lost, shown=False),
        same("exit", exit_code, seen.exit_code),
        same("exit in the result", exit_code, result.exit_code, shown=False),
        same("left alive", 0, seen.left),
    ]


def tools(seen: Seen, *, runs: int, statuses: list[str]) -> list[Finding]:
    """Calls, how many of them were started, and how each ended; each call has one result, in order."""
    calls = [use.call_id for use in seen.of(ToolUse)]
    return [
        same("calls", len(statuses), len(calls)),
        same("runs", runs, len(seen.of(ToolStart))),
        same("results", statuses, [result.status for result in seen.of(ToolResult)]),
        same("order of results", calls, [result.call_id for result in seen.of(ToolResult)], shown=False),
        same("counted calls", [len(statuses), runs], [seen.result.tool_calls, seen.result.tool_runs], shown=False),
    ]


_UNITS: Final[dict[LimitName, str]] = {
    "seconds": "s", "turns": "turns", "tokens": "tokens", "usd": "USD", "invalid_calls": "invalid calls",
}  # fmt: skip


def limit(seen: Seen, which: LimitName, *, allowed: float) -> list[Finding]:
    """That the result names the limit and what it allowed."""
    tripped = seen.result.limit
    return [
        same(
            "limit",
            f"{which} {allowed:g}",
            "none" if tripped is None else f"{tripped.which} {tripped.allowed:g}",
        ),
        says("the words", [f"limit of {allowed:g} {_UNITS[which]} ", " is reached ("], seen.result.message),
    ]


def _announced(wait: Retry) -> str:
    return f"attempt {wait.attempt} of {wait.of} after {wait.wait_ms} ms"


def _errors(seen: Seen) -> list[str]:
    return [
        f"{error.kind} {'none' if error.provider_status is None else error.provider_status} {error.handling}"
        for error in seen.of(Error)
    ]


def _nonzero(counters: Counters) -> list[str]:
    values = {name: getattr(counters, name) for name in counters.__struct_fields__}
    return [f"{name} {value}" for name, value in values.items() if value]


def result_text(results: list[ToolResult], number: int) -> str | None:
    """What the model was told in the result with this number, from 0; None: there is no such result."""
    return results[number].text if number < len(results) else None


def _content(folder: str, name: str) -> str | None:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
