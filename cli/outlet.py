"""Writes pieces to stdout and stderr without ever blocking the loop that watches for signals.

1. A stream is written only when poll said that it takes something, and then at most PIPE_BUF bytes, which a
   pipe with room takes whole: a reader that stops (`| less`) never makes the client deaf to Ctrl+C. The
   streams' own flags are left alone, since other programs share them. A file takes everything: FILE_BYTES.
2. Where both are the same terminal, or the same log (`> log 2>&1`), they share one queue, so what is read there
   is in order. A line for stderr that would land behind unfinished text of stdout starts on a new line.
3. A stream that cannot be written any more is noticed: `reader_lost`. Nothing more is queued for it. Why is said
   where the user cannot know: a full disk, not a reader that left.
4. UTF-8, whatever the locale says; what cannot be encoded is replaced.
5. One status line may stand at the bottom of a terminal; it is erased before anything else is written there.
6. The work is linear in the text, however it is cut into pieces: neighbours for one stream become one bytearray,
   from whose front deleting copies nothing.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterable
from select import PIPE_BUF
from typing import Final

from haltline.cli.pieces import Piece, To
from haltline.cli.printable import fit

FULL_BYTES: Final = 1 << 20
"""Above this much unwritten text no more events are taken from the supervisor, which then merges deltas."""
FILE_BYTES: Final = 1 << 18
"""Written at once to a file, which never waits for a reader: some 0.1 ms."""
_ERASE: Final = "\r\x1b[2K"

_GONE: Final = frozenset({errno.EPIPE, errno.EIO})
"""A pipe without a reader, a terminal that was hung up: whoever left knows it."""

_Queue = deque[tuple[To, bytearray]]
"""What is unwritten, in order; neighbours are for different streams."""


class Outlet:
    """`out_fd`, `err_fd`: 1 and 2, or pipes of a test."""

    def __init__(self, *, out_fd: int = 1, err_fd: int = 2, same_screen: bool, columns: int = 80) -> None:
        """`same_screen`: both lead to the same place (rule 2). `columns`: of the terminal behind stderr."""
        self._fds: dict[To, int] = {"out": out_fd, "err": err_fd}
        self._same_screen = same_screen
        self.columns = columns
        self._at_once = {to: FILE_BYTES if _is_file(fd) else PIPE_BUF for to, fd in self._fds.items()}
        self._queues: dict[To, _Queue] = {"out": deque(), "err": deque()}
        self._unwritten = 0
        self._lost: set[To] = set()
        self._out_open = False
        """stdout's last character was no line end."""
        self._status: str | None = None

    @property
    def reader_lost(self) -> bool:
        return "out" in self._lost

    @property
    def full(self) -> bool:
        return self._unwritten > FULL_BYTES

    @property
    def waiting(self) -> tuple[int, ...]:
        """Descriptors that have something to write."""
        return tuple({self._fds[queue[0][0]] for queue in self._queues.values() if queue})

    def put(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if not piece.text:
                continue
            if self._same_screen or piece.to == "err":
                self.set_status(None)
            text = piece.text
            if piece.to == "out":
                self._out_open = not text.endswith("\n")
            else:
                text = self._from_new_line(text)
            self._queue(piece.to, text)

    def ask(self, text: str) -> None:
        """Put a question on stderr, on a line of its own also where stdout is a pipe whose reader writes to the same
        screen, which nobody can know."""
        if self._out_open and not self._same_screen:
            self._out_open = False
            text = "\n" + text
        self.put((Piece("err", text),))

    def set_status(self, text: str | None) -> None:
        """Show `text` as the bottom line, or none."""
        if text is not None:
            text = fit(text, self.columns - 1)
        if text == self._status:
            return
        if self._status is not None:
            self._queue("err", _ERASE)
        if text is not None:
            self._queue("err", self._from_new_line(text))
        self._status = text

    def _from_new_line(self, text: str) -> str:
        """Rule 2."""
        if not (self._same_screen and self._out_open):
            return text
        self._out_open = False
        return "\n" + text

    def _queue(self, to: To, text: str) -> None:
        if to in self._lost:
            return
        data = text.encode("utf-8", "replace")
        queue = self._queues["err" if self._same_screen else to]
        if queue and queue[-1][0] == to:
            queue[-1][1].extend(data)
        else:
            queue.append((to, bytearray(data)))
        self._unwritten += len(data)

    def forget(self) -> bool:
        """Give up what is unwritten. True: something was lost by that."""
        lost = self._unwritten > 0
        for queue in self._queues.values():
            queue.clear()
        self._unwritten = 0
        self._out_open = self._out_open or lost
        return lost

    def write(self, ready: Iterable[int]) -> None:
        """Write what the ready descriptors take."""
        for fd in ready:
            for queue in self._queues.values():
                if queue and self._fds[queue[0][0]] == fd:
                    self._write_head(queue)

    def _write_head(self, queue: _Queue) -> None:
        to, data = queue[0]
        try:
            written = os.write(self._fds[to], data[: self._at_once[to]])
        except BlockingIOError:  # somebody made it non-blocking, and another writer took the room
            return
        except OSError as error:
            self._lose(to, error)
            return
        self._unwritten -= written
        del data[:written]
        if not data:
            queue.popleft()

    def _lose(self, to: To, error: OSError) -> None:
        self._lost.add(to)
        for name, queue in self._queues.items():
            self._queues[name] = deque(run for run in queue if run[0] != to)
        self._unwritten = sum(len(data) for queue in self._queues.values() for _, data in queue)
        if to == "out" and error.errno not in _GONE:
            self._queue("err", f"haltline: stdout cannot be written: {error.strerror}\n")


def _is_file(fd: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:  # closed: writing says so
        return False
