"""`bin/bench`: measure, print a table, and with --json FILE write the figures. Exit 99 if a bound is missed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench import cold_start, delta_delay

OBJECTIVE_MISSED = 99


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    figures = [*cold_start.measure(), *delta_delay.measure()]
    for figure in figures:
        print(figure.row())
    if arguments.json:
        arguments.json.write_text(json.dumps([figure.as_dict() for figure in figures], indent=1) + "\n")
    return 0 if all(figure.holds for figure in figures) else OBJECTIVE_MISSED


if __name__ == "__main__":
    sys.exit(main())
