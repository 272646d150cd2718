"""A supervisor reduced to its Spawner, with a real zygote and workers that do nothing, in a process of its own.

    python tests/support/spawning.py BODY

BODY is Python that is run as the body of a coroutine function with `on` (a Stage) in reach. What it returns is printed
as JSON. Workers of role `waits` wait until they are killed or the supervisor is gone; each first writes a byte to the
Stage's pipe, so that a second start would show. `fails` ends with 3 at once, with words.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import sys
import textwrap
from collections.abc import Awaitable, Callable
from typing import cast

from haltline.protocol import linux, processes
from haltline.protocol.ids import WorkerId
from haltline.supervisor import chain, zygote
from haltline.supervisor.spawner import Spawner

ROLES = {"waits": "support.spawning:wait", "fails": "support.spawning:fail"}


def wait(boot: bytes, _fd: int | None) -> None:
    begun_w, supervisor = (int(word) for word in boot.split())
    os.write(begun_w, b"b")
    select.select([supervisor], [], [])


def fail(_boot: bytes, _fd: int | None) -> None:
    os.write(2, b"it cannot be done\n")
    os._exit(3)


class Stage:
    """`told` grows by what the spawner reports, in order."""

    def __init__(self, requests: socket.socket, zygote_pid: int, begun: tuple[int, int], supervisor: int) -> None:
        self.spawner = Spawner(requests, zygote_pid, chain="test")
        self.told: list[tuple[str, str]] = []
        self.pids: dict[str, int] = {}
        self._begun_r, self._begun_w = begun
        os.set_blocking(self._begun_r, False)
        self._supervisor = supervisor
        self._changed = asyncio.Event()
        self.spawner.listen(on_spawned=self._spawned, on_exited=self._exited, on_swept=self._swept)

    def spawn(self, name: str, role: str = "waits") -> None:
        self.spawner.spawn(WorkerId(name), role, f"{self._begun_w} {self._supervisor}".encode())

    async def until(self, what: str, name: str) -> None:
        """Until the spawner has said this of the worker."""
        while not any(said[:2] == (what, name) for said in self.told):
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 20)

    def begun(self) -> int:
        """Workers that have begun since the last call."""
        try:
            return len(os.read(self._begun_r, 1000))
        except BlockingIOError:
            return 0

    async def zygote_with_spare(self) -> tuple[int, int]:
        """Pids of both. A spare takes its name when the supervisor's socket holds the word of it."""
        while True:
            await asyncio.sleep(0)
            for zygote_pid in self.named("zygote", os.getpid()):
                for spare_pid in self.named("spare", zygote_pid):
                    return zygote_pid, spare_pid

    def named(self, name: str, parent: int) -> list[int]:
        return [pid for pid in processes.children(parent) if is_named(pid, name)]

    def _spawned(self, worker_id: WorkerId, pid: int) -> None:
        self.pids[worker_id] = pid
        self._tell("spawned", worker_id)

    def _exited(self, worker_id: WorkerId, words: str) -> None:
        self._tell("exited", worker_id, words)

    def _swept(self, worker_id: WorkerId, killed: int, survivors: int) -> None:
        self._tell("swept", worker_id, f"{killed} {survivors}")

    def _tell(self, *words: str) -> None:
        self.told.append(cast("tuple[str, str]", words))
        self._changed.set()


def is_named(pid: int, name: str) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as comm:
            return comm.read().strip() == f"haltline-{name}"
    except OSError:
        return False


def run(body: str) -> object:
    linux.become_subreaper()
    begun = os.pipe()
    supervisor_pidfd = os.pidfd_open(os.getpid())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def be_zygote() -> None:
        ours.close()
        zygote.run(
            theirs,
            supervisor_pidfd,
            roles=ROLES,
            early=("support.spawning",),
            idle=(),
            prepare_worker=lambda: None,
            chain="test",
        )

    zygote_pid = chain.fork(be_zygote)
    theirs.close()

    async def play() -> object:
        on = Stage(ours, zygote_pid, begun, supervisor_pidfd)
        scope: dict[str, Callable[[Stage], Awaitable[object]]] = {}
        source = "async def body(on):\n" + textwrap.indent(textwrap.dedent(body), "    ")
        exec(source, {"os": os, "signal": signal, "asyncio": asyncio, "processes": processes}, scope)
        said = await scope["body"](on)
        on.spawner.quit()
        await asyncio.wait_for(on.spawner.zygote_ended.wait(), 20)
        return said

    return asyncio.run(play())


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))
