"""`bin/bench`: measure, print a table, and with --json FILE write the figures. Exit 99 if a bound is missed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from bench import cold_start, delta_delay, stopping
from bench.figures import Figure

OBJECTIVE_MISSED = 99
PARTS: Mapping[str, Callable[[], Iterable[Figure]]] = {
    "start": cold_start.measure,
    "deltas": delta_delay.measure,
    "stopping": stopping.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"measure these alone: {', '.join(PARTS)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    figures: list[Figure] = []
    for part in arguments.parts or PARTS:
        for figure in PARTS[part]():
            print(figure.row(), flush=True)
            figures.append(figure)
    if arguments.json:
        arguments.json.write_text(json.dumps([figure.as_dict() for figure in figures], indent=1) + "\n")
    return 0 if all(figure.holds for figure in figures) else OBJECTIVE_MISSED


if __name__ == "__main__":
    sys.exit(main())
