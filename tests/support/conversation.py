"""`haltline chat` as a real process: several prompts in one session, stopped in between, and what it stands on."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from support import survivors
from support.chain import starters
from support.checkout import ROOT
from support.command import COMMAND, WITHIN_S, Ended, Event, Running

from haltline.protocol.ids import ROLES, Role

CHAIN = ("haltline-guard", "haltline-superv", "haltline-zygote", "haltline-spare")
"""Names of our processes that are no workers (protocol/linux.py); no other can have them before it has begun."""
GONE = "(gone)"
MISBEHAVING = (sys.executable, "-I", "-S", str(ROOT / "tests" / "support" / "misbehaving_start.py"))


@dataclass(frozen=True)
class Footing:
    """What a session with both its workers idle holds of the machine."""

    descriptors: tuple[int | None, ...]
    """Open in the supervisor and in the zygote. None for an ordinary user: our processes are not dumpable, so the
    kernel shows it to root alone."""
    files: tuple[str, ...]
    """In the folder of the sockets."""


class Run:
    """One run that is over."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["type"] == kind]

    @property
    def result(self) -> Event:
        return self.events[-1]

    @property
    def statuses(self) -> list[object]:
        """Of tool results, in the order in which they came."""
        return [event["status"] for event in self.of("tool_result")]

    @property
    def steps(self) -> list[tuple[object, object]]:
        """Phase and role of each report of the stop, in order."""
        return [(event["phase"], event["role"]) for event in self.of("cancel")]

    def reports(self, phase: str) -> dict[str, Event]:
        """By role."""
        return {str(event["role"]): event for event in self.of("cancel") if event["phase"] == phase}


class Conversation:
    """`workspace` is the tools'; `vice` one of misbehaving_start.py. `asks`: a person sits at a terminal and is asked
    before anything is changed."""

    def __init__(
        self,
        base_url: str,
        workspace: Path,
        *,
        isolation: str,
        vice: str = "",
        asks: bool = False,
        held: bool = False,
        model: str = "puppet",
    ) -> None:
        """`held`: the workers' vice holds from the beginning."""
        self._home = Path(os.environ["HALTLINE_HOME"])
        self.hold = self._home / "hold"
        if held:
            self.hold.touch()
        fifo = self._home / "ready"
        os.mkfifo(fifo)
        self._ready = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        self._run = 0
        self.greetings = 0
        """Runs before the first that a test is about."""
        self.before = survivors.descendants(os.getpid())
        """Who was there without this conversation."""
        self.running = Running(
            [
                *("chat", "-m", model, "--base-url", base_url, "-C", str(workspace), "--json"),
                *("--isolation", isolation, "--approval-mode", "ask" if asks else "yolo", "--retry", "interactive"),
            ],
            command=(*MISBEHAVING, vice) if vice else COMMAND,
            terminal=asks,
            typing=True,
            extra={"READY": str(fifo), "HOLD": str(self.hold)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self._ready)
        if self.running.process.returncode is None:  # the test has failed
            self.running.give_up()

    def begun(self) -> Footing:
        """Greeted and answered; both workers are ready, and so is the spare of the process that starts them, which
        comes when there is nothing else to do. By the last greeting the supervisor has heard of it."""
        until(lambda: bool(self.greeted() and self.named("haltline-spare")), "no spare came")
        return self.settled()

    def settled(self) -> Footing:
        """Between two runs, with both workers ready: what is said of them comes with the next run."""
        until(lambda: self.greeted() and all(self.alive(role) for role in ROLES), "a worker did not get ready")
        return self.footing()

    def greeted(self) -> bool:
        self.greetings += 1
        return self.ask("hello").result["reason"] == "completed"

    def prompt(self, text: str) -> None:
        self._run += 1
        self.running.type(text)

    def ask(self, text: str) -> Run:
        """A prompt, and its run to the end."""
        self.prompt(text)
        return self.result()

    def until(self, wanted: Callable[[Event], bool] | str) -> Event:
        """The first such event of the present run."""

        def matches(event: Event) -> bool:
            return event["run"] == self._run and (event["type"] == wanted if isinstance(wanted, str) else wanted(event))

        return self.running.until(matches)

    def in_place(self) -> None:
        """Wait until a vice has said that it is in place."""
        readable, _, _ = select.select([self._ready], [], [], WITHIN_S)
        assert readable, f"no vice said that it is in place; last events: {self.running.events[-5:]}"
        os.read(self._ready, 1)

    def press(self) -> None:
        """Ctrl+C."""
        self.running.process.send_signal(signal.SIGINT)

    def result(self) -> Run:
        self.until("result")
        return Run([event for event in self.running.events if event["run"] == self._run])

    def alive(self, role: Role) -> list[int]:
        """Pids of the workers of a role that are said to be ready and not to have ended."""
        states: dict[int, object] = {}
        for event in self.running.events:
            if event["type"] == "worker" and event["role"] == role and event["pid"] is not None:
                states[int(str(event["pid"]))] = event["state"]
        return [pid for pid, state in states.items() if state in ("ready", "stalled")]

    def ready(self, role: Role) -> int:
        """Pid of the worker of a role, once it is ready. During a run."""
        self.running.until(lambda _event: bool(self.alive(role)))
        return self.alive(role)[-1]

    @property
    def session_id(self) -> str:
        return str(self.until("init" if self._run == 1 else "message")["session_id"])

    def strangers(self) -> list[survivors.Survivor]:
        """Who is alive below the client, and is neither of the chain nor a worker that is said to live. Who has gone
        before its name could be read was on its way out, and may have been either."""
        workers = {pid for role in ROLES for pid in self.alive(role)}
        return [one for one in self._below() if one.pid not in workers and _name(one) not in (*CHAIN, GONE)]

    def named(self, *names: str) -> list[survivors.Survivor]:
        """Who is alive below the client under one of these names of a process."""
        return [one for one in self._below() if _name(one) in names]

    def _below(self) -> list[survivors.Survivor]:
        return survivors.descendants(self.running.process.pid)

    def memory_kib(self) -> dict[int, int]:
        """Resident, of each process of ours."""
        page_kib = os.sysconf("SC_PAGE_SIZE") // 1024
        return {one.pid: int(Path(f"/proc/{one.pid}/statm").read_text().split()[1]) * page_kib for one in self._below()}

    def footing(self) -> Footing:
        pids = starters(self.running)
        sockets = sorted(str(path.relative_to(self._home)) for path in (self._home / "run").rglob("*"))
        return Footing((_descriptors(pids["supervisor"]), _descriptors(pids["zygote"])), tuple(sockets))

    def leave(self) -> Ended:
        """The end of the input."""
        self.running.type_end()
        return self.running.end()


def until(true: Callable[[], bool], complaint: str) -> None:
    """Look again until it is true; for what no line, no message and no descriptor tells of."""
    deadline = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < deadline, complaint
        select.select((), (), (), 0.005)


def _name(process: survivors.Survivor) -> str:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return GONE


def _descriptors(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        return None
