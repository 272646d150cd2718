"""A real LLM worker process, the supervisor's sockets before it, and a TCP server of bytes behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import msgspec
import zmq
import zmq.asyncio

from haltline.protocol import codec
from haltline.protocol.boot import WorkerBoot
from haltline.protocol.conversation import Item, ToolSpec, UserMessage
from haltline.protocol.ids import SessionId, WorkerId
from haltline.protocol.kinds import Api
from haltline.protocol.messages import Cancel, FromWorker, Heartbeat, Hello, Ready, StartAttempt, ToWorker
from haltline.protocol.settings import StreamLimits, ToolLimits

WITHIN_S = 15.0
SESSION = SessionId("5e551011")
WORKER = WorkerId("llm-5e551011-1-abc")
TOKEN = b"0123456789abcdef"
KEY = "sk-test-0123456789"
KEY_VARIABLE = "TEST_MODEL_KEY"
DEFAULT_LIMITS = StreamLimits()

PROGRAM = (
    "import sys, msgspec; from haltline.protocol.boot import WorkerBoot; from haltline.worker.llm.main import main; "
    "main(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=WorkerBoot))"
)

SKIPPING_CLOCK = (
    "import signal, time; "
    "real, skipped = time.monotonic, []; "
    "time.monotonic = lambda: real() + sum(skipped); "
    "signal.signal(signal.SIGUSR1, lambda *_: skipped.append({skip_s})); "
)
"""The worker's clock jumps at SIGUSR1, as it does for a process that did not run."""

T = TypeVar("T", bound=FromWorker)


class Lane(Protocol):
    """A socket of zmq.asyncio as far as its own types leave the frames open."""

    def send_multipart(self, msg_parts: Sequence[bytes], /) -> Awaitable[object]: ...


class Connection:
    """One TCP connection that the worker made, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._reading = asyncio.Lock()
        """A stream has one reader at a time: the script and the test may both wait for the worker to go."""
        self.head = ""
        self.body: dict[str, Any] = {}

    async def request(self) -> None:
        """Read one whole request into `head` and `body`."""
        async with self._reading:
            self.head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            length = int(self.head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            self.body = json.loads(await self._reader.readexactly(length))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def stream_head(self, *more: str) -> None:
        lines = ("HTTP/1.1 200 OK", "content-type: text/event-stream", "transfer-encoding: chunked", *more)
        self.send("\r\n".join([*lines, "", ""]).encode())

    def chunk(self, data: bytes) -> None:
        self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def text(self, text: str) -> None:
        self.chunk(event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}))

    def finish(self, reason: str = "stop") -> None:
        delta: dict[str, str] = {}
        self.chunk(event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}))

    def done(self) -> None:
        self.chunk(b"data: [DONE]\n\n")
        self.send(b"0\r\n\r\n")

    def answer(self, text: str) -> None:
        self.stream_head()
        self.text(text)
        self.finish()
        self.done()

    async def drained(self) -> None:
        """Until the kernel has taken what was sent; raises ConnectionError if the worker went."""
        await self._writer.drain()

    def is_gone(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()

    def reset(self) -> None:
        """RST in place of FIN."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()

    async def gone(self) -> None:
        """Until the worker has closed its end. Any number may wait for that."""
        async with self._reading:
            with contextlib.suppress(ConnectionError):  # a write of ours that met its end says so here, too
                while await self._reader.read(65536):
                    pass


