"""File tools: what the model reads of them, and that a file is either as it was or as it should be."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.tool_worker import ToolWorker

from haltline.protocol.kinds import CallStatus, Changed
from haltline.protocol.messages import CancelAcknowledged, CancelDone, Outcome, ToolEnded, ToolStarted
from haltline.protocol.settings import ToolLimits

NEVER_ENDS = "(a+)+$"
"""A regular expression that needs 2^n steps on n letters a and a b."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolWorker]:
    with ToolWorker(tmp_path_factory.mktemp("room")) as made:
        yield made
    assert made.errors == ""


@pytest.fixture
def worker(shared: ToolWorker) -> Iterator[ToolWorker]:
    """The worker of all tests here, in an empty workspace."""
    yield shared
    assert shared.alive() == []
    for entry in shared.workspace.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@pytest.fixture
def room(worker: ToolWorker) -> Path:
    """The worker's workspace."""
    return worker.workspace


def said(outcome: Outcome) -> tuple[CallStatus, Changed, str]:
    return (outcome.status, outcome.changed, outcome.text)


# read_file


def test_lines_are_numbered(worker: ToolWorker, room: Path) -> None:
    (room / "f").write_bytes(b"one\r\ntwo\n\nfour")
    outcome = worker.run("read_file", path="f")
    assert said(outcome) == ("done", "nothing", "     1\tone\n     2\ttwo\n     3\t\n     4\tfour")


def test_the_rest_of_a_long_file_is_named(worker: ToolWorker, room: Path) -> None:
    (room / "f").write_text("".join(f"{n}\n" for n in range(1, 101)))
    outcome = worker.run("read_file", path="f", offset=10, limit=2)
    assert outcome.text == "    10\t10\n    11\t11\n[lines 10 to 11; more follow, go on with offset 12]"
    assert worker.run("read_file", path="f", offset=99, limit=2).text == "    99\t99\n   100\t100"


def test_what_is_read_is_bounded_in_bytes_and_in_the_length_of_a_line(tmp_path: Path) -> None:
    """G6."""
    (tmp_path / "wide").write_text("x" * 3_000_000 + "\nlast\n")
    (tmp_path / "long").write_text("y" * 99 + "\n" + ("y" * 99 + "\n") * 10_000)
    with ToolWorker(tmp_path, limits=ToolLimits(output_bytes=4_096)) as worker:
        wide = worker.run("read_file", path="wide")
        long = worker.run("read_file", path="long")
    assert wide.text.startswith("     1\t" + "x" * 2_000 + " [... ")
    assert wide.text.endswith("     2\tlast")
    assert len(long.text) < 4_200
    assert long.text.endswith("[lines 1 to 38; more follow, go on with offset 39]")


def test_a_file_that_cannot_be_read_says_why(worker: ToolWorker, room: Path) -> None:
    """B1."""
    (room / "binary").write_bytes(b"\x7fELF\0\0")
    (room / "empty").touch()
    (room / "short").write_text("x\n")
    os.mkfifo(room / "fifo")
    texts = {path: worker.run("read_file", path=path).text for path in ("none", ".", "binary", "empty", "fifo")}
    assert texts == {
        "none": "error: none could not be read: no such file or directory; nothing was changed. "
        "Look for the right path with glob.",
        ".": "error: . could not be read: it is a folder; nothing was changed. Look for the right path with glob.",
        "binary": "error: binary is a binary file of 6 bytes; nothing was changed. "
        "Look at it with a shell command if you must.",
        "empty": "[the file is empty]",
        "fifo": "error: fifo could not be read: it is no regular file; nothing was changed. "
        "Look for the right path with glob.",
    }
    assert worker.run("read_file", path="short", offset=5).text == (
        "error: short has 1 lines, so none from 5 on; nothing was changed. Use a smaller offset."
    )


# write_file


