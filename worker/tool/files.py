"""read_file, write_file, edit_file: run in a thread, one bounded step after the other.

1. Only regular files are opened, without waiting: a FIFO or a device would hold the thread for ever.
2. A write goes to a new file in the same folder, which then takes the old one's place: a reader, or a crash of ours,
   sees the old content or the new one. No fsync: that guards against the death of the machine, not ours.
3. `stop` is looked at between steps, last just before the file takes its place. After that the call is finished,
   whatever was asked meanwhile.
4. Edits work on bytes: what is not UTF-8 around them stays as it is.
"""

import contextlib
import errno
import os
import stat
import threading
from typing import BinaryIO

import msgspec

from haltline.protocol.kinds import Changed
from haltline.protocol.tools import EditFile, ReadFile, WriteFile
from haltline.worker.tool import words
from haltline.worker.tool.output import readable
from haltline.worker.tool.workspace import Place

LINE_CHARACTERS = 2_000
"""Shown of one line; generated files have lines of megabytes."""
EDIT_BYTES = 16_777_216
"""A file that is edited is held in memory a few times; no process of ours grows beyond 200 MiB (G6)."""
BINARY_PROBE_BYTES = 8_192
CHUNK_BYTES = 262_144
LINES_NAMED = 5
"""Of an ambiguous edit."""
OCCURRENCES = 1_000
"""Counted of an ambiguous edit; the search ends there."""


class Stopped(Exception):
    """`stop` was set; nothing was changed."""


class FileResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a file tool has to say."""

    text: str
    ok: bool = True
    changed: Changed = "nothing"


class Failed(Exception):
    """The call cannot be done; nothing was changed. Holds the words for the model."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def read_file(place: Place, arguments: ReadFile, output_bytes: int, stop: threading.Event) -> FileResult:
    """Lines of a text file, numbered, within `output_bytes`; a last line says what was not shown."""
    with _open(place) as file:
        if b"\0" in file.read(BINARY_PROBE_BYTES):
            raise Failed(words.binary(place.shown, os.fstat(file.fileno()).st_size))
        file.seek(0)
        lines = _Lines(file, stop)
        shown: list[str] = []
        room = output_bytes
        while (line := lines.next()) is not None:
            if lines.number < arguments.offset:
                continue
            text = f"{lines.number:>6}\t{_shortened(line)}"
            room -= len(text.encode()) + 1
            if len(shown) == arguments.limit or (room < 0 and shown):
                shown.append(words.more_lines(arguments.offset, arguments.offset + len(shown) - 1))
                return FileResult(text="\n".join(shown))
            shown.append(text)
    if shown:
        return FileResult(text="\n".join(shown))
    if lines.number == 0:
        return FileResult(text=words.empty_file())
    raise Failed(words.beyond_end(place.shown, lines.number, arguments.offset))


def write_file(place: Place, arguments: WriteFile, stop: threading.Event) -> FileResult:
    """Replace or make a whole file; folders are made as needed."""
    content = arguments.content.encode("utf-8", "replace")
    if _content_if_small(place, len(content)) == content:
        return FileResult(text=words.same_content(place.shown, len(content)))
    _replace(place, content, stop)
    return FileResult(text=words.wrote(place.shown, len(content)), changed="yes")


def edit_file(place: Place, arguments: EditFile, stop: threading.Event) -> FileResult:
    """Replace the one place where `old` occurs."""
    with _open(place) as file:
        size = os.fstat(file.fileno()).st_size
        if size > EDIT_BYTES:
            raise Failed(words.too_large(place.shown, size, EDIT_BYTES))
        content = file.read(EDIT_BYTES + 1)
    old = arguments.old.encode("utf-8", "replace")
    new = arguments.new.encode("utf-8", "replace")
    if _has_only_crlf(content):
        old, new = _as_crlf(old), _as_crlf(new)
    if old == new:
        raise Failed(words.edit_changes_nothing(place.shown))
    found = _occurrences(content, old)
    if not found:
        raise Failed(words.edit_not_found(place.shown, _hint(content, old)))
    if len(found) > 1:
        lines = [content.count(b"\n", 0, at) + 1 for at in found[:LINES_NAMED]]
        raise Failed(words.edit_ambiguous(place.shown, len(found), len(found) == OCCURRENCES, lines))
    _replace(place, content[: found[0]] + new + content[found[0] + len(old) :], stop)
    return FileResult(text=words.edited(place.shown), changed="yes")


