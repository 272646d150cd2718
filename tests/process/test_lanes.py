"""The supervisor's ends of the lanes on real ZeroMQ sockets: what reports about such machinery found elsewhere, each
with the input of its report (R77 to R81, R90)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import zmq
from support import chain
from support.command import Running, run

from haltline.protocol import codec
from haltline.protocol.boot import WorkerBoot
from haltline.protocol.endpoints import Endpoints, ipc
from haltline.protocol.ids import CallId, SessionId, WorkerId
from haltline.protocol.messages import Cancel, Hello, Ready, RunTool, Shutdown, StartAttempt
from haltline.protocol.settings import ToolLimits
from haltline.supervisor.mailbox import Mailbox
from haltline.worker.actor import Actor, Outbox, Progress

SESSION = SessionId("5e551040")
TOKEN = b"0" * 16
WITHIN_S = 10.0
READY = Ready(cwd="/", delta_window_ms=0.0, tools=ToolLimits())
CANCEL = Cancel(session_id=SESSION, generation=2, level=1, grace_s=2.0)


class Listener:
    """A worker's handler that tells of cancels and does nothing."""

    def __init__(self, heard: asyncio.Queue[Cancel]) -> None:
        self._heard = heard

    def configure(self, ready: Ready) -> None:
        pass

    def work(self, message: StartAttempt | RunTool) -> None:
        pass

    def cancel(self, cancel: Cancel) -> None:
        self._heard.put_nowait(cancel)

    def progress(self) -> Progress:
        return Progress(progress=0)

    async def orphaned(self) -> None:
        pass

    def shutdown(self) -> None:
        pass