def test_a_file_is_written_with_its_folders(worker: ToolWorker, room: Path) -> None:
    outcome = worker.run("write_file", path="a/b/f.txt", content="grüße\n")
    assert said(outcome) == ("done", "yes", "wrote a/b/f.txt (8 bytes)")
    assert (room / "a/b/f.txt").read_text() == "grüße\n"
    assert os.listdir(room / "a/b") == ["f.txt"]


def test_a_file_keeps_its_mode_and_a_link_stays_a_link(worker: ToolWorker, room: Path) -> None:
    (room / "script").write_text("old")
    (room / "script").chmod(0o751)
    (room / "link").symlink_to("script")
    assert worker.run("write_file", path="link", content="new").text == "wrote script (3 bytes)"
    assert (room / "link").is_symlink()
    assert (room / "script").read_text() == "new"
    assert stat.S_IMODE((room / "script").stat().st_mode) == 0o751


def test_the_same_content_again_changes_nothing(worker: ToolWorker) -> None:
    """H6: what did not change is no progress."""
    worker.run("write_file", path="f", content="same")
    assert said(worker.run("write_file", path="f", content="same")) == (
        "done",
        "nothing",
        "f already had exactly this content (4 bytes); nothing was changed",
    )


def test_a_write_that_fails_leaves_everything_as_it_was(worker: ToolWorker, room: Path) -> None:
    """B1, J1."""
    (room / "file").write_text("x")
    outcome = worker.run("write_file", path="file/sub/f", content="y")
    assert said(outcome) == (
        "failed",
        "nothing",
        (
            "error: file/sub/f could not be written: not a directory; nothing was changed. "
            "Correct the path or make room, then call again."
        ),
    )
    name = "n" * 300
    outcome = worker.run("write_file", path=f"made/{name}", content="y")
    assert (outcome.status, outcome.changed) == ("failed", "nothing")
    assert os.listdir(room) == ["file"]


def test_an_injected_fault_fails_the_first_write_and_no_other(tmp_path: Path) -> None:
    """The scenario tool_error: the same call, sent again as it was, succeeds."""
    with ToolWorker(tmp_path, inject="tool_error") as worker:
        outcomes = [worker.run("write_file", path="f", content="x") for _ in range(2)]
    assert [said(outcome) for outcome in outcomes] == [
        (
            "failed",
            "nothing",
            "error: f could not be written, the disk did not answer; nothing was changed. Try the same call again.",
        ),
        ("done", "yes", "wrote f (1 bytes)"),
    ]


# edit_file


def test_the_one_place_is_replaced_and_all_other_bytes_stay(worker: ToolWorker, room: Path) -> None:
    (room / "f").write_bytes(b"\xff\xfe raw\nx = 1\n\xe9\n")
    outcome = worker.run("edit_file", path="f", old="x = 1", new="x = 2")
    assert said(outcome) == ("done", "yes", "edited f (1 place)")
    assert (room / "f").read_bytes() == b"\xff\xfe raw\nx = 2\n\xe9\n"


def test_an_edit_over_lines_of_a_crlf_file_keeps_its_line_ends(worker: ToolWorker, room: Path) -> None:
    (room / "f").write_bytes(b"a\r\nb\r\nc\r\n")
    assert worker.run("edit_file", path="f", old="a\nb", new="a\nB").status == "done"
    assert (room / "f").read_bytes() == b"a\r\nB\r\nc\r\n"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            "aa",
            "b",
            (
                "error: old occurs 2 times in f (lines 1, 1); nothing was changed. "
                "Add lines before or after it until it occurs once."
            ),
        ),
        (
            "def f():\n  return 1",
            "x",
            (
                "error: old does not occur in f; nothing was changed. Lines 2 to 3 differ from it only in white space. "
                "Read the file and copy the text exactly."
            ),
        ),
        (
            "def f():\n    return 2",
            "x",
            (
                "error: old does not occur in f; nothing was changed. Its first line occurs at line 2; what follows "
                "there differs. Read the file and copy the text exactly."
            ),
        ),
        (
            "nowhere",
            "x",
            (
                "error: old does not occur in f; nothing was changed. Not even its first line occurs. "
                "Read the file and copy the text exactly."
            ),
        ),
        (
            "return 1",
            "return 1",
            (
                "error: old and new are the same text, so f would stay as it is; nothing was changed. "
                "Say what should differ."
            ),
        ),
    ],
)
def test_an_edit_that_cannot_be_made_says_what_is_near(
    worker: ToolWorker, room: Path, old: str, new: str, text: str
) -> None:
    before = b"aaa\ndef f():\n    return 1\n"
    (room / "f").write_bytes(before)
    assert said(worker.run("edit_file", path="f", old=old, new=new)) == ("failed", "nothing", text)
    assert (room / "f").read_bytes() == before


