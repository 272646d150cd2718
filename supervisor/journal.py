"""The journal: every event of every session, append-only, in one SQLite file per state folder (design 8, K2).

1. `append` gathers, `commit` makes all that was gathered durable in one transaction. Durable against the death of
   processes, not of the machine: WAL with synchronous=NORMAL writes, but does not flush, at a commit.
2. Several supervisors write to one file. A commit waits JOURNAL_BUSY_S for another's at most; one takes about 0.1 ms.
3. Checkpoints flush, which takes as long as the disk likes, so none ever runs inside a commit: a thread with its own
   connection does it, one at a time. Passive ones hold nobody, and the WAL starts anew when one has caught up. Only a
   WAL with which none can catch up, because commits never rest, is emptied by one that holds the writers.
4. A file that cannot be used is refused when it is opened, in one line. What fails later raises JournalFailed; the
   transaction that failed has left nothing, and what it held is still gathered.
"""

import contextlib
import os
import sqlite3
import threading
import time
import urllib.parse
from collections.abc import Iterator
from typing import Final, Protocol, Self

import msgspec

from haltline.protocol import times
from haltline.protocol.errors import ConfigurationProblem, JournalFailed
from haltline.protocol.utf8 import is_utf8

SCHEMA: Final = 1
"""PRAGMA user_version. Raised when rows change their meaning."""
APPLICATION_ID: Final = 0x48414C54
"""`HALT`: tells our file from any other program's SQLite file."""
MOVE_AWAY: Final = "move it away, or set HALTLINE_HOME to another folder"
WRITABLE: Final = "set HALTLINE_HOME or XDG_STATE_HOME to a writable folder"
PAGE: Final = 4_096
PAGES_A_COMMIT: Final = 3
"""What a small commit puts into the WAL beside its rows: a leaf of the table, one of its index, one above them."""
CHECKPOINT_BYTES: Final = 8 << 20
"""Put into the WAL between two checkpoints."""
PASSES: Final = 3
"""Passive checkpoints in a row: each leaves only what was committed meanwhile, so they soon meet a moment of rest."""
WAL_BYTES: Final = 64 << 20
"""A WAL that is larger after these, because commits never rest, is emptied although writers wait for it."""

_TABLE = """CREATE TABLE events(
    session TEXT NOT NULL, seq INTEGER NOT NULL, ts TEXT NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY(session, seq))"""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `type`: `stimulus.NAME`, `intent.NAME`, or a public event's own type; `body`: its JSON."""

    seq: int
    ts: str
    type: str
    body: bytes


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """One session of the file: how many rows, and the first and last moment, RFC 3339."""

    session: str
    rows: int
    first_ts: str
    last_ts: str


def named(path: str, head: str, /, most: int = 2) -> tuple[str, ...]:
    """Sessions of the file whose ids begin with `head`, `most` at most. Reads only, holds up no writer, and waits for
    none: a file that is not there, not ours, or cannot be read now has no session. No id begins with what is not
    UTF-8."""
    if not is_utf8(head):
        return ()
    found: list[str] = []
    uri = f"file:{urllib.parse.quote(path)}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0.1)) as connection:
            row = connection.execute("SELECT min(session) FROM events WHERE session >= ?", (head,)).fetchone()
            while row[0] is not None and str(row[0]).startswith(head) and len(found) < most:
                found.append(str(row[0]))
                row = connection.execute("SELECT min(session) FROM events WHERE session > ?", (row[0],)).fetchone()
    except sqlite3.Error:
        return ()
    return tuple(found)


