"""The check behind every test finds what a test leaves behind, however it was detached, and ends it (G1)."""

from __future__ import annotations

import os
import subprocess

import pytest
from support import survivors

LEFT_BEHIND = {
    "a plain child of a dead parent": "sleep 600 &",
    "one in a session of its own": "setsid sleep 600 &",
    "a daemon forked twice": "(setsid sh -c 'sleep 600 & wait' &)",
    "one that ignores the signals one may ignore": "(trap '' TERM INT HUP; sleep 600 &)",
    "one that is stopped": "sleep 600 & kill -STOP $!",
    "one without its environment": "env -i /bin/sleep 600 &",
}


def left() -> list[survivors.Survivor]:
    return survivors.descendants(os.getpid())


@pytest.mark.parametrize("script", LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
def test_what_a_shell_leaves_behind_is_found_and_ended(script: str) -> None:
    # Its output goes nowhere, so that the shell's end does not wait for it.
    subprocess.run(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    assert len(survivors.settle(left())) >= 1
    survivors.end(left)
    assert left() == []


def test_a_process_that_is_on_its_way_out_is_no_survivor() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        found = left()
        assert [one.pid for one in found] == [process.pid]
        assert process.stdin is not None
        process.stdin.close()
        assert survivors.settle(found) == []


def test_the_cookie_finds_a_process_wherever_it_hangs() -> None:
    cookie = os.environ[survivors.COOKIE]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # Its echo says that cat is there: amid exec a process shows no environment at all.
        process.stdin.write(b"x")
        assert process.stdout.read(1) == b"x"
        assert process.pid in [one.pid for one in survivors.carrying(cookie)]
        assert survivors.carrying("another") == []
