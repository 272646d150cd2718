"""Calibrations of stopping: the same steps with nothing of haltline in between, in the same minute."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time

import zmq

from bench.stamping_server import StampingServer

_CLIENT = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
print(flush=True)
time.sleep(60)
"""


def echoes(count: int) -> list[float]:
    """Round trips of one small message over ipc, ROUTER to DEALER of another process, milliseconds."""
    with tempfile.TemporaryDirectory(prefix="hl-") as folder:
        address = f"ipc://{folder}/echo"
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            router.bind(address)
            child = os.fork()
            if child == 0:
                _echo(address)
            identity, _ = router.recv_multipart()
            times: list[float] = []
            for _ in range(count):
                began = time.monotonic()
                router.send_multipart([identity, b"cancel"])
                router.recv_multipart()
                times.append((time.monotonic() - began) * 1000)
                time.sleep(0.005)  # an idle lane, as that of a cancel
            router.send_multipart([identity, b""])
            os.waitpid(child, 0)
    return times


def _echo(address: str) -> None:
    try:
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.connect(address)
            dealer.send(b"hello")
            while message := dealer.recv():
                dealer.send(message)
    finally:
        os._exit(0)


def trees(processes: int, count: int, number: int = signal.SIGTERM) -> list[float]:
    """From the signal to a group of `processes` sleepers, all children of ours, until all are reaped, milliseconds."""
    times: list[float] = []
    for _ in range(count):
        leader = subprocess.Popen(["sleep", "600"], process_group=0)
        group = [leader, *(subprocess.Popen(["sleep", "600"], process_group=leader.pid) for _ in range(processes - 1))]
        began = time.monotonic()
        os.killpg(leader.pid, number)
        for process in group:
            process.wait()
        times.append((time.monotonic() - began) * 1000)
    return times


def clients(count: int) -> tuple[list[float], list[float]]:
    """A bare process with an open response that dies of a signal: milliseconds until its server sees the end, and until
    it has ended."""
    closed: list[float] = []
    ended: list[float] = []
    server = StampingServer(deltas=1_000_000, rate=10)
    port = server.base_url.rpartition(":")[2].removesuffix("/v1")
    for number in range(1, count + 1):
        with subprocess.Popen([sys.executable, "-I", "-S", "-c", _CLIENT, port], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            fd = os.pidfd_open(process.pid)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            select.select([fd], [], [])
            ended.append((time.monotonic() - began) * 1000)
            os.close(fd)
            wait_for_more(server.left, number)
            closed.append((server.left[-1] - began) * 1000)
    server.close()
    return closed, ended


def wait_for_more(moments: list[float], count: int, within_s: float = 5.0) -> None:
    """Until another thread has noted so many."""
    deadline = time.monotonic() + within_s
    while len(moments) < count:
        assert time.monotonic() < deadline, f"{len(moments)} of {count} in time"
        time.sleep(0.001)
