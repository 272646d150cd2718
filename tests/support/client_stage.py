"""A stage for the terminal's side: the client under test in a thread, a real ROUTER that the test speaks through,
real pipes for its streams and signals, and two real processes whose deaths stand for the supervisor's and the guard's.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import zmq

from haltline.cli.client import Client
from haltline.cli.outlet import Outlet
from haltline.cli.owned import Owned
from haltline.cli.pieces import View
from haltline.protocol import codec, events
from haltline.protocol.client_messages import ClientHello, Shown, ToClient, ToSupervisor, Welcome
from haltline.protocol.conversation import Usage
from haltline.protocol.endpoints import ipc
from haltline.protocol.ids import SessionId
from haltline.protocol.lines import Line
from haltline.supervisor.chain import Chain

WITHIN_S = 10.0
SESSION = SessionId("abcdef01")
OK = events.Result(
    reason="completed", message="", text="", retryable=False, exit_code=0, usage=Usage(), counters=events.Counters(),
    turns=1, attempts=1, tool_calls=0, tool_runs=0, ms=1,
)  # fmt: skip

T = TypeVar("T")


class Stage:
    """`hear` and `say` are the supervisor's; `out` and `err` what the client wrote so far; `type` its stdin."""

    def __init__(self, folder: Path) -> None:
        self._chain = Chain(str(folder), log_kept=str(folder / "kept.log"))
        self.signals_r, self._signals_w = os.pipe()
        os.set_blocking(self.signals_r, False)
        self.out_r, self.out_w = os.pipe()
        self.err_r, self.err_w = os.pipe()
        self.in_r, self.in_w = os.pipe()
        self.supervisor = _bystander()
        self.guard = _bystander()
        self.owned = Owned(chain=self._chain, guard_pid=self.guard.pid, signals_fd=self.signals_r)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._client = b""
        self._clients: list[Client] = []
        self._seq = 0
        self._out = b""
        self._err = b""

    def client(self, view: View) -> Client:
        outlet = Outlet(out_fd=self.out_w, err_fd=self.err_w, same_screen=False)
        client = Client(self.owned, view=view, outlet=outlet, stdin_fd=self.in_r)
        self._clients.append(client)
        return client

    def bind(self, line: bytes = b"ready\n") -> None:
        """The supervisor's sockets stand, and it says so."""
        self._router.bind(ipc(self.owned.endpoints.clients))
        os.write(self._chain.ready_w, line)

    def welcome(self) -> ClientHello:
        hello = self.hear(ClientHello)
        self.say(Welcome(supervisor_pid=self.supervisor.pid))
        return hello

    def hear(self, kind: type[T]) -> T:
        """The next message of the client, which has to be of this kind."""
        assert self._router.poll(int(WITHIN_S * 1000)), f"no {kind.__name__} came; stderr: {self.err!r}"
        self._client, data = self._router.recv_multipart()
        message: ToSupervisor = codec.to_supervisor.decode(data)
        assert isinstance(message, kind), message
        return message

    def hears_nothing(self) -> bool:
        return not self._router.poll(0)

    def say(self, message: ToClient) -> None:
        self._router.send_multipart((self._client, codec.to_client.encode(message)))

    def show(self, *shown: events.AnyEvent) -> None:
        for event in shown:
            self._seq += 1
            line = Line(seq=self._seq, ts="2026-01-01T00:00:00.000Z", session_id=SESSION, run=1, turn=1, event=event)
            self.say(Shown(line=line))

    def press(self, number: int) -> None:
        os.write(self._signals_w, bytes((number,)))

    def type(self, text: str) -> None:
        os.write(self.in_w, text.encode())

    def supervisor_writes(self, words: str) -> str:
        """Words in its log. Returns where the guard would keep them."""
        Path(self._chain.log).write_text(words)
        return self._chain.log_kept

    def supervisor_dies(self) -> None:
        self.supervisor.kill()

    def until_open(self, client: Client) -> None:
        """Wait until the client knows its session: from then on it has a run that can be stopped."""
        for _ in range(int(WITHIN_S * 1000)):
            if client.is_open:
                return
            self._router.poll(1)
        raise AssertionError("the client did not learn of its session")

    def everything_ends(self) -> None:
        self.supervisor.kill()
        self.guard.kill()

    def until_err(self, words: str) -> None:
        """Wait until the client has written these words to stderr."""
        while words.encode() not in self.err:
            ready, _, _ = select.select((self.err_r,), (), (), WITHIN_S)
            assert ready, f"{words!r} was not said; stderr: {self.err!r}"

    def until_out(self, words: str) -> None:
        while words.encode() not in self.out:
            ready, _, _ = select.select((self.out_r,), (), (), WITHIN_S)
            assert ready, f"{words!r} was not shown; stdout: {self.out!r}"

    @property
    def out(self) -> bytes:
        self._out += _available(self.out_r)
        return self._out

    @property
    def err(self) -> bytes:
        self._err += _available(self.err_r)
        return self._err

    def close(self) -> None:
        for process in (self.supervisor, self.guard):
            process.kill()
            process.wait()
        for client in self._clients:
            client.hang_up()
        self._router.close()
        self._context.term()
        chain = self._chain
        for fd in (
            self.signals_r, self._signals_w, self.out_r, self.out_w, self.err_r, self.err_w, self.in_r, self.in_w,
            chain.ready_r, chain.ready_w, chain.bye_r, chain.bye_w, chain.client_pidfd, chain.ended_fd,
            self.owned.guard_fd,
        ):  # fmt: skip
            os.close(fd)


class Acting(threading.Thread):
    """Runs `body` beside the test; `result` waits for what it returns, or raises what it raised."""

    def __init__(self, body: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._body = body
        self._returned: object = None
        self._raised: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._returned = self._body()
        except BaseException as error:  # noqa: BLE001  (handed to the test)
            self._raised = error

    def result(self) -> object:
        self.join(WITHIN_S)
        assert not self.is_alive(), "the client did not come to an end"
        if self._raised is not None:
            raise self._raised
        return self._returned


@contextmanager
def staged(folder: Path) -> Generator[Stage]:
    stage = Stage(folder)
    try:
        yield stage
    finally:
        stage.close()


def _bystander() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])


def _available(fd: int) -> bytes:
    data = b""
    while select.select((fd,), (), (), 0)[0]:
        piece = os.read(fd, 65536)
        if not piece:
            break
        data += piece
    return data