class Ends:
    """The supervisor's mailbox; `ready` has the worker that may be spoken to."""

    def __init__(self, folder: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.endpoints = Endpoints(str(folder))
        self.ready: asyncio.Queue[WorkerId] = asyncio.Queue()
        self.mailbox = Mailbox(
            context,
            self.endpoints,
            on_ready=self.on_ready,
            on_message=lambda _worker_id, _message: None,
            call_later=asyncio.get_running_loop().call_later,
        )

    def on_ready(self, worker_id: WorkerId) -> None:
        self.ready.put_nowait(worker_id)

    def expect(self, number: int) -> WorkerBoot:
        worker_id = WorkerId(f"llm-{SESSION}-{number}-00")
        self.mailbox.expect(worker_id, "llm", SESSION, TOKEN)
        return WorkerBoot(
            role="llm",
            session_id=SESSION,
            worker_id=worker_id,
            token=TOKEN,
            mailbox=self.endpoints.mailbox,
            broadcast=self.endpoints.broadcast,
            supervisor_pidfd=None,
        )


class SpeaksAtOnce(Ends):
    """It cancels, by broadcast alone, in the very moment in which a worker counts as ready."""

    def on_ready(self, worker_id: WorkerId) -> None:
        self.mailbox.broadcast((worker_id,), CANCEL)
        super().on_ready(worker_id)


def with_sockets(body: Callable[[zmq.Context[zmq.Socket[bytes]]], Awaitable[None]]) -> None:
    async def main() -> None:
        context = zmq.Context[zmq.Socket[bytes]]()
        async with asyncio.timeout(WITHIN_S):
            await body(context)
        context.destroy(linger=0)

    asyncio.run(main())


def let_go(actor: Actor) -> None:
    for lane in (actor._broadcast, actor._mailbox):
        asyncio.get_running_loop().remove_reader(int(lane.getsockopt(zmq.FD)))
        lane.close(linger=0)


def test_a_cancel_in_the_moment_of_ready_is_never_lost(home: Path) -> None:
    """R77: start a worker, cancel in the same millisecond, 100 times. The broadcast alone has to arrive."""

    async def body(context: zmq.Context[zmq.Socket[bytes]]) -> None:
        ends = SpeaksAtOnce(home, context)
        heard: asyncio.Queue[Cancel] = asyncio.Queue()

        def listen(_outbox: Outbox) -> Listener:
            return Listener(heard)

        for number in range(100):
            actor = Actor(ends.expect(number), listen, context)
            actor.start()
            assert await heard.get() == CANCEL, number
            let_go(actor)
        ends.mailbox.close()

    with_sockets(body)


class Peer:
    """A worker that proved itself and then reads nothing until it is told to: its end of the mailbox holds little."""

    def __init__(self, boot: WorkerBoot, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._broadcast = context.socket(zmq.SUB)
        self._broadcast.subscribe(boot.worker_id.encode())
        self._broadcast.connect(ipc(boot.broadcast))
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.RCVHWM, 10)
        self.socket.setsockopt(zmq.ROUTING_ID, boot.worker_id.encode())
        self.socket.connect(ipc(boot.mailbox))
        self.socket.send(codec.from_worker.encode(Hello(role="llm", session_id=SESSION, token=TOKEN)))

    async def read(self, count: int) -> list[object]:
        got: list[object] = []
        while len(got) < count:
            while self.socket.poll(0):
                got.append(codec.to_worker.decode(self.socket.recv()))
            await asyncio.sleep(0)
        return got

    def close(self) -> None:
        self._broadcast.close(linger=0)
        self.socket.close(linger=0)


def numbered(number: int) -> RunTool:
    """Of 2 KiB: 5,000 of them fit into no buffer on the way."""
    return RunTool(
        session_id=SESSION,
        run=1,
        turn=number,
        generation=1,
        call_id=CallId(f"c{number}"),
        name="shell",
        arguments=b"x" * 2_048,
        timeout_s=1.0,
    )


def test_a_worker_that_reads_nothing_loses_nothing(home: Path) -> None:
    """R78: 5,000 messages to a stopped worker. A full pipe is backpressure: they wait, and come in order."""

    async def body(context: zmq.Context[zmq.Socket[bytes]]) -> None:
        ends = Ends(home, context)
        peer = Peer(ends.expect(1), context)
        worker_id = await ends.ready.get()
        messages = [numbered(number) for number in range(5_000)]
        for message in messages:
            ends.mailbox.send(worker_id, message)
        assert ends.mailbox._full[worker_id], "the pipe never filled: this shows nothing"
        assert await peer.read(len(messages)) == messages
        assert ends.mailbox._full == {}
        peer.close()
        ends.mailbox.close()

    with_sockets(body)


def test_a_message_to_a_worker_that_is_gone_is_no_error_and_is_not_kept(home: Path) -> None:
    """R78: an unknown peer. Its end is learnt from its pidfd, not from its mailbox."""

    async def body(context: zmq.Context[zmq.Socket[bytes]]) -> None:
        ends = Ends(home, context)
        ends.mailbox.send(WorkerId("llm-never-seen"), Shutdown())
        assert ends.mailbox._full == {}
        ends.mailbox.close()

    with_sockets(body)


def test_a_socket_that_another_thread_uses_says_so(home: Path) -> None:
    """R90: one owner thread per socket."""

    async def body(context: zmq.Context[zmq.Socket[bytes]]) -> None:
        ends = Ends(home, context)
        caught: list[BaseException] = []

        def intrude() -> None:
            try:
                ends.mailbox.send(WorkerId("llm"), Shutdown())
            except AssertionError as error:
                caught.append(error)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        assert len(caught) == 1
        ends.mailbox.close()

    with_sockets(body)


def test_unsent_messages_hold_nobody_at_the_end(home: Path) -> None:
    """R79: a worker that reads nothing any more, and messages queued for it: the context's end does not wait for
    them. The worker is a process of its own, stopped."""

    async def body(context: zmq.Context[zmq.Socket[bytes]]) -> None:
        ends = Ends(home, context)
        boot = ends.expect(1)
        child = silent_worker(boot)
        try:
            worker_id = await ends.ready.get()
            os.kill(child.pid, signal.SIGSTOP)
            for number in range(5_000):
                ends.mailbox.send(worker_id, numbered(number))
            assert ends.mailbox._full[worker_id], "everything was sent: this shows nothing"
            ends.mailbox.close()
            await asyncio.get_running_loop().run_in_executor(None, context.term)
        finally:
            child.kill()
            child.communicate()

    with_sockets(body)


SILENT_WORKER = """
import sys, zmq
from haltline.protocol import codec
from haltline.protocol.messages import Hello
worker_id, mailbox, broadcast, token = sys.argv[1:]
context = zmq.Context()
subscriber = context.socket(zmq.SUB)
subscriber.subscribe(worker_id.encode())
subscriber.connect(broadcast)
dealer = context.socket(zmq.DEALER)
dealer.setsockopt(zmq.RCVHWM, 10)
dealer.setsockopt(zmq.ROUTING_ID, worker_id.encode())
dealer.connect(mailbox)
dealer.send(codec.from_worker.encode(Hello(role="llm", session_id=worker_id.split("-")[1], token=bytes.fromhex(token))))
sys.stdin.read()
"""


def silent_worker(boot: WorkerBoot) -> subprocess.Popen[bytes]:
    """It says hello and reads nothing."""
    arguments = (boot.worker_id, ipc(boot.mailbox), ipc(boot.broadcast), TOKEN.hex())
    return subprocess.Popen([sys.executable, "-c", SILENT_WORKER, *arguments], stdin=subprocess.PIPE)


def threads(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Threads:")]
    return int(line.split()[1])


def test_whoever_forks_has_one_thread_and_so_no_zmq_context() -> None:
    """R80: a context does not survive a fork. Guard and zygote are the ones who fork; a context brings threads."""
    running = Running(["run", "-m", "demo/slow", "--json", "hi"])
    running.until(lambda event: event["type"] == "message" and bool(event["delta"]))
    pids = chain.members(running)
    assert {name: threads(pids[name]) for name in ("guard", "zygote")} == {"guard": 1, "zygote": 1}
    assert threads(pids["supervisor"]) > 1
    running.process.send_signal(signal.SIGINT)
    assert running.end().exit_code == 130


@pytest.fixture
def long_tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TMPDIR of at least 120 characters, and nothing else that says where sockets go."""
    folder = tmp_path / ("t" * 120)
    folder.mkdir()
    monkeypatch.delenv("HALTLINE_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.usefixtures("long_tmpdir")
def test_a_temporary_folder_of_120_characters_is_no_hindrance() -> None:
    """R81: a socket address holds 107 bytes."""
    assert run("run", "-m", "demo/ok", "--json", "hi").exit_code == 0


def test_a_run_after_one_that_was_shot_and_beside_one_that_lives() -> None:
    """R81: files that a dead supervisor left hinder nobody, and two at once do not take each other's sockets."""
    shot = Running(["run", "-m", "demo/slow", "--json", "hi"])
    shot.until(lambda event: event["type"] == "message" and bool(event["delta"]))
    pids = chain.members(shot)
    for name in ("guard", "supervisor"):
        os.kill(pids[name], signal.SIGKILL)
    assert shot.end().exit_code == 79

    first = Running(["run", "-m", "demo/slow", "--json", "hi"])
    first.until(lambda event: event["type"] == "message" and bool(event["delta"]))
    second = run("run", "-m", "demo/ok", "--json", "hi")
    assert (second.exit_code, second.result["reason"]) == (0, "completed")
    assert len(run("ps", "-q").stdout.split()) == 1
    first.process.send_signal(signal.SIGINT)
    assert first.end().exit_code == 130
