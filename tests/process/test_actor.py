"""The mailbox loop of a worker on real sockets, in this process: what it reads first and what it keeps back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from support.llm_worker import SESSION, TOKEN, WORKER, attempt, cancel

from haltline.protocol import codec
from haltline.protocol.boot import WorkerBoot
from haltline.protocol.messages import (
    Cancel,
    CancelAcknowledged,
    Hello,
    Ready,
    RunTool,
    StartAttempt,
    ToWorker,
)
from haltline.protocol.settings import ToolLimits
from haltline.worker.actor import MESSAGES_PER_TURN, Actor, Outbox, Progress

READY = Ready(cwd="/", delta_window_ms=0.0, tools=ToolLimits())
WITHIN_MS = 10_000


class Recorder:
    """A handler that keeps what reached it, and acknowledges a cancel."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.heard: list[Ready | StartAttempt | RunTool | Cancel] = []
        self.expected = 0
        self.all_heard = asyncio.Event()

    def configure(self, ready: Ready) -> None:
        self._hear(ready)

    def work(self, message: StartAttempt | RunTool) -> None:
        self._hear(message)

    def cancel(self, cancel: Cancel) -> None:
        self._hear(cancel)
        self._outbox.send(
            CancelAcknowledged(session_id=SESSION, generation=cancel.generation, level=cancel.level, streams_closed=1)
        )

    def progress(self) -> Progress:
        return Progress(progress=0)

    async def orphaned(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def _hear(self, message: Ready | StartAttempt | RunTool | Cancel) -> None:
        self.heard.append(message)
        if len(self.heard) == self.expected:
            self.all_heard.set()


class Lanes:
    """The supervisor's ends, blocking, and the actor between: nothing reaches it before its loop runs."""

    def __init__(self, folder: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.router = context.socket(zmq.ROUTER)
        self.router.bind(f"ipc://{folder}/mailbox")
        self.publisher = context.socket(zmq.XPUB)
        self.publisher.bind(f"ipc://{folder}/broadcast")
        boot = WorkerBoot(
            role="llm",
            session_id=SESSION,
            worker_id=WORKER,
            token=TOKEN,
            mailbox=f"{folder}/mailbox",
            broadcast=f"{folder}/broadcast",
            supervisor_pidfd=None,
        )
        self.recorder: Recorder

        def make(outbox: Outbox) -> Recorder:
            self.recorder = Recorder(outbox)
            return self.recorder

        self.actor = Actor(boot, make, context)
        self.actor.start()
        identity, hello = self.router.recv_multipart()
        assert (identity, codec.from_worker.decode(hello)) == (
            WORKER.encode(),
            Hello(role="llm", session_id=SESSION, token=TOKEN),
        )
        assert self.publisher.recv()[1:] == WORKER.encode()

    def mail(self, message: ToWorker) -> None:
        self.router.send_multipart([WORKER.encode(), codec.to_worker.encode(message)])

    def publish(self, message: ToWorker) -> None:
        self.publisher.send_multipart([WORKER.encode(), codec.to_worker.encode(message)])

    def close(self) -> None:
        for lane in (self.actor._broadcast, self.actor._mailbox, self.router, self.publisher):
            asyncio.get_running_loop().remove_reader(int(lane.getsockopt(zmq.FD)))
            lane.close(linger=0)

    def arrived(self) -> None:
        """Until both lanes hold something for the actor, whose loop does not run meanwhile."""
        for lane in (self.actor._broadcast, self.actor._mailbox):
            assert lane.poll(WITHIN_MS, zmq.POLLIN)


@pytest.fixture
def with_lanes(home: Path) -> Callable[[Callable[[Lanes], None], int], tuple[Actor, list[object]]]:
    def run(fill: Callable[[Lanes], None], expected: int) -> tuple[Actor, list[object]]:
        async def main() -> tuple[Actor, list[object]]:
            with zmq.Context() as context:
                lanes = Lanes(home, context)
                lanes.recorder.expected = expected
                fill(lanes)
                async with asyncio.timeout(WITHIN_MS / 1000):
                    await lanes.recorder.all_heard.wait()
                lanes.close()
                return lanes.actor, list(lanes.recorder.heard)

        return asyncio.run(main())

    return run


Run = Callable[[Callable[[Lanes], None], int], tuple[Actor, list[object]]]


def test_a_broadcast_cancel_is_heard_before_any_mail_that_was_sent_before_it(with_lanes: Run) -> None:
    """F3, design 4: more mail than one turn of the loop takes, all older: none reaches the handler."""

    def fill(lanes: Lanes) -> None:
        lanes.mail(READY)
        for number in range(3 * MESSAGES_PER_TURN):
            lanes.mail(attempt("http://x", number=number))
        lanes.mail(attempt("http://x", number=1000, generation=2))
        lanes.publish(cancel(2))
        lanes.arrived()

    _, heard = with_lanes(fill, 3)
    assert heard == [cancel(2), READY, attempt("http://x", number=1000, generation=2)]


def test_each_cancel_reaches_the_handler_once_and_an_older_one_never(with_lanes: Run) -> None:
    """F3."""

    def fill(lanes: Lanes) -> None:
        for message in (
            READY,
            cancel(2),
            cancel(2),
            cancel(2, level=2),
            cancel(2),
            cancel(1),
            cancel(1, level=2),
            attempt("http://x", generation=3),
            cancel(2, level=3),
            cancel(3),
        ):
            lanes.mail(message)

    _, heard = with_lanes(fill, 5)
    assert heard == [READY, cancel(2), cancel(2, level=2), attempt("http://x", generation=3), cancel(3)]


def test_work_before_ready_and_a_second_ready_are_not_passed_on(with_lanes: Run) -> None:
    def fill(lanes: Lanes) -> None:
        for message in (attempt("http://x"), READY, READY, attempt("http://x", number=2)):
            lanes.mail(message)

    actor, heard = with_lanes(fill, 2)
    assert (heard, actor.dropped) == ([READY, attempt("http://x", number=2)], 1)
