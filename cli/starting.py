"""How a command meets the supervisor that it has started: ready, hello, welcome."""

import os
import time
from collections.abc import Callable
from typing import Final

from haltline.cli.lane import LANE, Lane, wait
from haltline.cli.loop import SupervisorLost
from haltline.cli.owned import Owned, numbers
from haltline.protocol import deaths, times
from haltline.protocol.client_messages import ToClient, Welcome
from haltline.protocol.errors import BrokenInvariant, ConfigurationProblem

STARTED_WITHIN_S: Final = times.started_s()
LAST_LOOK_S: Final = 0.2
"""A client that was itself stopped (Ctrl+Z) past a deadline finds here what had come meanwhile."""


def start(owned: Owned, on_signal: Callable[[int], None]) -> tuple[Lane, int]:
    """Wait for the supervisor and prove ourselves. Returns the lane and a descriptor of the supervisor's death. Raises
    ConfigurationProblem with the supervisor's own words, SupervisorLost, and what `on_signal` raises."""
    deadline = time.monotonic() + STARTED_WITHIN_S
    _await_ready(owned, on_signal, deadline)
    lane = Lane(owned.endpoints, owned.token)
    try:
        answer = _first_answer(owned, lane, on_signal, deadline)
        if not isinstance(answer, Welcome):
            raise BrokenInvariant(f"expected Welcome, got {answer}")
        return lane, _death_of(answer.supervisor_pid, owned)
    except BaseException:
        lane.close()
        raise


def _await_ready(owned: Owned, on_signal: Callable[[int], None], deadline: float) -> None:
    said = b""
    while b"\n" not in said:
        if owned.ready_fd in _ready(owned, None, (owned.ready_fd,), on_signal, deadline):
            piece = os.read(owned.ready_fd, 4096)
            if not piece:
                raise SupervisorLost
            said += piece
    line = said.split(b"\n", 1)[0].decode("utf-8", "replace")
    if line != "ready":
        raise ConfigurationProblem(line.removeprefix("failed: "))


def _first_answer(owned: Owned, lane: Lane, on_signal: Callable[[int], None], deadline: float) -> ToClient:
    while True:
        if LANE in _ready(owned, lane, (), on_signal, deadline):
            message = lane.receive()
            if message is not None:
                return message


def _ready(
    owned: Owned, lane: Lane | None, reading: tuple[int, ...], on_signal: Callable[[int], None], deadline: float
) -> frozenset[int]:
    """What of the lane and `reading` is ready; nothing: look again. Raises SupervisorLost."""
    left_s = deadline - time.monotonic()
    ready = wait(lane, reading=(owned.signals_fd, owned.guard_fd, *reading), timeout_s=max(left_s, LAST_LOOK_S))
    for number in numbers(owned.signals_fd):
        on_signal(number)
    ours = ready & {LANE, *reading}
    if not ours and owned.guard_fd in ready:
        raise SupervisorLost
    if not ready and left_s <= 0:
        raise SupervisorLost(f"the supervisor did not start within {STARTED_WITHIN_S:g} s: is the machine overloaded?")
    return ours


def _death_of(supervisor_pid: int, owned: Owned) -> int:
    try:
        return deaths.of_other(supervisor_pid, owned.ready_fd)
    except ProcessLookupError as error:
        raise SupervisorLost from error
