"""The terminal behind a command's standard input: taken for reading keys, given back, whoever dies. Standard library.

The client reads whole keys, so it takes the terminal out of line mode. It may die there at any moment, and the next
program, a shell for instance, would find a terminal that shows nothing of what is typed (R88). So:

1. What was found and what the client makes of it stand on a page that client, guard and supervisor share, before the
   terminal is touched. Whoever sees the client dead calls `restore`.
2. It is put back only where it still is as the client made it. A shell that was faster has its own settings by now.
   So it does no harm when several do it, or somebody does it late.
3. Only the settings change: no mode is ever switched on that an escape sequence would have to switch off.
4. Keys like Ctrl+C and Ctrl+Z stay signals.
"""

from __future__ import annotations

import marshal
import mmap
import os
import signal
import termios

_PAGE_BYTES = 4096
_LENGTH_BYTES = 4

TYPE_CHECKING = False
if TYPE_CHECKING:
    Settings = list[int | list[bytes | int]]

_LFLAG, _CC = 3, 6
"""Places in what tcgetattr returns."""


class SharedTerminal:
    """Made before the first fork. Where `fd` is no terminal, nothing is ever taken and nothing restored."""

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._page = mmap.mmap(-1, _PAGE_BYTES)  # anonymous and shared: forks see what is written to it

    def keep(self) -> None:
        """Hold the terminal also after standard input was let go of. For those who outlive the client."""
        if os.isatty(self._fd):
            self._fd = os.dup(self._fd)
            os.set_inheritable(self._fd, False)

    def let_go(self) -> None:
        """For forks of those who called `keep`."""
        if self._fd > 2:
            os.close(self._fd)
            self._fd = -1

    def take(self) -> bool:
        """Keys instead of lines, nothing echoed; also where it was taken and somebody else has changed it since. False:
        it cannot be had (hung up). To be asked for in the foreground alone: else the kernel stops who asks."""
        try:
            found = termios.tcgetattr(self._fd)
            before = self._read()
            if before is not None and before[1] == found:
                return True
            made = _for_keys(found)
            self._write(found, made)  # rule 1
            termios.tcsetattr(self._fd, termios.TCSANOW, made)
        except (termios.error, OSError):
            self._clear()
            return False
        return True

    @property
    def taken(self) -> bool:
        """As far as the page knows."""
        return self._read() is not None

    @property
    def hung_up(self) -> bool:
        try:
            termios.tcgetattr(self._fd)
        except (termios.error, OSError):
            return True
        return False

    def restore(self) -> None:
        """What was found, if the terminal was taken and still is as it was made (rule 2)."""
        pair = self._read()
        if pair is None:
            return
        found, made = pair
        # Somebody in the background who changes settings is stopped, but to put back is no change.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))
        try:
            if termios.tcgetattr(self._fd) == made:
                termios.tcsetattr(self._fd, termios.TCSANOW, found)
        except (termios.error, OSError):
            pass  # hung up: there is no terminal left to restore (EIO)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._clear()

    def _write(self, found: Settings, made: Settings) -> None:
        """The length is away first and comes last: of a client that dies in between there is no half of a page."""
        data = marshal.dumps((found, made))
        self._clear()
        self._page[_LENGTH_BYTES : _LENGTH_BYTES + len(data)] = data
        self._page[:_LENGTH_BYTES] = len(data).to_bytes(_LENGTH_BYTES, "little")

    def _read(self) -> tuple[Settings, Settings] | None:
        length = int.from_bytes(self._page[:_LENGTH_BYTES], "little")
        if length == 0:
            return None
        found, made = marshal.loads(self._page[_LENGTH_BYTES : _LENGTH_BYTES + length])
        return found, made

    def _clear(self) -> None:
        self._page[:_LENGTH_BYTES] = bytes(_LENGTH_BYTES)


def _for_keys(found: Settings) -> Settings:
    """No lines, no echo. A read never waits: between a poll and its read Ctrl+C throws away what was typed."""
    made = list(found)
    lflag, cc = made[_LFLAG], made[_CC]
    assert isinstance(lflag, int), "so it is documented"
    assert isinstance(cc, list), "so it is documented"
    made[_LFLAG] = lflag & ~(termios.ICANON | termios.ECHO)
    cc = list(cc)
    cc[termios.VMIN], cc[termios.VTIME] = 0, 0
    made[_CC] = cc
    return made
