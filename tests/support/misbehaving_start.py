"""Starts the program from a checkout as bin/start.py does, with workers that misbehave:

    python -I -S tests/support/misbehaving_start.py VICE ARGS

A real process in the real chain, with the real actor and handler but for one change, which is made in each worker just
after its fork. The product knows nothing of this: its table of roles is wrapped here, before the first fork. Vices that
wait for something look for the file named by the variable HOLD: while it is there they hold, and say so as the vices of
tools do.
"""

import sys

root = __file__.rpartition("/tests/")[0]
haltline = type(sys)("haltline")
haltline.__path__ = [root]
sys.modules["haltline"] = haltline
sys.path.append(f"{root}/.venv/site-packages")
vice = sys.argv.pop(1)
sys.argv[0] = "haltline"

import json  # noqa: E402  (the path is set above)
import os  # noqa: E402
import signal  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402

import msgspec  # noqa: E402

from haltline.cli import launcher, roles  # noqa: E402
from haltline.protocol import linux  # noqa: E402
from haltline.protocol.conversation import Usage  # noqa: E402
from haltline.protocol.messages import AttemptEnded, Cancel, CancelDone, Delta, FromWorker, RunTool, StartAttempt  # noqa: E402

Entry = Callable[[bytes, int | None], None]

SPIN_S = 5.0
DOCUMENT = b'{"text": "' + b"x" * 20_000_000 + b'"}'
LATE = "too late"


def never_acks() -> None:
    """Hears a cancel and neither stops nor answers."""
    from haltline.worker.llm.handler import LlmHandler
    from haltline.worker.tool.handler import ToolHandler

    def deaf(_self: object, _cancel: Cancel) -> None: ...

    for handler in (LlmHandler, ToolHandler):
        setattr(handler, "cancel", deaf)  # noqa: B010  (of a type that it has not)


def acks_but_stays() -> None:
    """Acknowledges a cancel and is never done."""
    from haltline.worker.actor import Actor

    send = Actor.send

    def without_done(self: Actor, message: FromWorker) -> None:
        if not isinstance(message, CancelDone):
            send(self, message)

    setattr(Actor, "send", without_done)  # noqa: B010


def answers_late() -> None:
    """When it is given the next work, it first says the rest of the answer that was stopped, and that it ended well."""
    from haltline.worker.actor import Actor
    from haltline.worker.llm.handler import LlmHandler

    send, work = Actor.send, LlmHandler.work
    shown: list[Delta] = []

    def remembering(self: Actor, message: FromWorker) -> None:
        if isinstance(message, Delta):
            shown.append(message)
        send(self, message)

    def late(self: LlmHandler, message: StartAttempt | RunTool) -> None:
        for old in [delta for delta in shown[-1:] if delta.generation < message.generation]:
            self._outbox.send(msgspec.structs.replace(old, text=LATE))
            self._outbox.send(
                AttemptEnded(
                    session_id=old.session_id,
                    run=old.run,
                    turn=old.turn,
                    generation=old.generation,
                    attempt=old.attempt,
                    finish="stop",
                    finish_raw="stop",
                    calls=(),
                    reasoning=(),
                    usage=Usage(),
                )
            )
        work(self, message)

    setattr(Actor, "send", remembering)  # noqa: B010
    setattr(LlmHandler, "work", late)  # noqa: B010


def spins() -> None:
    """At SIGUSR1 it computes for SPIN_S in one callback of its loop."""

    def spin(_number: int, _frame: object) -> None:
        until = time.monotonic() + SPIN_S
        while time.monotonic() < until:
            pass

    signal.signal(signal.SIGUSR1, spin)


def hangs() -> None:
    """At SIGUSR1 it computes for ever in one callback of its loop, as a bug there would."""

    def spin(_number: int, _frame: object) -> None:
        while True:
            pass

    signal.signal(signal.SIGUSR1, spin)


def blocks() -> None:
    """The same, waiting for something that never comes."""
    signal.signal(signal.SIGUSR1, lambda _number, _frame: threading.Event().wait())


def parses() -> None:
    """At SIGUSR1 it parses a JSON document of 20 MB in one callback of its loop."""
    signal.signal(signal.SIGUSR1, lambda _number, _frame: json.loads(DOCUMENT))


def in_place() -> None:
    with open(os.environ["READY"], "wb") as fifo:
        fifo.write(b".")


def starts_late() -> None:
    """Does not come as far as its hello while it is held."""
    if os.path.exists(os.environ["HOLD"]):
        in_place()
        signal.pause()


def resolves_late() -> None:
    """Its resolver does not answer while it is held, nor ever after to who asked then."""
    import socket

    resolve = socket.getaddrinfo

    def late(*arguments: object) -> object:
        if os.path.exists(os.environ["HOLD"]):
            in_place()
            threading.Event().wait()
        return resolve(*arguments)  # type: ignore[arg-type]

    setattr(socket, "getaddrinfo", late)  # noqa: B010


VICES = {
    one.__name__: one
    for one in (never_acks, acks_but_stays, answers_late, spins, hangs, blocks, parses, starts_late, resolves_late)
}


def with_vice(role: str) -> Entry:
    entry: Entry = getattr(roles, role)

    def run(boot: bytes, fd: int | None) -> None:
        linux.set_process_name(role)
        VICES[vice]()
        entry(boot, fd)

    return run


for role in ("llm", "tool"):
    setattr(roles, role, with_vice(role))
launcher.main()
