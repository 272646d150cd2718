"""The imagined model of a session and its gateway: what an attempt does, step by step, good or not.

Text is made of pieces `[ATTEMPT.NUMBER]`, so that whoever reads it can tell whose it is and whether one is missing.
"""

from random import Random
from typing import Literal, TypedDict

import msgspec

from haltline.protocol.conversation import Usage
from haltline.protocol.ids import SessionId
from haltline.protocol.messages import (
    AttemptEnded,
    AttemptFailed,
    AttemptProgress,
    CallDraft,
    Delta,
    FromWorker,
    StartAttempt,
)
from sim.plan import SessionPlan

Vice = Literal["die", "hang", "spin", "stay", "again"]
"""die: the process ends. hang: it does nothing for a minute; spin: for some seconds. stay: it lives, and the attempt
never ends. again: it says its last word a second time."""

HANG_S = 60.0
SUMMARY = "[summary]"
"""Every piece of one: it must never be shown."""
LONG = 2_000
"""Characters of a piece where conversations are long."""


class Step(msgspec.Struct, frozen=True):
    after_s: float
    do: FromWorker | Vice


class _Of(TypedDict):
    session_id: SessionId
    run: int
    turn: int
    generation: int
    attempt: int


def piece(attempt: int, number: int) -> str:
    return f"[{attempt}.{number}]"


class Model:
    """Decides each response of one session. `turns`: good responses of the present run that ask for calls first."""

    def __init__(self, plan: SessionPlan, rng: Random) -> None:
        self._plan = plan
        self._plain = plan.undisturbed
        self._rng = rng
        self.turns = 0
        self.asked = 0
        """Calls that good responses asked for, in this run."""
        self._made = 0

    def prompted(self) -> None:
        self.turns = self._rng.choice((0, 1, 1, 2))
        self.asked = 0

    def respond(self, request: StartAttempt) -> list[Step]:
        rng, plan = self._rng, self._plan
        of: _Of = {
            "session_id": request.session_id,
            "run": request.run,
            "turn": request.turn,
            "generation": request.generation,
            "attempt": request.attempt,
        }
        begin = [Step(0.001, AttemptProgress(**of, phase="headers")), Step(0.01, AttemptProgress(**of, phase="body"))]
        summary = request.purpose == "summary"
        texts = [
            Step(rng.random() * 0.03, Delta(**of, text=SUMMARY if summary else self._piece(request.attempt, number)))
            for number in range(rng.choice((1, 2, 2, 4)))
        ]
        steps = [*begin, *texts, Step(0.005, self._summarised(of) if summary else self._good(of))]
        if rng.random() < plan.model_faults:
            steps = self._bad(of, begin, texts)
        if rng.random() < plan.worker_faults:
            place = rng.randrange(len(steps) + 1)
            vice = rng.choice(_VICES)
            steps = [*steps[:place], Step(rng.random() * 0.01, vice), *steps[place:]]
        return steps

    def _piece(self, attempt: int, number: int) -> str:
        return piece(attempt, number) + (LONG * "x" if self._plan.long else "")

    def _summarised(self, of: _Of) -> AttemptEnded:
        usage = Usage(input=30, output=3)
        return AttemptEnded(**of, finish="stop", finish_raw="", calls=(), reasoning=(), usage=usage)

    def _good(self, of: _Of) -> AttemptEnded:
        calls = self._calls() if self.turns > 0 else ()
        self.turns -= 1
        self.asked += len(calls)
        return AttemptEnded(
            **of,
            finish="tool_calls" if calls else "stop",
            finish_raw="",
            calls=calls,
            reasoning=(),
            usage=Usage(input=40, output=5) if self._rng.random() < 0.8 else None,
        )

    def _calls(self) -> tuple[CallDraft, ...]:
        rng = self._rng
        self._made += 1
        n = self._made
        if self._plan.loops:
            self.turns = max(self.turns, 2)
            return (_call("shell", f'{{"command":"again {n // 9}"}}'),)
        kinds: tuple[tuple[CallDraft, ...], ...] = (
            (_call("shell", f'{{"command":"make {n}"}}'),),
            (_call("read_file", f'{{"path":"a{n}"}}'), _call("read_file", f'{{"path":"b{n}"}}')),
            (_call("read_file", f'{{"path":"c{n}"}}'), _call("write_file", f'{{"path":"d{n}","content":""}}')),
        )
        if self._plain or rng.random() < 0.8:
            return rng.choice(kinds)
        return rng.choice(
            (
                (_call("nope", "{}"), _call("shell", '{"command":')),
                (_call("read_file", f'{{"path":"../e{n}"}}'), _call("shell", f'{{"command":"ls {n}"}}')),
                (_call("shell", '{"cmd":1}'),),
            )
        )

    def _bad(self, of: _Of, begin: list[Step], texts: list[Step]) -> list[Step]:
        """A response that is not plainly good."""
        rng = self._rng
        failed: AttemptFailed | AttemptEnded
        if self._plan.long and rng.random() < 0.6:
            body = '{"error":{"code":"context_length_exceeded","message":"too long"}}'
            return [*begin[:1], Step(0.01, AttemptFailed(**of, phase="headers", status=400, body=body))]
        match rng.choice(
            ("limit", "limit_long", "server", "auth", "refused", "early", "cut", "cut", "length", "empty", "idle")
        ):
            case "limit":
                headers = {"retry-after": "1"} if rng.random() < 0.5 else {}
                return [*begin[:1], Step(0.01, AttemptFailed(**of, phase="headers", status=429, headers=headers))]
            case "limit_long":
                headers = {"retry-after": "600"}
                return [*begin[:1], Step(0.01, AttemptFailed(**of, phase="headers", status=429, headers=headers))]
            case "server":
                return [*begin[:1], Step(0.01, AttemptFailed(**of, phase="headers", status=500))]
            case "auth":
                return [*begin[:1], Step(0.01, AttemptFailed(**of, phase="headers", status=401))]
            case "refused":
                words = "ConnectError: [Errno 111] Connection refused"
                return [Step(0.01, AttemptFailed(**of, phase="connect", exception=words))]
            case "early":
                failed = AttemptFailed(**of, phase="first_event", truncated=True)
                return [*begin[:1], Step(0.01, failed)]
            case "cut":
                failed = AttemptFailed(**of, phase="body", truncated=True)
            case "length":
                draft = CallDraft(name="shell", arguments_raw='{"comm', complete=False)
                failed = AttemptEnded(
                    **of, finish="length", finish_raw="", calls=(draft,), reasoning=(), usage=Usage(output=9)
                )
            case "idle":
                failed = AttemptFailed(**of, phase="body", timer="silence")
            case _:
                failed = AttemptEnded(**of, finish="stop", finish_raw="", calls=(), reasoning=(), usage=None)
                return [*begin, Step(0.01, failed)]
        return [*begin, *texts, Step(0.01, failed)]


_VICES: tuple[Vice, ...] = ("die", "die", "hang", "spin", "stay", "again")


def _call(name: str, arguments_raw: str) -> CallDraft:
    return CallDraft(name=name, arguments_raw=arguments_raw)