# The workspace


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old": "secret", "new": "x"}),
        ("glob", {"pattern": "*"}),
        ("search", {"pattern": "secret"}),
    ],
)
def test_a_path_out_of_the_workspace_needs_approval(tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
    """J1: symbolic links resolved."""
    (tmp_path / "outside").write_text("secret\n")
    (tmp_path / "room/inside").mkdir(parents=True)
    (tmp_path / "room/link").symlink_to("..")
    ways = ["../outside", "link/outside", f"{tmp_path}/outside", "inside/../../outside"]
    with ToolWorker(tmp_path / "room") as worker:
        handed_back = [worker.start(name, path=way, **arguments) for way in ways]
        assert [worker.led_outside(call) for call in handed_back] == [f"{tmp_path}/outside"] * len(ways)
        assert (tmp_path / "outside").read_text() == "secret\n"
        allowed = worker.run(name, path="link/outside", outside_allowed=True, **arguments)
        ran = [message.call_id for message in worker.came if isinstance(message, ToolStarted | ToolEnded)]
    assert allowed.status == "done"
    assert not set(ran) & set(handed_back)


def test_a_call_that_led_outside_may_come_again_and_is_reported_once(tmp_path: Path) -> None:
    """F8: what a stop reports of the turn is the run that was allowed."""
    (tmp_path / "outside").write_text("secret\n")
    (tmp_path / "room").mkdir()
    (tmp_path / "room/link").symlink_to("../outside")
    with ToolWorker(tmp_path / "room") as worker:
        call = worker.start("read_file", path="link")
        worker.led_outside(call)
        worker.allow_outside(call, "read_file", path="link")
        outcome = worker.ended(call)
        done = worker.stopped()
    assert [(entry.call_id, entry.outcome) for entry in done.calls] == [(call, outcome)]


def test_a_path_with_a_nul_names_no_file(worker: ToolWorker) -> None:
    assert said(worker.run("read_file", path="a\0b", outside_allowed=True)) == (
        "failed",
        "nothing",
        "error: a\\0b names no file, it holds a NUL character; nothing was changed. Correct the path and call again.",
    )


# glob and search


@pytest.fixture
def project(room: Path) -> Path:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/d.txt", "src/.hidden.py", ".git/e.py"):
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        (room / name).write_text(f"name = {name!r}\nneedle = 1\n")
    (room / "src/loop").symlink_to("..")
    (room / "binary").write_bytes(b"needle\0")
    return room


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("**/*.py", ".", ["a.py", "src/.hidden.py", "src/b.py", "src/deep/c.py"]),
        ("*.py", ".", ["a.py"]),
        ("src/**", ".", ["src/.hidden.py", "src/b.py", "src/loop", "src/deep/c.py", "src/deep/d.txt"]),
        ("**/deep/*.{txt,md}", ".", ["src/deep/d.txt"]),
        ("*.py", "src/deep", ["src/deep/c.py"]),
        ("*.rs", "src", ["[no file below src matches *.rs]"]),
    ],
)
def test_glob_lists_paths(worker: ToolWorker, project: Path, pattern: str, path: str, found: list[str]) -> None:
    assert project.exists()
    assert said(worker.run("glob", pattern=pattern, path=path)) == ("done", "nothing", "\n".join(found))