class _Lines:
    """The lines of a file, of which only what can be shown is kept in memory."""

    def __init__(self, file: BinaryIO, stop: threading.Event) -> None:
        self.number = 0
        self._file = file
        self._stop = stop

    def next(self) -> bytes | None:
        """The next line without its end, cut after CHUNK_BYTES with its full length lost; None at the end."""
        line = self._file.readline(CHUNK_BYTES)
        if not line:
            return None
        self.number += 1
        rest = line
        while not rest.endswith(b"\n") and (rest := self._file.readline(CHUNK_BYTES)):
            self._look_at_stop()
        if self.number % 1_000 == 0:
            self._look_at_stop()
        return line.removesuffix(b"\n").removesuffix(b"\r")

    def _look_at_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped


def _shortened(line: bytes) -> str:
    text = readable(line)
    if len(text) <= LINE_CHARACTERS:
        return text
    return text[:LINE_CHARACTERS] + words.line_cut(len(text) - LINE_CHARACTERS)


def _open(place: Place) -> BinaryIO:
    """Rule 1. Raises Failed."""
    try:
        descriptor = os.open(place.real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Failed(words.cannot_read(place.shown, _why(error))) from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise Failed(words.cannot_read(place.shown, "it is a folder" if stat.S_ISDIR(mode) else "it is no regular file"))


def _content_if_small(place: Place, size: int) -> bytes | None:
    """What the file holds, if it is there and has this size."""
    try:
        status = os.stat(place.real)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return None
        with open(place.real, "rb") as file:
            return file.read(size + 1)
    except OSError:
        return None


def _replace(place: Place, content: bytes, stop: threading.Event) -> None:
    """Rules 2 and 3. Raises Failed and Stopped, both with nothing changed."""
    folder = os.path.dirname(place.real)
    temporary = os.path.join(folder, f".haltline-{os.urandom(6).hex()}")
    made: list[str] = []
    begun = False
    try:
        before = _replaceable(place)
        _make_folders(folder, made)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        begun = True
        with open(descriptor, "wb") as file:
            for start in range(0, len(content), CHUNK_BYTES):
                if stop.is_set():
                    raise Stopped
                file.write(content[start : start + CHUNK_BYTES])
            if before is not None:
                _copy_owner_and_mode(descriptor, before)
        if stop.is_set():
            raise Stopped
        os.replace(temporary, place.real)
    except BaseException as error:
        if begun:
            os.unlink(temporary)
        for made_folder in reversed(made):
            with contextlib.suppress(OSError):  # somebody else has put something there
                os.rmdir(made_folder)
        if isinstance(error, OSError):
            raise Failed(words.cannot_write(place.shown, _why(error))) from error
        raise


def _replaceable(place: Place) -> os.stat_result | None:
    """The file that is there; None if there is none. Raises Failed if it may not be replaced."""
    try:
        before = os.stat(place.real)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(before.st_mode):
        raise Failed(words.cannot_write(place.shown, "it is a folder"))
    if not stat.S_ISREG(before.st_mode):
        raise Failed(words.cannot_write(place.shown, "it is no regular file"))
    if not os.access(place.real, os.W_OK):
        raise Failed(words.cannot_write(place.shown, "it is read-only"))
    return before


def _make_folders(folder: str, made: list[str]) -> None:
    """Make what is missing; `made` gets each folder that was made, outermost first."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        os.mkdir(path)
        made.append(path)


def _copy_owner_and_mode(descriptor: int, before: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):  # only root can; the new file then belongs to who wrote it
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _has_only_crlf(content: bytes) -> bool:
    """A file whose every line ends in CRLF: the model, which sees lines, writes its text with LF."""
    return b"\r\n" in content and content.count(b"\n") == content.count(b"\r\n")


def _as_crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _occurrences(content: bytes, old: bytes) -> list[int]:
    """Where `old` begins, overlapping ones too: `aa` is twice in `aaa`."""
    found: list[int] = []
    at = content.find(old)
    while at >= 0 and len(found) < OCCURRENCES:
        found.append(at)
        at = content.find(old, at + 1)
    return found


def _hint(content: bytes, old: bytes) -> str:
    """Where something like `old` stands."""
    lines = [b"".join(line.split()) for line in content.split(b"\n")]
    wanted = [b"".join(line.split()) for line in old.strip().split(b"\n")]
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start] == wanted[0] and lines[start : start + len(wanted)] == wanted:
            return words.hint_whitespace(start + 1, start + len(wanted))
    if wanted[0] in lines:
        return words.hint_first_line(lines.index(wanted[0]) + 1)
    return words.hint_nothing_near()


def _why(error: OSError) -> str:
    """The system's words for it, without number and path."""
    return (error.strerror or "the system refused").lower()
