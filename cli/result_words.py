"""The end of a run in words for stderr: the receipt of a stop, or why it failed. Pure."""

from typing import assert_never

from haltline.cli.printable import one_line
from haltline.cli.tool_words import seconds
from haltline.protocol.events import Budget, CancelReceipt, Result
from haltline.protocol.kinds import Kind, Subkind


def ending(result: Result) -> str | None:
    """One line; None for a run that completed: its text says it all."""
    match result.reason:
        case "completed":
            return None
        case "cancelled" if result.cancel is None and result.message:
            return one_line(result.message)  # nobody has seen it end (F1), or nothing had begun
        case "cancelled":
            return stopped("stopped", result.cancel)
        case "killed":
            return f"haltline: {_why(result)}" if result.cancel is None else stopped("killed", result.cancel)
        case "limit" | "loop":
            return f"haltline: stopped: {_why(result)}"
        case "context_overflow" | "worker_failed" | "failed":
            return f"haltline: {_why(result)}"
        case _:
            assert_never(result.reason)


def stopped(what: str, receipt: CancelReceipt | None) -> str:
    """`stopped in 4 ms: stream closed, 0 processes ended by force, 0 left`."""
    if receipt is None:
        return what
    parts = [
        *(["stream closed"] if receipt.stream_ms is not None else []),
        *(["tools ended"] if receipt.tools_ms is not None else []),
        f"{receipt.killed} process{'' if receipt.killed == 1 else 'es'} ended by force",
        f"{receipt.survivors} left",
    ]
    return f"{what} in {seconds(receipt.total_ms)}: {', '.join(parts)}"


def _why(result: Result) -> str:
    """Plain words first, the name that programs know last."""
    name = named(result.kind, result.subkind) if result.kind is not None else result.detector
    words = one_line(result.message) or result.reason
    return words if name is None else f"{words} ({name})"


def named(kind: Kind, subkind: Subkind | None) -> str:
    return kind if subkind is None else f"{kind}/{subkind}"


def used(budget: Budget) -> str:
    """`0.8 s of 1 s used`."""
    match budget.which:
        case "seconds":
            return f"{budget.used:.1f} s of {budget.allowed:g} s used"
        case "usd":
            return f"{budget.used:.2f} USD of {budget.allowed:.2f} USD used"
        case "turns" | "tokens" | "invalid_calls":
            return f"{budget.used:,.0f} of {budget.allowed:,.0f} {budget.which.replace('_', ' ')} used"
        case _:
            assert_never(budget.which)


def summary(result: Result) -> str:
    """What a completed run took, for a person."""
    tokens = f"{'about ' if result.usage.estimated else ''}{result.usage.total:,} tokens"
    return f"{_count(result.turns, 'turn')}, {_count(result.tool_runs, 'tool run')}, {tokens}, {seconds(result.ms)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
