"""A real tool worker, and this side of its sockets in the role of the supervisor."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import zmq
from support import survivors, vices

from haltline.protocol import codec
from haltline.protocol.boot import WorkerBoot
from haltline.protocol.endpoints import Endpoints, ipc
from haltline.protocol.ids import CallId, SessionId, WorkerId
from haltline.protocol.kinds import Isolation
from haltline.protocol.messages import (
    Cancel,
    CancelAcknowledged,
    CancelDone,
    FromWorker,
    Heartbeat,
    Hello,
    Outcome,
    Ready,
    RunTool,
    Shutdown,
    ToolEnded,
    ToolLeadsOutside,
    ToolStarted,
    ToWorker,
)
from haltline.protocol.settings import ToolLimits

PATIENCE_S = 20.0
"""A test that waits longer than this has failed."""

SESSION = SessionId("5e551040")
WORKER = WorkerId("tool-5e551040-1-00")

PROGRAM = """
{prelude}
import sys
import msgspec
from haltline.protocol.boot import WorkerBoot
from haltline.worker.tool.main import main
main(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=WorkerBoot))
"""

M = TypeVar("M", bound=FromWorker)


class ToolWorker:
    """One worker process in `workspace`, proven and ready."""

    def __init__(
        self,
        workspace: Path,
        *,
        limits: ToolLimits | None = None,
        environment: dict[str, str] | None = None,
        key_variable: str | None = None,
        prelude: str = "",
        inject: str = "",
        isolation: Isolation = "subreaper",
    ) -> None:
        """`prelude`: Python run in the worker before it begins, for a fault that no input causes."""
        self.workspace = workspace
        self.isolation = isolation
        self._limits = limits
        self._key_variable = key_variable
        self._inject = inject
        self.generation = 1
        self.turn = 1
        self.came: list[FromWorker] = []
        """Everything but heartbeats, in order, taken or not."""
        self.heartbeats: list[Heartbeat] = []
        self._calls = 0
        self._folder = tempfile.TemporaryDirectory(prefix="hl-tool-", dir="/tmp")
        places = Endpoints(self._folder.name)
        fifo = f"{self._folder.name}/ready"
        os.mkfifo(fifo)
        self._ready = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)  # also for writing: no end-of-file between two vices
        self._context = zmq.Context()
        self._mailbox = self._context.socket(zmq.ROUTER)
        self._mailbox.bind(ipc(places.mailbox))
        self._broadcast = self._context.socket(zmq.XPUB)
        self._broadcast.bind(ipc(places.broadcast))
        us = os.pidfd_open(os.getpid())  # a test run that is killed must not leave a worker behind
        boot = WorkerBoot(
            role="tool",
            session_id=SESSION,
            worker_id=WORKER,
            token=b"0" * 16,
            mailbox=places.mailbox,
            broadcast=places.broadcast,
            supervisor_pidfd=us,
            isolation=isolation,
        )
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (read and closed by close)
        with tempfile.TemporaryFile() as stdin:
            stdin.write(msgspec.msgpack.encode(boot))
            stdin.seek(0)
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM.format(prelude=prelude)],
                stdin=stdin,
                stderr=self._stderr,
                env=os.environ | {"READY": fifo} | (environment or {}),
                start_new_session=True,
                pass_fds=(us,),
            )
        os.close(us)
        self.errors = ""
        """The worker's stderr, once it was closed."""

    def __enter__(self) -> Self:
        try:
            self.wait_for(Hello)
        except BaseException:
            self.close()
            raise
        self.send(
            Ready(
                cwd=str(self.workspace),
                delta_window_ms=20.0,
                tools=self._limits or ToolLimits(),
                key_variable=self._key_variable,
                inject=self._inject,
            )
        )
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, message: ToWorker) -> None:
        self._mailbox.send_multipart([WORKER.encode(), codec.to_worker.encode(message)])

    def start(
        self,
        name: str,
        *,
        timeout_s: float = PATIENCE_S,
        outside_allowed: bool = False,
        **arguments: object,
    ) -> CallId:
        """Give out a call of the turn at hand."""
        self._calls += 1
        return self._give_out(CallId(f"c{self._calls}"), name, timeout_s, outside_allowed, arguments)

    def allow_outside(self, call_id: CallId, name: str, **arguments: object) -> None:
        """Give out a call once more that was handed back."""
        self._give_out(call_id, name, PATIENCE_S, True, arguments)

    def _give_out(
        self, call_id: CallId, name: str, timeout_s: float, outside_allowed: bool, arguments: Mapping[str, object]
    ) -> CallId:
        self.send(
            RunTool(
                session_id=SESSION,
                run=1,
                turn=self.turn,
                generation=self.generation,
                call_id=call_id,
                name=name,
                arguments=msgspec.json.encode(arguments),
                timeout_s=timeout_s,
                outside_allowed=outside_allowed,
            )
        )
        return call_id

    def run(
        self, name: str, *, timeout_s: float = PATIENCE_S, outside_allowed: bool = False, **arguments: object
    ) -> Outcome:
        """`start` in a turn of its own, then `ended`."""
        self.turn += 1
        return self.ended(self.start(name, timeout_s=timeout_s, outside_allowed=outside_allowed, **arguments))

    def ended(self, call_id: CallId) -> Outcome:
        return self.wait_for(ToolEnded, lambda message: message.call_id == call_id).outcome

    def led_outside(self, call_id: CallId) -> str:
        """Where the path of a call leads that was handed back because it lies outside."""
        return self.wait_for(ToolLeadsOutside, lambda message: message.call_id == call_id).real

    def started(self, call_id: CallId) -> ToolStarted:
        return self.wait_for(ToolStarted, lambda message: message.call_id == call_id)

    def vice(self, name: str, *arguments: str, timeout_s: float = PATIENCE_S, prefix: str = "") -> CallId:
        """Run a vice in the shell tool and wait until it is in place."""
        call_id = self.start("shell", command=prefix + vices.command(name, *arguments), timeout_s=timeout_s)
        self.in_place()
        return call_id

    def in_place(self) -> None:
        """Wait until a vice has said that it is in place."""
        readable, _, _ = select.select([self._ready], [], [], PATIENCE_S)
        assert readable, f"no vice said that it is in place; came: {self.came}"
        os.read(self._ready, 1)

    def cancel(self, *, grace_s: float = 2.0, level: int = 1) -> Cancel:
        """Send a cancel of the generation at hand; further calls are of the next one."""
        if level == 1:
            self.generation += 1
        message = Cancel(session_id=SESSION, generation=self.generation, level=level, grace_s=grace_s)
        self.send(message)
        return message

    def stopped(self, *, grace_s: float = 2.0) -> CancelDone:
        """Cancel and wait until it is done."""
        cancel = self.cancel(grace_s=grace_s)
        self.wait_for(CancelAcknowledged, lambda message: message.generation == cancel.generation)
        return self.wait_for(CancelDone, lambda message: message.generation == cancel.generation)

    def wait_for(self, kind: type[M], wanted: Callable[[M], bool] = lambda _message: True) -> M:
        """The first such message that came or comes."""
        looked_at = 0
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for message in self.came[looked_at:]:
                if isinstance(message, kind) and wanted(message):
                    return message
            looked_at = len(self.came)
            self._receive(deadline, f"no {kind.__name__} came")

    def wait_for_heartbeat(self, wanted: Callable[[Heartbeat], bool]) -> Heartbeat:
        deadline = time.monotonic() + PATIENCE_S
        while not (self.heartbeats and wanted(self.heartbeats[-1])):
            self._receive(deadline, "no such heartbeat came")
        return self.heartbeats[-1]

    def alive(self) -> list[survivors.Survivor]:
        """What lives below the worker, seen by a walk that shares no code with it."""
        return survivors.descendants(self.pid)

    def close(self) -> None:
        """End it in order."""
        if self.process.poll() is None:
            self.send(Shutdown())
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self._stderr.seek(0)
            self.errors = self._stderr.read().decode()
            self._stderr.close()
            self._context.destroy(linger=0)
            os.close(self._ready)
            self._folder.cleanup()

    def _receive(self, deadline: float, complaint: str) -> None:
        left_ms = int((deadline - time.monotonic()) * 1000)
        if left_ms <= 0 or not self._mailbox.poll(left_ms):
            raise AssertionError(f"{complaint}; came: {self.came}")
        message = codec.from_worker.decode(self._mailbox.recv_multipart()[1])
        if isinstance(message, Heartbeat):
            self.heartbeats.append(message)
        else:
            self.came.append(message)
