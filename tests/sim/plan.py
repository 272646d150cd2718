"""What a seed stands for: how many sessions, which of them are calm, what goes wrong in the others and around all.

A calm session meets nothing that is its own: no fault, no key. Whatever its neighbours meet, it ends as it would alone.
"""

from random import Random
from typing import Literal

import msgspec

from haltline.protocol.kinds import CancelBy
from haltline.protocol.settings import INTERACTIVE, Limits, SessionSettings, StreamLimits, ToolLimits
from sim.sockets import Weather

WHOLE_S = 20.0
"""Limit of one attempt; the default of 900 s would be hours of heartbeats."""
TOOL_S = 5.0
STOPS = 0.15
"""Share of the runs in which the supervisor is stopped for a while, and of those in which the machine is."""


Wish = Literal["cancel", "kill", "kill_llm", "kill_tool", "all"]


class Press(msgspec.Struct, frozen=True, kw_only=True):
    """A wish to stop, `after_s` from the prompt: the owner's, or one of a second terminal."""

    after_s: float
    what: Wish
    by: CancelBy = "key"
    elsewhere: bool = False


class SessionPlan(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    seed: int
    calm: bool
    settings: SessionSettings
    open_after_s: float
    prompts: int
    presses: tuple[tuple[Press, ...], ...] = ()
    """For each prompt."""
    weather: Weather
    model_faults: float = 0.0
    """Chance that a response is no plain good one."""
    worker_faults: float = 0.0
    """Chance that a worker does something wrong at a point where it can."""
    start_faults: float = 0.0
    stop_faults: float = 0.0
    """Chance that a worker does not stop as it should."""
    loops: bool = False
    long: bool = False
    """Texts and results are long, and the gateway refuses requests as too large."""
    answers: float = 1.0
    """Chance that a person answers a question within a moment."""
    breaks_journal_after_s: float | None = None

    @property
    def good_workers(self) -> bool:
        """No worker does anything wrong, and nobody wants one killed."""
        faults = self.worker_faults or self.start_faults or self.stop_faults
        return not faults and all(press.what in ("cancel", "all") for presses in self.presses for press in presses)

    @property
    def undisturbed(self) -> bool:
        """Nothing but the weather is against it."""
        plain = self.settings == plain_settings(self.index)
        quiet = not any(self.presses) and not self.model_faults and not self.loops
        return self.calm or (plain and quiet and self.good_workers)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    sessions: tuple[SessionPlan, ...]
    supervisor_stops: tuple[tuple[float, float], ...] = ()
    """(when, how long), from the start."""
    suspends: tuple[tuple[float, float], ...] = ()
    """Of the whole machine."""
    zygote_dies_s: float | None = None
    client_dies_s: float | None = None
    looks: int = 0
    """How often a second terminal asks for the list."""


def of_seed(seed: int) -> Plan:
    rng = Random(seed)
    count = rng.choice((2, 2, 3, 3, 4, 5, 6))
    busy = rng.random() < 0.25
    everyone = rng.random() < 0.1
    sessions = tuple(_session(rng, seed, index, busy, everyone) for index in range(count))
    return Plan(
        seed=seed,
        sessions=sessions,
        supervisor_stops=_times(rng, sessions, rng.choice(((0.1, 2.6), (2.6, 14.0)))),
        suspends=_times(rng, sessions, rng.choice(((0.1, 2.6), (2.6, 40.0)))),
        zygote_dies_s=_moment(rng, sessions) if rng.random() < 0.06 else None,
        client_dies_s=_last_moment(rng, sessions) if rng.random() < 0.1 else None,
        looks=rng.choice((0, 0, 0, 1, 2)),
    )


def _times(
    rng: Random, sessions: tuple[SessionPlan, ...], long: tuple[float, float]
) -> tuple[tuple[float, float], ...]:
    if rng.random() >= STOPS:
        return ()
    return tuple((_moment(rng, sessions), rng.uniform(*long)) for _ in range(rng.choice((1, 1, 2))))


def _moment(rng: Random, sessions: tuple[SessionPlan, ...]) -> float:
    """While the workers of a session start, while most sessions work, or late."""
    if rng.random() < 0.3:
        return rng.choice(sessions).open_after_s + rng.random() * 0.005
    return rng.random() * rng.choice((0.12, 1.5, 5.0))


def _last_moment(rng: Random, sessions: tuple[SessionPlan, ...]) -> float:
    """Of the client: any, or right behind its wish for one more session."""
    if rng.random() < 0.3:
        return rng.choice(sessions).open_after_s + rng.random() * 0.0003
    return _moment(rng, sessions)


def _session(rng: Random, seed: int, index: int, busy: bool, everyone: bool) -> SessionPlan:
    calm = index > 0 and rng.random() < 0.35
    prompts = rng.choice((1, 1, 2))
    weather = Weather(delay_s=rng.choice((0.0002, 0.001, 0.01)) if busy else 0.0003, slow=0.05 if busy else 0.0)
    own_seed = seed * 64 + index + 1
    open_after_s = rng.random() * 0.1
    if calm:
        return SessionPlan(
            index=index,
            seed=own_seed,
            calm=True,
            settings=plain_settings(index),
            open_after_s=open_after_s,
            prompts=prompts,
            weather=weather,
        )
    weather.slow = rng.choice((0.0, 0.0, 0.05, 0.2))
    weather.lost_broadcast = rng.choice((0.0, 0.0, 0.5))
    weather.lossy = rng.random() < 0.3
    weather.full = rng.choice((0.0, 0.0, 0.1))
    storm = rng.choice((0.0, 0.1, 0.3))
    return SessionPlan(
        index=index,
        seed=own_seed,
        calm=False,
        open_after_s=open_after_s,
        prompts=prompts,
        settings=_stormy_settings(rng, index),
        presses=tuple(_presses(rng, everyone) for _ in range(prompts)),
        weather=weather,
        model_faults=rng.choice((0.0, 0.2, 0.5, 0.9)),
        worker_faults=storm * rng.random(),
        start_faults=rng.choice((0.0, 0.0, 0.3)),
        stop_faults=rng.choice((0.0, 0.2, 0.6)),
        loops=rng.random() < 0.2,
        answers=rng.choice((1.0, 0.7)),
        breaks_journal_after_s=rng.random() * 2 if rng.random() < 0.02 else None,
        long=(seed + index) % 4 == 0,
    )


def _presses(rng: Random, everyone: bool) -> tuple[Press, ...]:
    """None, one, or several on each other's heels; at any moment, the first 30 ms more often than later. `everyone`:
    some of them mean all sessions."""
    if rng.random() < 0.4:
        return ()
    first = rng.random() * rng.choice((0.03, 0.5, 4.0))
    presses: list[Press] = []
    what: Wish
    for _ in range(rng.choice((1, 1, 2, 3))):
        what = rng.choice(("cancel", "cancel", "cancel", "cancel", "kill", "kill_llm", "kill_tool"))
        if everyone and rng.random() < 0.3:
            what = "all"
        elsewhere = what != "cancel" or rng.random() < 0.3
        by: CancelBy = "client" if elsewhere else rng.choice(("key", "signal"))
        presses.append(Press(after_s=first, what=what, by=by, elsewhere=elsewhere))
        first += rng.random() * rng.choice((0.01, 0.3, 2.5))
    return tuple(presses)


def plain_settings(index: int) -> SessionSettings:
    return SessionSettings(
        model=f"s{index}",
        base_url="http://10.0.0.1/v1",
        cwd="/w/space",
        version="0",
        approval_mode="yolo",
        retry=INTERACTIVE,
        stream=StreamLimits(whole_s=WHOLE_S),
        tools=ToolLimits(timeout_s=TOOL_S, max_timeout_s=TOOL_S),
        system_prompt="x",
    )


def _stormy_settings(rng: Random, index: int) -> SessionSettings:
    plain = plain_settings(index)
    choice = rng.random()
    if choice < 0.25:
        return msgspec.structs.replace(plain, approval_mode="ask", interactive=True)
    if choice < 0.35:
        return msgspec.structs.replace(plain, run_limits=Limits(turns=3, seconds=4.0, tokens=400))
    if choice < 0.4:
        return msgspec.structs.replace(plain, ephemeral=True)
    return plain