class Writable(Protocol):
    """What the supervisor asks of a journal: a Journal, or NoJournal."""

    def append(self, session: str, seq: int, ts: str, kind: str, body: bytes) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Used from one thread, which never waits for a disk to flush."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._gathered: list[tuple[str, int, str, str, bytes]] = []
        self._since_checkpoint = 0
        self._checkpoint: threading.Thread | None = None

    @classmethod
    def open(cls, path: str) -> Self:
        """Open the file, or make it (0600, its folder 0700).

        Raises ConfigurationProblem for a file that is no journal of ours, of a newer haltline, or not writable.
        """
        deadline = time.monotonic() + times.JOURNAL_OPEN_S
        while True:
            try:
                journal = cls(path, _opened(path))
            except sqlite3.OperationalError as error:
                if not _busy(error) or time.monotonic() > deadline:
                    raise _refused(path, _reason(error), _advice(error)) from error
                time.sleep(0.01)
            except sqlite3.DatabaseError as error:
                raise _refused(path, f"is no journal ({_reason(error)})") from error
            except OSError as error:
                raise _refused(path, error.strerror or "cannot be opened", WRITABLE) from error
            else:
                journal._checkpoint_if_due(_wal_bytes(path))  # what processes left that ended without closing
                return journal

    def append(self, session: str, seq: int, ts: str, kind: str, body: bytes) -> None:
        """Gather one row; `seq` rises within a session."""
        self._gathered.append((session, seq, ts, kind, body))

    def commit(self) -> None:
        """Make everything gathered durable. Raises JournalFailed; then nothing of it is in the file."""
        if not self._gathered:
            return
        try:
            self._write()
        except sqlite3.IntegrityError as error:
            session = self._gathered[0][0]
            raise JournalFailed(
                f"the journal {self._path} has later rows of session {session}: it is being continued elsewhere; "
                "cancel it there, or start a new session"
            ) from error
        except sqlite3.Error as error:
            raise JournalFailed(
                f"the journal {self._path} cannot be written: {_reason(error)}; "
                "make room on its disk and check its permissions, or run with --ephemeral"
            ) from error
        self._since_checkpoint += sum(len(row[4]) for row in self._gathered) + PAGES_A_COMMIT * PAGE
        self._gathered.clear()
        self._checkpoint_if_due(self._since_checkpoint)

    def rows(self, session: str, /) -> Iterator[Row]:
        """The committed rows of a session, in order. Raises JournalFailed where the file cannot be read."""
        try:
            for seq, ts, kind, body in self._connection.execute(
                "SELECT seq, ts, type, body FROM events WHERE session = ? ORDER BY seq", (session,)
            ):
                yield Row(seq=seq, ts=ts, type=kind, body=body)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def sessions(self) -> tuple[Written, ...]:
        """All sessions of the file, the latest first. Raises JournalFailed where the file cannot be read."""
        try:
            found = self._connection.execute(
                "SELECT session, count(*), min(ts), max(ts) FROM events GROUP BY session ORDER BY max(ts) DESC, session"
            ).fetchall()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        return tuple(
            Written(session=name, rows=rows, first_ts=first, last_ts=last) for name, rows, first, last in found
        )

    def close(self) -> None:
        """Commit and close. The last to close a file also empties its WAL into it, which flushes.

        A process that ends at once may commit instead: the WAL stays, and whoever opens the file next takes it up.
        """
        try:
            self.commit()
        finally:
            if self._checkpoint is not None:
                self._checkpoint.join()
            self._connection.close()

    def _write(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany("INSERT INTO events VALUES(?, ?, ?, ?, ?)", self._gathered)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _checkpoint_if_due(self, in_wal: int) -> None:
        if in_wal < CHECKPOINT_BYTES or (self._checkpoint is not None and self._checkpoint.is_alive()):
            return
        self._since_checkpoint = 0
        self._checkpoint = threading.Thread(target=_checkpoint, args=(self._path,), name="checkpoint", daemon=True)
        self._checkpoint.start()

    def _unreadable(self, error: sqlite3.Error) -> JournalFailed:
        return JournalFailed(
            f"the journal {self._path} cannot be read: {_reason(error)}; move it away to start a new one"
        )


class NoJournal:
    """What `--ephemeral` writes to."""

    def append(self, session: str, seq: int, ts: str, kind: str, body: bytes) -> None:
        """Nothing is kept."""

    def commit(self) -> None:
        """Nothing is written."""

    def rows(self, _session: str, /) -> Iterator[Row]:
        return iter(())

    def sessions(self) -> tuple[Written, ...]:
        return ()

    def close(self) -> None:
        """Nothing is open."""


def _opened(path: str) -> sqlite3.Connection:
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        # Only a file that nobody can have open: closing a descriptor drops all locks of this process on its file.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        os.chmod(path, 0o600)
    connection = _connect(path)
    try:
        _prepare(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=times.JOURNAL_BUSY_S, isolation_level=None, cached_statements=16)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")  # rule 3
    connection.execute(f"PRAGMA journal_size_limit={CHECKPOINT_BYTES}")
    return connection


def _prepare(path: str, connection: sqlite3.Connection) -> None:
    """Check whose file it is before anything is written to it."""
    if _pragma(connection, "application_id") != APPLICATION_ID:
        connection.execute("BEGIN IMMEDIATE")  # one of several at once makes it, the others see it made
        if _pragma(connection, "application_id") != APPLICATION_ID:
            if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
                raise _refused(path, "belongs to another program")
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA}")
        connection.execute("COMMIT")
    version = _pragma(connection, "user_version")
    if version > SCHEMA:
        raise ConfigurationProblem(
            f"journal {path}: written by a newer haltline (schema {version}, this one knows {SCHEMA}); "
            "update haltline, or set HALTLINE_HOME to another folder"
        )
    connection.execute("SELECT session, seq, ts, type, body FROM events LIMIT 1").fetchone()
    connection.execute("PRAGMA journal_mode=WAL")
    # A file that can be read but not written says so here, not in the middle of a run.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version={SCHEMA}")
    connection.execute("COMMIT")


def _wal_bytes(path: str) -> int:
    try:
        return os.stat(f"{path}-wal").st_size
    except FileNotFoundError:
        return 0


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return int(value)


def _checkpoint(path: str) -> None:
    """Rule 3. What fails here loses nothing: the next one does it, and a disk that is full or gone fails a commit."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_connect(path)) as connection:
        frames = 0
        for _ in range(PASSES):
            before, frames = frames, _passive(connection)
            if frames == before:
                return  # nothing was committed meanwhile: the next commit starts the WAL anew
        if frames * PAGE > WAL_BYTES:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _passive(connection: sqlite3.Connection) -> int:
    """Copy what is in the WAL now; the number of its frames."""
    _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(frames)


def _busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _reason(error: sqlite3.Error) -> str:
    return str(error).strip() or type(error).__name__


def _advice(error: sqlite3.OperationalError) -> str:
    """A file that cannot be opened or written need not be the culprit, nor be there at all."""
    code = error.sqlite_errorcode & 0xFF
    return WRITABLE if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM) else MOVE_AWAY


def _refused(path: str, why: str, do: str = MOVE_AWAY) -> ConfigurationProblem:
    return ConfigurationProblem(f"journal {path}: {why}; {do}")
