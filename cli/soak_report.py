"""What a soak has found, in words and as an object. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from haltline.cli.soak_run import RoundSeen
from haltline.protocol.kinds import RUNG_ORDER, Rung

RUNGS: Final[Mapping[Rung, str]] = {
    "ack": "a stream, or nothing, was closed",
    "term": "a tree obeyed SIGTERM",
    "kill": "a tree needed SIGKILL",
    "sweep": "a tree had left its groups",
    "pidns": "a PID namespace was ended",
    "worker_kill": "a worker had to be killed",
}
"""What a stop met, by the hardest rung that it needed."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds; nearest rank."""

    count: int
    p50: float
    p95: float
    p99: float
    max: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    sessions: int
    seed: int
    rounds: tuple[RoundSeen, ...]
    left: int
    """Processes alive when supervisor and guard were to be gone."""
    trouble: str = ""
    """Why it ended early; empty: it did not."""

    @property
    def missed(self) -> dict[str, int]:
        """Each objective is none of these."""
        return {
            "survivors": sum(one.survivors for one in self.rounds) + self.left,
            "open_streams": sum(one.open_streams for one in self.rounds),
            "stuck": sum(one.stuck for one in self.rounds),
            "unexplained": sum(len(one.unexplained) for one in self.rounds),
        }

    @property
    def holds(self) -> bool:
        return not any(self.missed.values()) and not self.trouble

    @property
    def stops(self) -> dict[Rung, Times]:
        """Of all rounds, from mild to hard."""
        by_rung: defaultdict[Rung, list[float]] = defaultdict(list)
        for one in self.rounds:
            for rung, values in one.stop_ms.items():
                by_rung[rung] += values
        return {rung: times(by_rung[rung]) for rung in RUNG_ORDER if rung in by_rung}

    def as_object(self) -> dict[str, object]:
        """For --json: what was asked, each round, and the sums."""
        return {**msgspec.structs.asdict(self), **self.missed, "stops": self.stops, "ok": self.holds}


def times(values: Sequence[float]) -> Times:
    """Of at least one value."""
    ranked = sorted(values)
    p50, p95, p99 = (ranked[min(len(ranked) - 1, int(share * len(ranked)))] for share in (0.5, 0.95, 0.99))
    return Times(count=len(ranked), p50=p50, p95=p95, p99=p99, max=ranked[-1])


def round_line(seen: RoundSeen) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(seen.results.items()))
    line = (
        f"round {seen.number}, {seen.seconds:.1f} s: {reasons or 'no result'}; "
        f"workers killed {seen.killed}, stopped {seen.stopped}, replaced {seen.replaced}; "
        f"survivors {seen.survivors}, open streams {seen.open_streams}, stuck {seen.stuck}"
    )
    return "\n".join([line, *(f"  unexplained: {words}" for words in seen.unexplained)])


def last_lines(report: Report) -> str:
    width = max(map(len, RUNGS.values()))
    rows = [
        f"  {RUNGS[rung]:{width}} {one.count:7d} {one.p50:8.1f} {one.p95:8.1f} {one.p99:8.1f} {one.max:8.1f}"
        for rung, one in report.stops.items()
    ]
    head = [f"  {'stops, ms':{width}} {'count':>7} {'p50':>8} {'p95':>8} {'p99':>8} {'max':>8}"] if rows else []
    slowest = max(
        (one.slowest for one in report.rounds if one.slowest is not None), key=lambda stop: stop.ms, default=None
    )
    if slowest is not None:
        rows.append(f"  the slowest: {slowest.ms:.0f} ms, {slowest.plan.words}")
    mark = "ok" if report.holds else "MISSED"
    missed = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in report.missed.items())
    trouble = f"; {report.trouble}" if report.trouble else ""
    last = f"{mark}: {report.sessions} sessions, {len(report.rounds)} rounds, seed {report.seed}: {missed}{trouble}"
    return "\n".join([*head, *rows, last])
