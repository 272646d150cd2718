"""A supervisor reduced to its Spawner, with a real zygote, in a process of its own.

    from support.spawning import run
    print(run(BODY))

BODY is the body of a coroutine function with a Stage in reach as `on`; what it returns is printed as JSON.
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

from haltline.protocol import linux, processes
from haltline.protocol.ids import WorkerId
from haltline.supervisor import chain, zygote
from haltline.supervisor.spawner import Spawner

ROLES = {
    "waits": "support.spawning:wait",
    "fails": "support.spawning:fail",
    "leaves": "support.spawning:leave",
}
WITHIN_S = 20.0


def wait(boot: bytes, _fd: int | None) -> None:
    """Until killed, or the supervisor is gone. The byte shows each time that this worker began."""
    begun_w, supervisor = (int(word) for word in boot.split())
    os.write(begun_w, b"b")
    select.select([supervisor], [], [])


def fail(_boot: bytes, _fd: int | None) -> None:
    os.write(2, b"it cannot be done\n")
    raise SystemExit(3)


def leave(_boot: bytes, _fd: int | None) -> None:
    """Ends, and leaves a process that ignores SIGTERM, for 20 s at most."""
    in_place_r, in_place_w = os.pipe()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(in_place_w, b".")
        select.select([], [], [], 20)
    else:
        os.read(in_place_r, 1)


class Stage:
    """`told`: what the spawner reported, in order: (spawned, exited or swept; worker; words)."""

    def __init__(
        self, requests: socket.socket, zygote_pid: int, begun: tuple[int, int], supervisor: int, refusing: str
    ) -> None:
        self.spawner = Spawner(requests, zygote_pid, chain="stage")
        self.told: list[tuple[str, str, str]] = []
        self.pids: dict[str, int] = {}
        self._begun_r, self._begun_w = begun
        os.set_blocking(self._begun_r, False)
        self._supervisor = supervisor
        self._refusing = refusing
        self._changed = asyncio.Event()
        self.spawner.listen(on_spawned=self._spawned, on_exited=self._exited, on_swept=self._swept)

    def spawn(self, *names: str, role: str = "waits") -> None:
        for name in names:
            self.spawner.spawn(WorkerId(name), role, f"{self._begun_w} {self._supervisor}".encode())

    async def until(self, what: str, *names: str) -> str:
        """Until the spawner has said this of all of them; its words about the last one."""
        wanted = {(what, name) for name in names}
        while not wanted <= {said[:2] for said in self.told}:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), WITHIN_S)
        return next(said[2] for said in self.told if said[:2] == (what, names[-1]))

    async def kill(self, *names: str) -> None:
        for name in names:
            self.spawner.kill(WorkerId(name))
        await self.until("swept", *names)

    async def begun(self, count: int) -> int:
        """Waits until so many workers have begun since the last call; how many did."""
        seen = 0
        while seen < count:
            readable = asyncio.Event()
            asyncio.get_running_loop().add_reader(self._begun_r, readable.set)
            await asyncio.wait_for(readable.wait(), WITHIN_S)
            seen += len(os.read(self._begun_r, 1_000))
        asyncio.get_running_loop().remove_reader(self._begun_r)
        return seen

    async def zygote_with_spare(self, *but: int) -> tuple[int, int]:
        """Pids of both, neither of them in `but`. A spare takes its name when the supervisor has the word of it."""
        until = asyncio.get_running_loop().time() + WITHIN_S
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0)
            for zygote_pid in named("zygote", os.getpid()):
                for spare_pid in named("spare", zygote_pid):
                    if not {zygote_pid, spare_pid} & set(but):
                        return zygote_pid, spare_pid
        raise AssertionError("no zygote with a spare")

    async def turns(self, count: int) -> None:
        """So many turns of the loop."""
        for _ in range(count):
            await asyncio.sleep(0)

    def refuse_forks(self, refuse: bool) -> None:
        """Whether the system has room for another process of the zygote's."""
        if refuse:
            os.close(os.open(self._refusing, os.O_CREAT))
        else:
            os.unlink(self._refusing)

    def _spawned(self, worker_id: WorkerId, pid: int) -> None:
        self.pids[worker_id] = pid
        self._tell("spawned", worker_id)

    def _exited(self, worker_id: WorkerId, words: str) -> None:
        self._tell("exited", worker_id, words)

    def _swept(self, worker_id: WorkerId, killed: int, survivors: int) -> None:
        self._tell("swept", worker_id, f"{killed} killed, {survivors} left")

    def _tell(self, what: str, worker_id: WorkerId, words: str = "") -> None:
        self.told.append((what, worker_id, words))
        self._changed.set()


def named(name: str, parent: int) -> list[int]:
    """Children of `parent` that are this kind of process of ours."""
    return [pid for pid in processes.children(parent) if _is_named(pid, name)]


def _is_named(pid: int, name: str) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as comm:
            return comm.read().strip() == f"haltline-{name}"
    except OSError:
        return False


def run(body: str) -> str:
    linux.become_subreaper()
    begun = os.pipe()
    supervisor_pidfd = os.pidfd_open(os.getpid())
    refusing = f"{os.environ['HALTLINE_HOME']}/refusing"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def be_zygote() -> None:
        ours.close()
        os.fork = _refusing_fork(refusing)
        zygote.run(
            theirs,
            supervisor_pidfd,
            roles=ROLES,
            early=("support.spawning",),
            idle=(),
            prepare_worker=lambda: None,
            chain="stage",
        )

    zygote_pid = chain.fork(be_zygote)
    theirs.close()

    async def play() -> object:
        on = Stage(ours, zygote_pid, begun, supervisor_pidfd, refusing)
        scope: dict[str, Callable[[Stage], Awaitable[object]]] = {}
        known = {"os": os, "signal": signal, "processes": processes, "named": named}
        exec("async def body(on):\n" + textwrap.indent(textwrap.dedent(body), "    "), known, scope)
        said = await scope["body"](on)
        on.spawner.quit()
        await asyncio.wait_for(on.spawner.zygote_ended.wait(), WITHIN_S)
        return said

    return json.dumps(asyncio.run(play()))


def _refusing_fork(refusing: str) -> Callable[[], int]:
    fork = os.fork

    def refuse_or_fork() -> int:
        if os.path.exists(refusing):
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    return refuse_or_fork


if __name__ == "__main__":
    print(run(sys.stdin.read()))
