"""Why a supervisor was ended before it could say so itself: a word for the client that started it.

Standard library only: made before anything of ours is imported.

1. The client makes the file with the runtime folder and holds it open: the guard removes the folder, the word stays.
2. Whoever ends a supervisor that cannot speak any more, or has nobody yet to speak to, writes the word first. Of two
   the first counts.
3. A tool has the same user id and may write here: the word decides what is said, never what is done.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    EndedBy = Literal["killed", "cancelled", "terminated"]

_BYTES = 64
NO_FILE = -1
"""Stands for the descriptor where the folder took no file."""


def make(folder: str) -> int:
    """By the client. Returns what `read` takes."""
    try:
        return os.open(_path(folder), os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600)
    except OSError:  # a full disk costs the word, not the run
        return NO_FILE


def let_go(fd: int) -> None:
    """By every other process of the chain."""
    if fd != NO_FILE:
        os.close(fd)


def note(folder: str, word: EndedBy) -> None:
    """Rule 2."""
    with contextlib.suppress(OSError):
        fd = os.open(_path(folder), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(fd, f"{word}\n".encode())
        finally:
            os.close(fd)


def read(fd: int) -> EndedBy | None:
    """None: nobody has written one."""
    if fd == NO_FILE:
        return None
    match os.pread(fd, _BYTES, 0).split(b"\n", 1)[0]:
        case b"killed":
            return "killed"
        case b"cancelled":
            return "cancelled"
        case b"terminated":
            return "terminated"
        case _:
            return None


def _path(folder: str) -> str:
    return f"{folder}/ended"
