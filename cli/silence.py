"""Whether a supervisor that says nothing is still there. Pure.

A run may be silent for long: a tool works, a person is asked. So a silent supervisor is asked for its listing, which it
answers at once, whatever its sessions do. Only when several questions in a row got no answer is it given up: a client
that was itself stopped for an hour finds one deadline passed, asks, and is answered.
"""

from typing import Final, Literal

ASK_EVERY_S: Final = 10.0
"""An answer takes milliseconds; this is a machine that is a thousand times too slow."""
UNANSWERED: Final = 3
"""Questions without an answer, after which the supervisor is mute: 40 s after its last word."""


class Silence:
    def __init__(self, now: float) -> None:
        self._asked = 0
        self.due = now + ASK_EVERY_S
        """When something has to be done (monotonic)."""

    def heard(self, now: float) -> None:
        """Something came, or nothing could come because we did not read."""
        self._asked = 0
        self.due = now + ASK_EVERY_S

    def at(self, now: float) -> Literal["wait", "ask", "give_up"]:
        """What is to be done now."""
        if now < self.due:
            return "wait"
        if self._asked == UNANSWERED:
            return "give_up"
        self._asked += 1
        self.due = now + ASK_EVERY_S
        return "ask"

    @property
    def words(self) -> str:
        return f"the supervisor did not answer for {(UNANSWERED + 1) * ASK_EVERY_S:g} s"
