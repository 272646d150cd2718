"""Many sessions of one supervisor, stopped at random, and what is left of them.

1. The seed decides the scenarios, their order and the moment of every cancel; the clock decides the rest.
2. Each round opens its sessions before it closes those of the round before (a supervisor without a session ends),
   asks each, and stops each some time later; a stop that comes after the end stops nothing. The round is over when
   every session has its result.
3. After each round two things are counted by others than those who did the stopping: processes, by a walk over what
   is below this command, and streams, by the gateway's own state. Both have to be none.
"""

import os
import random
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from haltline.cli.interrupts import Interrupted
from haltline.cli.lane import Lane, wait
from haltline.cli.owned import numbers
from haltline.protocol import processes
from haltline.protocol.client_messages import (
    CancelRequest,
    CloseSession,
    OpenSession,
    Prompt,
    Refused,
    SessionClosed,
    SessionOpened,
    Shown,
    ToClient,
)
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.events import Result, Worker
from haltline.protocol.ids import SessionId
from haltline.protocol.settings import INTERACTIVE, SessionSettings

SCENARIOS: Final = ("slow", "slow", "hang_first", "tool_tree", "tool_tree", "rate_limit", "ok")
"""In these shares: text that goes on, silence before the first token, trees that ignore SIGTERM, a wait, an end."""
CANCEL_S: Final = (0.02, 1.5)
"""From the prompt to its cancel, uniform."""
ROUND_S: Final = 60.0
"""A round needs about 4 s: a stop at 1.5 s, then a grace of 2 s. One that takes longer is reported as stuck."""
STREAMS_S: Final = 2.0
"""How long the gateway may take to see that a stream was closed: it needs about a millisecond when it runs."""


class RoundSeen(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    results: dict[str, int]
    """How many ended for which reason."""
    stop_ms: tuple[float, ...]
    """From the request of each stop to its end, as the supervisors' receipts have it."""
    escalated: int
    """Workers that had to be killed because they did not answer."""
    survivors: int
    open_streams: int
    stuck: int
    """Sessions without a result after ROUND_S."""


class _State(msgspec.Struct, frozen=True):
    open_streams: int


class Soak:
    """`gateway_url`: base URL of a scripted gateway in a process of its own. `ours`: the sessions (of the kernel) of
    this command, its guard and its supervisor. `version` goes into the settings."""

    def __init__(
        self, lane: Lane, signals_fd: int, *, gateway_url: str, ours: frozenset[int], cwd: str, seed: int, version: str
    ) -> None:
        self._lane = lane
        self._signals_fd = signals_fd
        self._ours = ours
        self._escalated = 0
        self._gateway_url = gateway_url
        self._cwd = cwd
        self._version = version
        self._random = random.Random(seed)
        self._sessions: list[SessionId] = []

    def round(self, number: int, count: int) -> RoundSeen:
        """Rule 2. Raises ConfigurationProblem where a session is refused or does not open in time."""
        before, self._sessions = self._sessions, []
        self._open(count)
        self._close(before)
        return self._run(number)

    def close(self) -> None:
        """After the last round."""
        self._close(self._sessions)

    def _open(self, count: int) -> None:
        deadline = time.monotonic() + ROUND_S
        for _ in range(count):
            self._lane.send(OpenSession(settings=self._settings(), journal=""))
        for message in self._until(deadline):
            if isinstance(message, SessionOpened):
                self._sessions.append(message.session_id)
            elif isinstance(message, Refused):
                raise ConfigurationProblem(message.words)
            if len(self._sessions) == count:
                return
        raise ConfigurationProblem(f"{len(self._sessions)} of {count} sessions opened within {ROUND_S:g} s")

    def _run(self, number: int) -> RoundSeen:
        began = time.monotonic()
        running = set(self._sessions)
        cancels: dict[SessionId, float] = {}
        for session_id in self._sessions:
            self._lane.send(Prompt(session_id=session_id, text=f"round {number}"))
            cancels[session_id] = began + self._random.uniform(*CANCEL_S)
        results: list[Result] = []
        while running and time.monotonic() < began + ROUND_S:
            due = [one for one, at in cancels.items() if at <= time.monotonic()]
            for session_id in due:
                del cancels[session_id]
                self._lane.send(CancelRequest(session_id=session_id, by="client"))
            for message in self._until(min([*cancels.values(), began + ROUND_S])):
                if isinstance(message, Shown) and isinstance(message.line.event, Result):
                    results.append(message.line.event)
                    running.discard(message.line.session_id)
                if not running:
                    break
        return self._seen(number, results, len(running))

    def _close(self, sessions: list[SessionId]) -> None:
        left = set(sessions)
        for session_id in sessions:
            self._lane.send(CloseSession(session_id=session_id))
        for message in self._until(time.monotonic() + (ROUND_S if left else 0.0)):
            if isinstance(message, SessionClosed):
                left.discard(message.session_id)
            if not left:
                return

    def _until(self, deadline: float) -> Iterator[ToClient]:
        """What arrives up to the deadline (monotonic); counts the workers that had to be killed."""
        while (left_s := deadline - time.monotonic()) > 0:
            self._interrupted()
            wait(self._lane, reading=(self._signals_fd,), timeout_s=left_s)
            while (message := self._lane.receive()) is not None:
                if isinstance(message, Shown) and isinstance(message.line.event, Worker):
                    self._escalated += message.line.event.state == "killed"
                yield message

    def _interrupted(self) -> None:
        for number in numbers(self._signals_fd):
            raise Interrupted(number)

    def _seen(self, number: int, results: list[Result], stuck: int) -> RoundSeen:
        escalated, self._escalated = self._escalated, 0
        return RoundSeen(
            number=number,
            results=dict(Counter(result.reason for result in results)),
            stop_ms=tuple(result.cancel.total_ms for result in results if result.cancel is not None),
            escalated=escalated,
            survivors=sum(1 for _ in self._survivors()) if not stuck else 0,
            open_streams=self._open_streams(),
            stuck=stuck,
        )

    def _survivors(self) -> Iterator[int]:
        """Rule 3: living processes below this one that are in no session of ours. Tools, and whatever they start, have
        sessions of their own; zygote and workers stay in the supervisor's."""
        children = processes.children_by_parent()
        waiting = list(children.get(os.getpid(), ()))
        while waiting:
            pid = waiting.pop()
            waiting += children.get(pid, ())
            process = processes.read_process(pid)
            if process is not None and process.alive and process.session not in self._ours:
                yield pid

    def _open_streams(self) -> int:
        """Rule 3. The last of them may have been closed a moment ago."""
        deadline = time.monotonic() + STREAMS_S
        while True:
            with urllib.request.urlopen(self._gateway_url.removesuffix("/v1") + "/_haltline/state") as answer:
                left = msgspec.json.decode(answer.read(), type=_State).open_streams
            if not left or time.monotonic() >= deadline:
                return left

    def _settings(self) -> SessionSettings:
        return SessionSettings(
            model=self._random.choice(SCENARIOS),
            base_url=self._gateway_url,
            cwd=self._cwd,
            approval_mode="yolo",
            retry=INTERACTIVE,
            ephemeral=True,
            version=self._version,
        )