def test_search_names_file_and_line(worker: ToolWorker, project: Path) -> None:
    assert project.exists()
    outcome = worker.run("search", pattern=r"needle\s*=", glob="**/*.py", path="src")
    assert said(outcome) == (
        "done",
        "nothing",
        "src/.hidden.py:2: needle = 1\nsrc/b.py:2: needle = 1\nsrc/deep/c.py:2: needle = 1",
    )
    assert worker.run("search", pattern="needle", path="a.py").text == "a.py:2: needle = 1"
    assert worker.run("search", pattern="nowhere").text == "[no match for nowhere in 5 files]"


def test_a_pattern_that_is_none_is_a_failed_result(worker: ToolWorker) -> None:
    outcome = worker.run("search", pattern="(")
    assert said(outcome) == (
        "failed",
        "nothing",
        (
            "error: ( is no regular expression (missing ), unterminated subpattern at position 0); nothing was "
            "changed. Correct it and call again."
        ),
    )


def test_findings_are_bounded(tmp_path: Path) -> None:
    """G6."""
    (tmp_path / "f").write_text("match\n" * 10_000)
    with ToolWorker(tmp_path, limits=ToolLimits(output_bytes=1_024)) as worker:
        outcome = worker.run("search", pattern="match")
    lines = outcome.text.splitlines()
    assert len(outcome.text) < 1_200
    assert lines[-1] == f"[{len(lines) - 1} matches shown, there are more; use a narrower pattern, glob or path]"


def test_a_search_over_many_files_holds_nobody_up(worker: ToolWorker, room: Path) -> None:
    """L5: 5,000 files; the worker answers a cancel of nothing at once meanwhile."""
    for folder in range(50):
        (room / f"d{folder}").mkdir()
        for file in range(100):
            (room / f"d{folder}/f{file}").write_text("nothing\n" * 50)
    worker.turn += 1
    worker.started(worker.start("search", pattern="nothing here"))
    before = time.monotonic()
    cancel = worker.cancel()
    worker.wait_for(CancelAcknowledged, lambda message: message.generation == cancel.generation)
    assert time.monotonic() - before < 3 * 0.1
    worker.wait_for(CancelDone, lambda message: message.generation == cancel.generation)


def test_a_pattern_that_never_ends_is_ended_at_its_limit(worker: ToolWorker, room: Path) -> None:
    """G5, L5: the expression holds its process, not the worker."""
    (room / "f").write_text("found first\n" + "a" * 60 + "b\n")
    outcome = worker.run("search", pattern=f"found|{NEVER_ENDS}", timeout_s=0.5)
    assert said(outcome) == (
        "timed_out",
        "nothing",
        (
            "error: stopped after 0.5 s, its limit; nothing was changed. Use a narrower pattern or path. "
            "Found so far:\nf:1: found first"
        ),
    )
    assert worker.alive() == []


def test_a_cancel_ends_a_search_and_calls_beside_it(worker: ToolWorker, room: Path) -> None:
    """F8, J2."""
    (room / "f").write_text("a" * 60 + "b\n")
    worker.turn += 1
    finished = worker.start("read_file", path="f")
    worker.ended(finished)
    calls = [worker.start("search", pattern=NEVER_ENDS) for _ in range(2)]
    for call in calls:
        worker.started(call)
    done = worker.stopped()
    assert worker.alive() == []
    assert (done.survivors, done.killed) == (0, 2)
    assert [(one.call_id, one.outcome.status, one.outcome.changed) for one in done.calls] == [
        (finished, "done", "nothing"),
        *((call, "cancelled_killed", "nothing") for call in calls),
    ]
