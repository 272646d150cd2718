"""The end of a run in words for stderr: the receipt of a stop, or why it failed. Pure."""

from haltline.cli.printable import one_line
from haltline.cli.tool_words import seconds
from haltline.protocol.events import CancelReceipt, Result


def ending(result: Result) -> str | None:
    """One line; None for a run that completed: its text says it all."""
    match result.reason:
        case "completed":
            return None
        case "cancelled" | "killed":
            return stopped(result.reason, result.cancel)
        case _:
            return f"haltline: {one_line(_why(result))}"


def stopped(reason: str, receipt: CancelReceipt | None) -> str:
    if receipt is None:
        return reason
    parts = [f"{reason} in {seconds(receipt.total_ms)}"]
    if receipt.stream_ms is not None:
        parts.append(f"stream closed in {seconds(receipt.stream_ms)}")
    if receipt.tools_ms is not None:
        parts.append(f"tools gone in {seconds(receipt.tools_ms)}")
    parts.append(f"{receipt.killed} ended by force, rung {receipt.rung}, {receipt.survivors} left")
    return ": ".join((parts[0], ", ".join(parts[1:])))


def _why(result: Result) -> str:
    what: list[str] = [result.reason]
    if result.kind is not None and result.kind != result.reason:
        what.append(result.kind if result.subkind is None else f"{result.kind}/{result.subkind}")
    if result.detector is not None:
        what.append(result.detector)
    return f"{' '.join(what)}: {result.message}" if result.message else " ".join(what)


def summary(result: Result) -> str:
    """What a completed run took, for a person."""
    tokens = f"{'about ' if result.usage.estimated else ''}{result.usage.total:,} tokens"
    return f"{_count(result.turns, 'turn')}, {_count(result.tool_runs, 'tool run')}, {tokens}, {seconds(result.ms)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
