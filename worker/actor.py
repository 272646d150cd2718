"""The mailbox loop that both workers share: sockets, generations, repeated cancels, heartbeats, ways to end.

Theory of operation. A worker is one asyncio loop. ZeroMQ tells of new messages through a file descriptor that is
edge-triggered, so the loop drains until EAGAIN and looks again after each send. Rules:

1. The broadcast lane is read before the mailbox, before every single mailbox message: a cancel never queues
   behind data.
2. No callback holds the loop longer than a few messages; what is left waits for the next loop turn (L5).
3. After every send the socket is asked for pending receives: the send may have eaten the edge.
4. `generation` is the newest heard of. Older work is refused here, just before it would be done (F3).
5. A cancel is told apart by (generation, level). The handler sees each once; a repeated one gets again what was
   already answered, and nothing if the answer is still being worked on. An older one is ignored.
6. SUB is connected before DEALER, and the hello is the first message; a subscription may still arrive later than
   the hello, so the supervisor waits for both before it says Ready.
7. A bug ends the process with its traceback, in whatever callback of the loop it shows: logged alone, it would leave
   work that nobody ends. The supervisor sees the death and replaces the worker.
8. Nothing here unwinds into the frames that the process was forked from: every end is os._exit.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, Protocol

import msgspec
import zmq

from haltline.protocol import codec
from haltline.protocol.boot import WorkerBoot
from haltline.protocol.endpoints import ipc
from haltline.protocol.errors import Undecodable
from haltline.protocol.messages import (
    Cancel,
    CancelAcknowledged,
    CancelDone,
    FromWorker,
    Heartbeat,
    Hello,
    Ready,
    RunTool,
    Shutdown,
    StartAttempt,
    ToWorker,
)
from haltline.protocol.times import HEARTBEAT_S

MESSAGES_PER_TURN = 32
"""Read in one callback before the loop runs again; a message costs microseconds, a long history a few ms."""

SECONDS_PER_TURN = 0.02
"""The same bound in time, for the long ones: a fifth of what a step may hold the loop (L5)."""

PSS_EVERY_S = 5.0
"""Reading smaps_rollup walks the page tables: measured 0.12 ms, 0.7 at worst, at 33 MiB."""

EXIT_OK = 0
EXIT_BUG = 1

log = logging.getLogger(__name__)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A handler's part of the heartbeat; the fields are those of messages.Heartbeat."""

    progress: int
    model_silent_ms: int | None = None


class Outbox(Protocol):
    """The way to the supervisor: never blocks, keeps the order."""

    def send(self, message: FromWorker) -> None: ...


class Handler(Protocol):
    """What a worker does. All methods are called on the loop, and none may block it (100 ms, L5)."""

    def configure(self, ready: Ready) -> None:
        """The supervisor said Ready. Called once, before any work."""

    def work(self, message: StartAttempt | RunTool) -> None:
        """Begin; report through the outbox. The generation has been checked."""

    def cancel(self, cancel: Cancel) -> None:
        """Stop all work of a generation below `cancel.generation`, and only that: a late second press may find
        new work already begun. Called once for each (generation, level), levels only rising; may come before
        `configure`. Send CancelAcknowledged and CancelDone of this (generation, level) when they are true."""

    def progress(self) -> Progress:
        """For the heartbeat, about once a second."""
        ...

    async def orphaned(self) -> None:
        """The supervisor is dead, or the worker was told to go (SIGTERM): end all of ours, at most 1 s of grace.
        The process exits when this returns."""

    def shutdown(self) -> None:
        """The session is over and nothing is owed. The process exits when this returns."""


async def run_actor(boot: WorkerBoot, make_handler: Callable[[Outbox], Handler]) -> None:
    """Say hello and serve until Shutdown, SIGTERM or the supervisor's death; ends the process, never returns."""
    _set_signals()
    asyncio.get_running_loop().set_exception_handler(_look_at_loop)
    actor = Actor(boot, make_handler, zmq.Context(io_threads=1))
    actor.start()
    await asyncio.get_running_loop().create_future()


