"""The prompt of `run`: an argument, standard input, or both.

1. `run -`: standard input alone. `run TEXT`: the text, and what is piped in after it.
2. A pipe is read to its end, as every tool does, but never deaf: a signal ends the wait.
3. What comes is bounded and need not be UTF-8.
"""

import os
import select
import stat
from typing import Final

import msgspec

from haltline.cli.interrupts import Interrupted
from haltline.cli.owned import numbers
from haltline.protocol.errors import UsageProblem
from haltline.protocol.utf8 import repaired

LONGEST_BYTES: Final = 10_000_000
"""No model reads that much; a mistake such as `< /dev/zero` must end."""
PATIENCE_S: Final = 2.0
"""After this long without the end of a pipe the user is told what is being waited for."""


class Given(msgspec.Struct, frozen=True):
    argument: str | None
    piped: str
    """Text of standard input; "" where there was none."""


def compose(given: Given) -> str:
    """The whole prompt. Raises UsageProblem where there is none."""
    piped = given.piped.strip("\n")
    if given.argument is None or given.argument == "-":
        prompt = piped
    else:
        argument = repaired(given.argument)
        prompt = f"{argument}\n\n{piped}" if piped.strip() else argument
    if not prompt.strip():
        raise UsageProblem("the prompt is empty: give it as an argument, or pipe it in with `run -`")
    return prompt


def is_piped(fd: int) -> bool:
    """Something other than a terminal or the null device stands behind `fd`; False where it is closed."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def read_all(fd: int, signals_fd: int) -> str:
    """Everything up to the end of `fd`. Raises Interrupted, or UsageProblem when it does not end."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.register(signals_fd, select.POLLIN)
    data = bytearray()
    patience_ms: float | None = PATIENCE_S * 1000
    while True:
        ready = {ready_fd for ready_fd, _ in poll.poll(patience_ms)}
        if signals_fd in ready:
            for number in numbers(signals_fd):
                raise Interrupted(number)
        if not ready:
            os.write(2, b"haltline: reading the prompt from standard input until it ends (Ctrl+D)\n")
            patience_ms = None
        if fd in ready:
            piece = os.read(fd, 65536)
            data += piece
            if len(data) > LONGEST_BYTES:
                raise UsageProblem(f"standard input is longer than {LONGEST_BYTES:,} bytes: give a shorter prompt")
            if not piece:
                return data.decode("utf-8", "replace")
