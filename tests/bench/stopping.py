"""From the key to what a stop promises (design 11): acknowledged, stream closed, nothing alive, the command gone.

Seen from outside, from the SIGINT on: streams by the server, processes through pidfds. Only the acknowledgement of one
session is the supervisor's own measure, from the request to the last worker's word: what a client adds is in the last
four figures, which are medians of whole runs.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from support.asking_gateway import AskingGateway, asking

from bench import bare
from bench.figures import Figure, percentile
from bench.observed import Observed, Stopped, is_text
from bench.stamping_server import StampingServer

ISOLATIONS = ("pidns", "subreaper")
"""How the tool worker is kept apart: each has its own way to see a tree gone."""
TREE = 10
POLITE = "for i in 1 2 3 4 5 6 7 8 9; do sleep 600 & done; wait"
"""TREE processes with the shell, all of which obey SIGTERM."""
LONG = "sleep 15 & sleep 15; echo ended"
STUBBORN = "for i in 1 2 3; do sh -c 'trap \"\" TERM INT HUP; while :; do sleep 1; done' & done; wait"
STUBBORN_TREE = 7
WAITED = "the wait itself"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many stops of each sort."""

    prompts: int = 200
    trees: int = 60
    runs: int = 20
    slow: int = 3
    """Of those that take 2 s each."""


def measure(counts: Counts = Counts()) -> Iterator[Figure]:
    yield from _acknowledged(counts.prompts)
    yield from _hung(counts.slow)
    for isolation in ISOLATIONS:
        yield from _run_with_stream(isolation, counts.runs)
    with asking() as server:
        for isolation in ISOLATIONS:
            yield from _polite(server, isolation, counts.trees)
            yield from _run_with_tree(server, isolation, counts.runs)
        yield from _long(server, counts.slow)
        yield from _stubborn(server, counts.slow)


def _acknowledged(count: int) -> list[Figure]:
    """Mid-stream; the session is one, and its runs are prompts of one chat."""
    server = StampingServer(deltas=1_000_000, rate=50)
    with Observed("chat", base_url=server.base_url) as chat:
        stops: list[Stopped] = []
        for _ in range(count):
            chat.prompt()
            chat.until(is_text)
            stops.append(chat.stop([]))
    server.close()
    echo = bare.echoes(count)
    own = [stop.own_ms for stop in stops]
    name = "cancel to both acknowledged, one session"
    return [
        Figure(f"{name}, p99", "ms", percentile(own, 0.99), percentile(echo, 0.99), "zmq echo", 5, 2, count),
        Figure(f"{name}, p50", "ms", percentile(own, 0.5), percentile(echo, 0.5), "zmq echo", None, None, count),
    ]


def _hung(count: int) -> list[Figure]:
    """The LLM worker is stopped by SIGSTOP; until all processes of the run have ended, the command included."""
    server = StampingServer(deltas=1_000_000, rate=50)
    gone: list[float] = []
    for _ in range(count):
        with Observed("run", base_url=server.base_url) as run:
            run.until(is_text)
            os.kill(run.worker("llm"), signal.SIGSTOP)
            gone.append(run.stop(run.everything()).gone_ms)
    server.close()
    return [Figure("hung worker: all gone, worst", "ms", max(gone), 2000.0, WAITED, 2300, 2100, count)]


def _run_with_stream(isolation: str, count: int) -> list[Figure]:
    server = StampingServer(deltas=1_000_000, rate=50)
    closed: list[float] = []
    told: list[float] = []
    ended: list[float] = []
    for number in range(1, count + 1):
        with Observed("run", "--isolation", isolation, base_url=server.base_url) as run:
            run.until(is_text)
            run.worker("tool")  # it may become ready after the first text
            stop = run.stop([run.process.pid])
            bare.wait_for_more(server.left, number)
            closed.append((server.left[-1] - stop.began) * 1000)
            told.append(stop.told_ms)
            ended.append(stop.gone_ms)
    server.close()
    bare_closed, bare_ended = bare.clients(count)

    def median(what: str, ours: list[float], theirs: list[float], at_least: float, aim: float) -> Figure:
        name = f"SIGINT to {what}, p50 ({isolation})"
        floor = percentile(theirs, 0.5)
        return Figure(name, "ms", percentile(ours, 0.5), floor, "a bare client's death", at_least, aim, count)

    return [
        median("the server sees the disconnect", closed, bare_closed, 15, 4),
        median("both acknowledged", told, bare_closed, 15, 5),
        median("the client's exit", ended, bare_ended, 60, 15),
    ]


def _polite(server: AskingGateway, isolation: str, count: int) -> list[Figure]:
    gone = list(_gone_in_a_chat(server, POLITE, TREE, isolation, count))
    name = f"cancel to nothing alive, polite tree of {TREE}, p99 ({isolation})"
    floor = percentile(bare.trees(TREE, count), 0.99)
    return [Figure(name, "ms", percentile(gone, 0.99), floor, "bare kill and reap", 100, 50, count)]


def _long(server: AskingGateway, count: int) -> list[Figure]:
    gone = list(_gone_in_a_chat(server, LONG, 3, "auto", count))
    floor = max(bare.trees(3, count))
    return [Figure("a 15 s command gone, worst", "ms", max(gone), floor, "bare kill and reap", 1000, None, count)]


def _run_with_tree(server: AskingGateway, isolation: str, count: int) -> list[Figure]:
    server.command = POLITE
    gone: list[float] = []
    for _ in range(count):
        with Observed("run", "--isolation", isolation, base_url=server.base_url) as run:
            gone.append(run.stop(run.tree(run.worker("tool"), TREE)).gone_ms)
    floor = percentile(bare.trees(TREE, count), 0.5)
    name = f"SIGINT to a tree of {TREE} gone, p50 ({isolation})"
    return [Figure(name, "ms", percentile(gone, 0.5), floor, "bare kill and reap", 30, 5, count)]


def _stubborn(server: AskingGateway, count: int) -> list[Figure]:
    """Traps are set once their loops run, so the tree is whole when all of it is there."""
    once = list(_gone_in_a_chat(server, STUBBORN, STUBBORN_TREE, "auto", count))
    twice: list[float] = []
    server.command = STUBBORN
    for _ in range(count):
        with Observed("run", base_url=server.base_url) as run:
            tree = run.tree(run.worker("tool"), STUBBORN_TREE)
            run.stop([], until_end=False)
            twice.append(run.stop(tree).gone_ms)
    floor = max(bare.trees(STUBBORN_TREE, count, signal.SIGKILL))
    name = "a tree that ignores SIGTERM gone"
    return [
        Figure(f"{name}, worst", "ms", max(once), 2000.0, WAITED, 2300, 2100, count),
        Figure(f"{name} after a second cancel, worst", "ms", max(twice), floor, "bare kill and reap", 300, None, count),
    ]


def _gone_in_a_chat(server: AskingGateway, command: str, processes: int, isolation: str, count: int) -> Iterator[float]:
    """For each of `count` prompts, each stopped: until the tree of its call was gone."""
    server.command = command
    with Observed("chat", "--isolation", isolation, base_url=server.base_url) as chat:
        tool = None
        for _ in range(count):
            chat.prompt()
            tool = chat.worker("tool") if tool is None else tool
            stop = chat.stop(chat.tree(tool, processes))
            assert not math.isnan(stop.gone_ms)
            yield stop.gone_ms
