"""The stdout of commands that print as they go (help, listings, receipts); `run` and `chat` write by outlet.py.

UTF-8 whatever the locale says, each line at once, and a write that fails is an exception of its own: any other
OSError is a bug, a full disk or a reader that left is not.
"""

import errno
import io
import sys


class Unwritable(Exception):
    """stdout takes nothing. `reader_gone`: whoever read it has left, and knows."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"stdout cannot be written: {error.strerror}")
        self.reader_gone = error.errno in (errno.EPIPE, errno.EIO)


class _Stdout(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise Unwritable(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise Unwritable(error) from error


def take_stdout() -> None:
    """From now on what is printed goes through here."""
    raw = io.FileIO(1, "w", closefd=False)
    sys.stdout = _Stdout(io.BufferedWriter(raw), encoding="utf-8", errors="replace", line_buffering=True)
