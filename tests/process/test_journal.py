"""The journal holds what was committed, whatever happens to its writers, its disk and its file (K2, P7)."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from haltline.protocol.errors import ConfigurationProblem, JournalFailed
from haltline.supervisor import journal as journal_module
from haltline.supervisor.journal import Journal, NoJournal, Row, Written

WRITER = Path(__file__).resolve().parent.parent / "support" / "journal_writer.py"
TS = "2026-11-30T12:00:00.000Z"
ROWS_A_COMMIT = 7
NOBODY = 65_534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


def writer(path: Path, session: str, commits: int, limit: int | None = None) -> subprocess.Popen[str]:
    arguments = [str(path), session, str(commits), str(ROWS_A_COMMIT), *([str(limit)] if limit else [])]
    return subprocess.Popen([sys.executable, str(WRITER), *arguments], stdout=subprocess.PIPE, text=True)


def seqs(path: Path, session: str) -> list[int]:
    journal = Journal.open(str(path))
    try:
        return [row.seq for row in journal.rows(session)]
    finally:
        journal.close()


def test_rows_come_back_whole_and_in_order(path: Path) -> None:
    journal = Journal.open(str(path))
    journal.append("b0000000", 1, TS, "init", b"{}")
    journal.append("a0000000", 2, TS, "message", b'{"text":"\xc3\xa9"}')
    journal.append("a0000000", 9, "2026-11-30T12:00:01.000Z", "result", b"")
    journal.commit()
    assert list(journal.rows("a0000000")) == [
        Row(seq=2, ts=TS, type="message", body=b'{"text":"\xc3\xa9"}'),
        Row(seq=9, ts="2026-11-30T12:00:01.000Z", type="result", body=b""),
    ]
    assert journal.sessions() == (
        Written(session="a0000000", rows=2, first_ts=TS, last_ts="2026-11-30T12:00:01.000Z"),
        Written(session="b0000000", rows=1, first_ts=TS, last_ts=TS),
    )
    journal.close()


def test_what_was_not_committed_is_not_there(path: Path) -> None:
    journal = Journal.open(str(path))
    journal.append("a0000000", 1, TS, "init", b"{}")
    assert list(journal.rows("a0000000")) == []
    journal.close()
    assert seqs(path, "a0000000") == [1]


def test_the_folder_and_the_file_are_private(path: Path) -> None:
    journal = Journal.open(str(path))
    journal.append("a0000000", 1, TS, "init", b"{}")
    journal.commit()
    modes = {item.name: stat.S_IMODE(item.stat().st_mode) for item in path.parent.iterdir()}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    journal.close()


def test_a_file_that_others_could_read_is_made_private(path: Path) -> None:
    Journal.open(str(path)).close()
    path.chmod(0o644)
    Journal.open(str(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_writer_killed_at_any_instant_leaves_every_committed_row(path: Path) -> None:
    """K2, K3: opens again; all that was reported is there; each transaction is whole; in order."""
    instants = random.Random(7)
    for round_ in range(8):
        session = f"{round_:08x}"
        process = writer(path, session, commits=100_000)
        assert process.stdout is not None
        reported = 0
        for _ in range(instants.randrange(1, 60)):
            line = process.stdout.readline().strip()
            reported = int(line) if line.isdecimal() else 0
        process.kill()
        process.wait()
        found = seqs(path, session)
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= reported
        assert len(found) % ROWS_A_COMMIT == 0
        process.stdout.close()


def test_several_supervisors_write_to_one_file_at_once(path: Path) -> None:
    """They also make it at once."""
    commits = 150
    sessions = ["aaaaaaaa", "bbbbbbbb", "cccccccc"]
    processes = [writer(path, session, commits) for session in sessions]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    for session in sessions:
        assert seqs(path, session) == list(range(1, commits * ROWS_A_COMMIT + 1))


def test_a_full_disk_is_said_in_one_line_and_keeps_what_was_committed(path: Path) -> None:
    process = writer(path, "aaaaaaaa", commits=100_000, limit=400_000)
    output, _ = process.communicate(timeout=60)
    *reported, words = output.splitlines()
    assert words.startswith(f"the journal {path} cannot be written: ")
    assert words.endswith("or run with --ephemeral")
    assert seqs(path, "aaaaaaaa") == list(range(1, int(reported[-1]) + 1))


def test_after_a_failed_commit_the_rows_are_still_gathered(path: Path) -> None:
    """A commit that waits too long for another writer fails whole, and the next one makes it good."""
    journal = Journal.open(str(path))
    journal._connection.execute("PRAGMA busy_timeout=1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    journal.append("a0000000", 1, TS, "init", b"{}")
    with pytest.raises(JournalFailed, match="locked"):
        journal.commit()
    other.execute("ROLLBACK")
    other.close()
    journal.append("a0000000", 2, TS, "result", b"{}")
    journal.commit()
    assert [row.seq for row in journal.rows("a0000000")] == [1, 2]
    journal.close()


def test_a_session_that_is_continued_twice_at_once_is_refused(path: Path) -> None:
    first, second = Journal.open(str(path)), Journal.open(str(path))
    first.append("a0000000", 1, TS, "init", b"{}")
    first.commit()
    second.append("a0000000", 1, TS, "init", b"{}")
    with pytest.raises(JournalFailed, match="session a0000000: it is being continued elsewhere"):
        second.commit()
    second._gathered.clear()
    second.close()
    first.close()


def foreign(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE things(a)")
    other.close()


def newer(path: Path) -> None:
    Journal.open(str(path)).close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version=99")
    other.close()


def mangled(path: Path) -> None:
    Journal.open(str(path)).close()
    content = bytearray(path.read_bytes())
    content[100:600] = b"\xff" * 500
    path.write_bytes(content)


def text(path: Path) -> None:
    path.write_bytes(b"these are notes of mine\n" * 100)


def folder(path: Path) -> None:
    path.mkdir()


def without_table(path: Path) -> None:
    Journal.open(str(path)).close()
    other = sqlite3.connect(path)
    other.execute("DROP TABLE events")
    other.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (foreign, "belongs to another program"),
        (newer, r"written by a newer haltline \(schema 99, this one knows 1\)"),
        (text, "is no journal"),
        (mangled, "is no journal"),
        (without_table, "no such table: events"),
        (folder, "unable to open"),
    ],
    ids=["foreign", "newer", "text", "mangled", "without table", "folder"],
)
def test_a_file_that_is_not_ours_is_refused_in_one_line_and_left_alone(
    path: Path, make: Callable[[Path], object], why: str
) -> None:
    path.parent.mkdir()
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(ConfigurationProblem, match=why) as refused:
        Journal.open(str(path))
    words = str(refused.value)
    assert words.startswith(f"journal {path}: ")
    assert "HALTLINE_HOME" in words
    assert "\n" not in words
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize("read_only", ["file", "folder"])
def test_a_place_that_cannot_be_written_is_refused(path: Path, read_only: str) -> None:
    """In a child that is nobody, because root may write everywhere."""
    path.parent.mkdir(mode=0o755)
    if read_only == "file":
        Journal.open(str(path)).close()
        path.chmod(0o444)
        path.parent.chmod(0o555)
    else:
        path.parent.chmod(0o555)
    for folder in path.parents:
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid() and folder != path.parent:
            folder.chmod(folder.stat().st_mode | 0o011)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        words = "opened"
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            Journal.open(str(path))
        except ConfigurationProblem as problem:
            words = str(problem)
        finally:
            os.write(writing, words.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    words = os.read(reading, 4_096).decode()
    os.close(reading)
    path.parent.chmod(0o700)
    assert words.startswith(f"journal {path}: ")
    assert "ermi" in words or "readonly" in words


@pytest.mark.parametrize("passes", [3, 1], ids=["with moments of rest", "without"])
def test_the_wal_does_not_grow_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch, passes: int) -> None:
    """One pass can never know that it caught up: the checkpoint that holds the writers has to do it."""
    bound = 1 << 20
    monkeypatch.setattr(journal_module, "CHECKPOINT_BYTES", bound)
    monkeypatch.setattr(journal_module, "WAL_BYTES", bound // 2)
    monkeypatch.setattr(journal_module, "PASSES", passes)
    journal = Journal.open(str(path))
    largest = 0
    for seq in range(1, 1_001):
        journal.append("a0000000", seq, TS, "message", b"x" * 16_384)
        journal.commit()
        if journal._checkpoint is not None:
            journal._checkpoint.join()
        largest = max(largest, path.with_name("journal.db-wal").stat().st_size)
    journal.close()
    assert largest < 3 * bound  # of the 20 MiB that were written
    assert seqs(path, "a0000000") == list(range(1, 1_001))


def test_a_wal_that_was_left_behind_is_taken_up_by_the_next_to_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = writer(path, "aaaaaaaa", commits=100_000)
    assert process.stdout is not None
    for _ in range(40):
        process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    monkeypatch.setattr(journal_module, "CHECKPOINT_BYTES", 1)
    journal = Journal.open(str(path))
    assert journal._checkpoint is not None
    journal._checkpoint.join()
    assert path.stat().st_size > 39 * ROWS_A_COMMIT * 500  # the rows have moved into the file itself
    journal.close()


@pytest.mark.parametrize("closed", [False, True], ids=["while it is written to", "after its last writer"])
def test_sessions_are_found_by_the_beginning_of_their_names_without_holding_up_a_writer(
    path: Path, closed: bool
) -> None:
    journal = Journal.open(str(path))
    for session in ("a0000000", "ab000000", "ab000001", "b0000000"):
        for seq in (1, 2):
            journal.append(session, seq, TS, "init", b"{}")
    journal.commit()
    journal.append("c0000000", 1, TS, "init", b"{}")
    if closed:
        journal.close()
    find = journal_module.named
    assert find(str(path), "a0") == ("a0000000",)
    assert find(str(path), "ab000001") == ("ab000001",)
    assert find(str(path), "ab") == ("ab000000", "ab000001")
    assert find(str(path), "a", most=9) == ("a0000000", "ab000000", "ab000001")
    assert find(str(path), "c") == (("c0000000",) if closed else ())
    assert find(str(path), "b1") == ()
    assert find(str(path), os.fsdecode(b"a\xff")) == ()
    if not closed:
        journal.close()


def test_a_file_that_is_none_of_ours_has_no_session(path: Path) -> None:
    path.parent.mkdir()
    assert journal_module.named(str(path), "a") == ()
    assert not path.exists()
    path.write_bytes(b"something else\n" * 100)
    assert journal_module.named(str(path), "a") == ()


def test_an_ephemeral_session_keeps_nothing() -> None:
    journal = NoJournal()
    journal.append("a0000000", 1, TS, "init", b"{}")
    journal.commit()
    assert (list(journal.rows("a0000000")), journal.sessions()) == ([], ())
    journal.close()