def watch(task: asyncio.Task[None]) -> None:
    """End the process if `task` ends with an exception: such a one is a bug of ours, and a worker that lost a task
    would owe its answer for ever (rule 7)."""
    task.add_done_callback(_look_at_end)


def _look_at_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _crash(error)


def _look_at_loop(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Rule 7, for timers, readers and signals. What libraries report beside that, such as a connection that broke while
    it was being left behind, is logged."""
    error = context.get("exception")
    if "handle" in context and isinstance(error, BaseException):
        _crash(error)
    loop.default_exception_handler(context)


def _crash(error: BaseException) -> NoReturn:
    with contextlib.suppress(OSError):
        traceback.print_exception(error, file=sys.stderr)
        sys.stderr.flush()
    os._exit(EXIT_BUG)


def _set_signals() -> None:
    """Dispositions, set explicitly: what the parent had is inherited, ignored ones even through exec."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the client handles it
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class OwnProcess:
    """What a worker knows of its own process, and how it ends it (rule 8)."""

    def exit(self, status: int) -> NoReturn:
        os._exit(status)

    def crash(self, error: BaseException) -> NoReturn:
        """Rule 7."""
        _crash(error)

    def pss_kib(self) -> int:
        return pss_kib()

    def cpu_ms(self) -> int:
        times = os.times()
        return int((times.user + times.system) * 1000)


class Actor:
    """The loop's side of one worker process. Made after the fork, as its zmq context has to be (R80)."""

    def __init__(
        self,
        boot: WorkerBoot,
        make_handler: Callable[[Outbox], Handler],
        context: zmq.Context[zmq.Socket[bytes]],
        process: OwnProcess | None = None,
    ) -> None:
        self._process = process or OwnProcess()
        self.generation = 0
        self.dropped = 0
        """Messages that were no messages, or came too early."""
        self._boot = boot
        self._loop = asyncio.get_running_loop()
        self._broadcast = context.socket(zmq.SUB)
        self._mailbox = context.socket(zmq.DEALER)
        self._pump_due = False
        self._ready = False
        self._cancel_level = 0
        """Highest level handled for `_cancel_generation`."""
        self._cancel_generation = -1
        self._answers: dict[int, list[CancelAcknowledged | CancelDone]] = {}
        """By level, for `_cancel_generation`: what was answered, to be said again (rule 5)."""
        self._ending = False
        self._end_task: asyncio.Task[None] | None = None
        self._pss_kib = 0
        self._pss_due = 0.0
        self._handler = make_handler(self)

    def start(self) -> None:
        """Connect, watch, say hello (rule 6)."""
        self._broadcast.setsockopt(zmq.LINGER, 0)
        self._broadcast.setsockopt(zmq.RCVHWM, 0)
        self._broadcast.subscribe(self._boot.worker_id.encode())
        self._broadcast.connect(ipc(self._boot.broadcast))
        self._mailbox.setsockopt(zmq.LINGER, 0)
        self._mailbox.setsockopt(zmq.SNDHWM, 0)
        self._mailbox.setsockopt(zmq.RCVHWM, 0)
        self._mailbox.setsockopt(zmq.ROUTING_ID, self._boot.worker_id.encode())
        self._mailbox.connect(ipc(self._boot.mailbox))
        for socket in (self._broadcast, self._mailbox):
            self._loop.add_reader(int(socket.getsockopt(zmq.FD)), self._pump)
        if os.getpid() != 1:  # process 1 of a namespace: its own tools alone would send it
            self._loop.add_signal_handler(signal.SIGTERM, self._end)
        if self._boot.supervisor_pidfd is not None:
            self._loop.add_reader(self._boot.supervisor_pidfd, self._end)
        self.send(Hello(role=self._boot.role, session_id=self._boot.session_id, token=self._boot.token))
        self._loop.call_later(HEARTBEAT_S, self._heartbeat)
        self._pump()

    def send(self, message: FromWorker) -> None:
        """Outbox. Cannot fail while the context lives: the queue has no high-water mark, and its bound is the
        supervisor, whose death ends this process."""
        if isinstance(message, CancelAcknowledged | CancelDone) and message.generation == self._cancel_generation:
            self._answers.setdefault(message.level, []).append(message)
        self._put(message)

    def _put(self, message: FromWorker) -> None:
        self._mailbox.send(codec.from_worker.encode(message), zmq.NOBLOCK)
        if int(self._mailbox.getsockopt(zmq.EVENTS)) & zmq.POLLIN:  # rule 3
            self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Read until both lanes are empty, or the turn is used up (rules 1 and 2)."""
        self._pump_due = False
        until = self._loop.time() + SECONDS_PER_TURN
        try:
            for _ in range(MESSAGES_PER_TURN):
                frames = _receive(self._broadcast)
                if frames is not None:
                    frames = frames[1:]  # the topic
                elif (frames := _receive(self._mailbox)) is None:
                    return
                self._take(frames)
                if self._loop.time() > until:
                    break
        except Exception as error:  # noqa: BLE001 whatever it is, it is a bug, and ends the worker
            self._process.crash(error)
        self._pump_soon()

    def _take(self, frames: list[bytes]) -> None:
        try:
            if len(frames) != 1:
                raise Undecodable(f"{len(frames)} frames where one was expected")
            message = codec.to_worker.decode(frames[0])
        except Undecodable as error:
            self._drop(str(error))
            return
        self._handle(message)

    def _drop(self, words: str) -> None:
        self.dropped += 1
        log.warning("%s: message %d dropped: %s", self._boot.worker_id, self.dropped, words)

    def _handle(self, message: ToWorker) -> None:
        match message:
            case Ready():
                if not self._ready:
                    self._ready = True
                    self._handler.configure(message)
            case StartAttempt() | RunTool():
                if not self._ready:
                    self._drop(f"{type(message).__name__} before Ready")
                elif message.generation >= self.generation and not self._ending:  # rule 4
                    self.generation = message.generation
                    self._handler.work(message)
            case Cancel():
                self._cancel(message)
            case Shutdown():
                self._handler.shutdown()
                self._process.exit(EXIT_OK)

    def _cancel(self, cancel: Cancel) -> None:
        """Rule 5."""
        if cancel.generation < self.generation:
            return
        self.generation = cancel.generation
        if cancel.generation > self._cancel_generation:
            self._cancel_generation = cancel.generation
            self._cancel_level = 0
            self._answers = {}
        if cancel.level > self._cancel_level:
            self._cancel_level = cancel.level
            self._handler.cancel(cancel)
            return
        for answer in self._answers.get(cancel.level, ()):
            self._put(answer)

    def _heartbeat(self) -> None:
        try:
            state = self._handler.progress()
        except Exception as error:  # noqa: BLE001 whatever it is, it is a bug, and ends the worker
            self._process.crash(error)
        now = self._loop.time()
        if now >= self._pss_due:
            self._pss_due = now + PSS_EVERY_S
            self._pss_kib = self._process.pss_kib()
        self._put(
            Heartbeat(
                progress=state.progress,
                model_silent_ms=state.model_silent_ms,
                pss_kib=self._pss_kib,
                cpu_ms=self._process.cpu_ms(),
            )
        )
        self._loop.call_later(HEARTBEAT_S, self._heartbeat)

    def _end(self) -> None:
        """The supervisor is dead, or SIGTERM came: leave nothing behind, then leave."""
        if self._ending:
            return
        self._ending = True
        if self._boot.supervisor_pidfd is not None:
            self._loop.remove_reader(self._boot.supervisor_pidfd)
        self._end_task = self._loop.create_task(self._orphaned())
        watch(self._end_task)

    async def _orphaned(self) -> None:
        await self._handler.orphaned()
        self._process.exit(EXIT_OK)


def _receive(socket: zmq.Socket[bytes]) -> list[bytes] | None:
    try:
        return socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None


def pss_kib() -> int:
    """Proportional set size of this process in KiB, 0 where the kernel does not tell. A process that is not
    dumpable can still read its own."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1])
    except OSError:
        return 0
    return 0
