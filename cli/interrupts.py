"""What the presses of one stop mean: cancel, then cancel without grace, then leave (F10). Pure."""

import signal
from typing import Final, Literal

from haltline.protocol import exits

Meaning = Literal["stop", "stop_at_once", "leave"]
_MEANINGS: Final[tuple[Meaning, ...]] = ("stop", "stop_at_once", "leave")


def code_of(number: int) -> int:
    """The exit code of a run that this signal ended."""
    return exits.TERMINATED if number == signal.SIGTERM else exits.INTERRUPTED


class Interrupted(Exception):
    """A signal came while there was no run that it could stop."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number
        self.exit_code = code_of(number)


class Presses:
    """Counts the signals that came during one run. The exit code is the first one's, as in the result."""

    def __init__(self) -> None:
        self._count = 0
        self.exit_code: int = exits.INTERRUPTED

    @property
    def any(self) -> bool:
        return self._count > 0

    def press(self, number: int) -> Meaning:
        if self._count == 0:
            self.exit_code = code_of(number)
        meaning = _MEANINGS[min(self._count, len(_MEANINGS) - 1)]
        self._count += 1
        return meaning