def event(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


Script = Callable[[Connection], Awaitable[None]]


class Server:
    """Each accepted connection plays the next of `scripts`; the last one again and again."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self.connections: list[Connection] = []
        self.failures: list[BaseException] = []
        self.port = 0
        self._changed = asyncio.Condition()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def connection(self, number: int = 1) -> Connection:
        """The `number`th connection, once it is there."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.connections) >= number)
        return self.connections[number - 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        async with self._changed:
            self.connections.append(connection)
            self._changed.notify_all()
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        try:
            await script(connection)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the worker went; the test says whether it should have
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def server(*scripts: Script) -> AsyncGenerator[Server]:
    served = Server(*scripts)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(served.serve(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    served.port = listening.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result


class Supervisor:
    """The other end of a worker's two lanes."""

    def __init__(self, folder: Path) -> None:
        self._context = zmq.asyncio.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._publisher = self._context.socket(zmq.XPUB)
        self._mailbox: Lane = self._router
        self._broadcast: Lane = self._publisher
        self.boot_paths = (str(folder / "mailbox"), str(folder / "broadcast"))
        self._router.bind(f"ipc://{self.boot_paths[0]}")
        self._publisher.bind(f"ipc://{self.boot_paths[1]}")
        self.received: list[FromWorker] = []
        """Everything but heartbeats."""
        self.heartbeats: list[Heartbeat] = []
        self._taken = 0

    async def start(self, process: asyncio.subprocess.Process, *, key_variable: str | None, window_ms: float) -> None:
        """Through the handshake."""
        self.process = process
        hello = await self.next(Hello)
        assert hello == Hello(role="llm", session_id=SESSION, token=TOKEN)
        assert bytes(await self._publisher.recv())[1:] == WORKER.encode()
        await self.send(Ready(cwd="/", delta_window_ms=window_ms, tools=ToolLimits(), key_variable=key_variable))

    async def send(self, message: ToWorker) -> None:
        await self.send_bytes(codec.to_worker.encode(message))

    async def send_bytes(self, data: bytes) -> None:
        await self._mailbox.send_multipart([WORKER.encode(), data])

    async def broadcast(self, message: ToWorker) -> None:
        await self._broadcast.send_multipart([WORKER.encode(), codec.to_worker.encode(message)])

    async def next(self, kind: type[T]) -> T:
        """The next message of this kind; those before it are in `received`."""
        while True:
            while self._taken < len(self.received):
                message = self.received[self._taken]
                self._taken += 1
                if isinstance(message, kind):
                    return message
            await self._receive()

    async def heartbeat(self) -> Heartbeat:
        seen = len(self.heartbeats)
        while len(self.heartbeats) == seen:
            await self._receive()
        return self.heartbeats[-1]

    async def _receive(self) -> None:
        identity, data = await self._router.recv_multipart()
        assert identity == WORKER.encode()
        message = codec.from_worker.decode(data)
        if isinstance(message, Heartbeat):
            self.heartbeats.append(message)
        else:
            self.received.append(message)

    def of(self, kind: type[T]) -> list[T]:
        return [message for message in self.received if isinstance(message, kind)]

    async def exit_code(self) -> int:
        return await self.process.wait()

    def close(self) -> None:
        self._context.destroy(linger=0)


@contextlib.asynccontextmanager
async def worker(
    folder: Path,
    *,
    key: str | None = KEY,
    window_ms: float = 0.0,
    supervisor_fd: int | None = None,
    skip_s: float = 0.0,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[Supervisor]:
    """A worker that is ready for work, ended with the block. `skip_s`: by this its clock jumps at each SIGUSR1."""
    supervisor = Supervisor(folder)
    environment = {"PATH": os.environ["PATH"]} | {
        name: value for name, value in os.environ.items() if name.startswith("HALTLINE_")
    }
    environment |= variables
    if key is not None:
        environment[KEY_VARIABLE] = key
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-c",
        (SKIPPING_CLOCK.format(skip_s=skip_s) if skip_s else "") + PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        env=environment,
        pass_fds=() if supervisor_fd is None else (supervisor_fd,),
    )
    boot = WorkerBoot(
        role="llm",
        session_id=SESSION,
        worker_id=WORKER,
        token=TOKEN,
        mailbox=supervisor.boot_paths[0],
        broadcast=supervisor.boot_paths[1],
        supervisor_pidfd=supervisor_fd,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(msgspec.msgpack.encode(boot))
        process.stdin.close()
        async with asyncio.timeout(WITHIN_S):
            await supervisor.start(process, key_variable=KEY_VARIABLE, window_ms=window_ms)
            yield supervisor
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
        supervisor.close()


def attempt(
    base_url: str,
    *,
    number: int = 1,
    generation: int = 1,
    api: Api = "chat",
    model: str = "m-1",
    limits: StreamLimits = DEFAULT_LIMITS,
    system: str = "Be brief.",
    items: tuple[Item, ...] = (UserMessage(text="Hi"),),
    tools: tuple[ToolSpec, ...] = (),
    max_output_tokens: int | None = None,
) -> StartAttempt:
    return StartAttempt(
        session_id=SESSION,
        run=1,
        turn=1,
        generation=generation,
        attempt=number,
        api=api,
        base_url=base_url,
        model=model,
        system=system,
        items=items,
        tools=tools,
        max_output_tokens=max_output_tokens,
        limits=limits,
    )


def cancel(generation: int, level: int = 1) -> Cancel:
    return Cancel(session_id=SESSION, generation=generation, level=level, grace_s=2.0)
