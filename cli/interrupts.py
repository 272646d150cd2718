"""What signals mean to a command: cancel, then cancel without grace, then leave (F10); and when none is heard."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, Literal

from haltline.protocol import exits

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command."""

Meaning = Literal["stop", "stop_at_once", "leave"]
_MEANINGS: Final[tuple[Meaning, ...]] = ("stop", "stop_at_once", "leave")


def code_of(number: int) -> int:
    """The exit code of a run that this signal ended."""
    return exits.TERMINATED if number == signal.SIGTERM else exits.INTERRUPTED


@contextmanager
def undisturbed() -> Generator[None]:
    """No signal in STOPPING is heard within; it is afterwards. For steps of milliseconds that nobody else would undo. A
    process that is started within has them blocked, as ours do not leave them (launcher.py, rule 3)."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


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
