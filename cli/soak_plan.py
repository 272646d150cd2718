"""What a soak is going to do: who asks for what, who is stopped, whose worker is hurt. Pure: one seed, one plan."""

import random
from typing import Final, Literal

import msgspec

from haltline.protocol.ids import ROLES, Role
from haltline.protocol.kinds import Reason

ENDLESS: Final = frozenset({"slow", "hang_first", "tool_tree"})
"""They do not end within a round unless they are stopped, so each of them is."""
SCENARIOS: Final = ("slow", "slow", "hang_first", "tool_tree", "tool_tree", "rate_limit", "ok")
"""In these shares: text that goes on, silence before the first token, trees that ignore SIGTERM, a wait, an end."""
CANCELLED: Final = 0.5
"""Of the sessions that would end by themselves; some of these cancels come too late, as they do in life."""
WITHIN_S: Final = (0.02, 1.5)
"""From the prompt to whatever is done to the session, uniform."""


class Harm(msgspec.Struct, frozen=True, kw_only=True):
    """A worker is killed (SIGKILL), or stopped so that it answers nothing (SIGSTOP)."""

    how: Literal["kill", "stop"]
    role: Role
    at_s: float
    """From the prompt; later where the worker is not ready by then."""


class SessionPlan(msgspec.Struct, frozen=True, kw_only=True):
    scenario: str
    cancel_at_s: float | None
    """From the prompt; None: never."""
    harm: Harm | None

    @property
    def words(self) -> str:
        cancel = "never stopped" if self.cancel_at_s is None else f"stopped after {self.cancel_at_s:.2f} s"
        harm = self.harm
        hurt = "" if harm is None else f", SIG{harm.how.upper()} to its {harm.role} worker after {harm.at_s:.2f} s"
        return f"{self.scenario}, {cancel}{hurt}"

    def explains(self, reason: Reason) -> bool:
        """Whether this plan may make a run end with that reason."""
        match reason:
            case "cancelled":
                return self.cancel_at_s is not None
            case "completed":  # a model that is told of its lost tool concludes
                return self.scenario not in ENDLESS or (self._hurts("tool") and self.scenario == "tool_tree")
            case "failed":  # text that was shown is not asked for again
                return self._hurts("llm")
            case _:
                return False

    def _hurts(self, role: Role) -> bool:
        return self.harm is not None and self.harm.role == role


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Per cent of the sessions of a round that lose a worker in this way."""

    kill: int
    stop: int


def plan(seed: int, number: int, sessions: int, rates: Rates) -> tuple[SessionPlan, ...]:
    """Of the round with this number. Depends on nothing else, the rounds before it included."""
    source = random.Random(f"{seed} {number}")
    return tuple(_one(source, rates) for _ in range(sessions))


def _one(source: random.Random, rates: Rates) -> SessionPlan:
    scenario = source.choice(SCENARIOS)
    cancelled = scenario in ENDLESS or source.random() < CANCELLED
    return SessionPlan(
        scenario=scenario,
        cancel_at_s=source.uniform(*WITHIN_S) if cancelled else None,
        harm=_harm(source, rates),
    )


def _harm(source: random.Random, rates: Rates) -> Harm | None:
    drawn, role, at_s = source.uniform(0, 100), source.choice(ROLES), source.uniform(*WITHIN_S)
    if drawn < rates.kill:
        return Harm(how="kill", role=role, at_s=at_s)
    return Harm(how="stop", role=role, at_s=at_s) if drawn < rates.kill + rates.stop else None
