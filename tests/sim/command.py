"""`--seeds A:B` runs them side by side on all cores; `--replay SEED` prints one, step by step."""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator

from sim.world import Ran, run

CHUNK = 50
FAILURES_SHOWN = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/sim", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=_range, metavar="A:B", help="run the seeds from A up to, without, B")
    what.add_argument("--replay", type=int, metavar="SEED", help="run one and print what happens")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        return replay(arguments.replay)
    return report(arguments.seeds, arguments.jobs)


def report(seeds: range, jobs: int) -> int:
    began = time.monotonic()
    count = steps = failed = 0
    for ran in run_all(seeds, jobs):
        count += 1
        steps += ran.steps
        if ran.problem is not None:
            failed += 1
            if failed <= FAILURES_SHOWN:
                print(words(ran), flush=True)
    seconds = time.monotonic() - began
    print(f"{count} runs, {steps} events, {seconds:.1f} s, {seconds / count * 1000:.2f} ms a run; {failed} failed")
    return 1 if failed else 0


def run_all(seeds: Iterable[int], jobs: int) -> Iterator[Ran]:
    """In order, on `jobs` processes; 1: in this one, whose garbage is its own affair."""
    if jobs == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _collect_less) as pool:
        yield from pool.imap(run, seeds, CHUNK)


def _collect_less() -> None:
    """Each run is one knot of garbage: looking for it less often is a quarter of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 5, 5)


def words(ran: Ran) -> str:
    """A failed seed, with the command that replays it."""
    return f"{ran.problem} (at {ran.virtual_s:.3f} s)\n    .venv/bin/python tests/sim --replay {ran.seed}"


def replay(seed: int) -> int:
    ran = run(seed, _print)
    print(f"{ran.steps} events in {ran.virtual_s:.3f} s: {ran.problem or 'all invariants hold'}")
    return 1 if ran.problem else 0


def _print(at_s: float, who: str, words: str) -> None:
    sys.stdout.write(f"{at_s:10.4f}  {who:12.32}  {words}\n")


def _range(text: str) -> range:
    first, colon, last = text.partition(":")
    try:
        return range(int(first), int(last)) if colon else range(int(first))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no range A:B") from None
