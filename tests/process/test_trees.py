"""The sweep that guard, zygote, supervisor and tool worker share: it ends what is below a process and nothing else.

Each test runs it in a process of its own, which alone is the subreaper of what it starts; the table of vices against
the tool worker is in test_tools.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
from support import survivors, vices

from haltline.protocol import processes
from haltline.protocol.processes import Identity
from haltline.protocol.trees import Stuck

PROLOGUE = """
import json, os, signal, subprocess, sys, threading, time
from haltline.protocol import linux, processes, procfs, trees
linux.become_subreaper()
told, tell = os.pipe()
os.environ["READY"] = f"/proc/{os.getpid()}/fd/{tell}"

def start(command):
    return subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True, stdout=subprocess.DEVNULL)

def vice(command):
    child = start(command)
    os.read(told, 1)
    return child

"""


class Samples(Protocol):
    """See conftest.py."""

    def __call__(self, quick: int, ci: int, exhaustive: int) -> int: ...


class Swept(msgspec.Struct, frozen=True):
    """What a sweeping process prints."""

    killed: int
    survivors: list[int]
    rung: str
    seconds: float = 0.0
    reaped: list[tuple[int, int]] = []
    alive: list[int] = []


def sweeping(body: str) -> Swept:
    """Run `body` after the prologue; it prints one Swept as JSON. Then nothing of it may be alive."""
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(body)], stdout=subprocess.PIPE, check=True, timeout=50
    )
    return msgspec.json.decode(done.stdout, type=Swept)


REPORT = """
print(json.dumps({"killed": result.killed, "survivors": result.survivors, "rung": result.rung,
                  "seconds": time.monotonic() - before, "reaped": reaped,
                  "alive": [process.pid for process in trees.descendants(os.getpid())]}))
"""


@pytest.mark.parametrize(
    ("vice", "arguments"),
    [
        ("polite_tree", ()),
        ("ignores_term", ()),
        ("own_session", ()),
        ("daemonizes", ()),
        ("fork_storm", ()),
        ("stops_itself", ()),
        ("leaderless", ()),
    ],
)
@pytest.mark.parametrize("grace_s", [0.0, 0.2])
def test_a_sweep_leaves_nothing_of_a_vice_alive(vice: str, arguments: tuple[str, ...], grace_s: float) -> None:
    """G1. The fixture that ends this test looks for survivors by a walk that shares no code with the sweep."""
    swept = sweeping(
        f"""
        vice({vices.command(vice, *arguments)!r})
        reaped, before = [], time.monotonic()
        result = trees.sweep(os.getpid(), grace_s={grace_s})
        """
        + textwrap.indent(REPORT, " " * 8)
    )
    assert (swept.survivors, swept.alive) == ([], [])
    assert swept.killed >= 1
    assert swept.seconds < grace_s + 1.5


def test_three_vices_at_once_lose_every_time(samples: Samples) -> None:
    """R04, R05, G1: a storm, a daemon and one that ignores SIGTERM."""
    for _ in range(samples(2, 20, 200)):
        swept = sweeping(
            f"""
            for command in ({vices.command("fork_storm")!r}, {vices.command("daemonizes")!r},
                            {vices.command("ignores_term")!r}):
                vice(command)
            reaped, before = [], time.monotonic()
            result = trees.sweep(os.getpid(), grace_s=0.1)
            """
            + textwrap.indent(REPORT, " " * 12)
        )
        assert (swept.survivors, swept.alive, swept.rung) == ([], [], "sweep")


@pytest.mark.parametrize("most", [300, pytest.param(1_500, marks=pytest.mark.ci)])
def test_a_fork_bomb_loses(most: int) -> None:
    """G1, F5: it was full when the sweep began, and each process that dies is replaced at once. Killed one by one it
    won every time: nobody gets a share of the processor beside it."""
    swept = sweeping(
        f"""
        vice({vices.command("fork_bomb", str(most))!r})
        reaped, before = [], time.monotonic()
        result = trees.sweep(os.getpid(), grace_s=0.0)
        """
        + textwrap.indent(REPORT, " " * 8)
    )
    assert (swept.survivors, swept.alive) == ([], [])


def test_the_group_of_one_that_was_not_held_is_not_signalled() -> None:
    """G3: the number of a group means that group only as long as somebody is known to stay in it."""
    own = processes.read_process(os.getpid())
    assert own is not None
    with pytest.raises(ValueError, match="refusing to signal group"):
        processes.signal_group(own, signal.SIGKILL)
    with subprocess.Popen(["sleep", "25"], start_new_session=True) as child:
        process = processes.read_process(child.pid)
        assert process is not None
        child.kill()
        child.wait()
        assert processes.signal_group(process, signal.SIGKILL) is False


def test_killing_goes_on_as_long_as_somebody_is_found_or_goes() -> None:
    """Rule 7: only time without progress counts."""
    stuck = Stuck()
    assert [stuck.since(at, found=5, left=5) for at in (10.0, 10.4, 10.8)] == [
        0.0,
        pytest.approx(0.4),
        pytest.approx(0.8),
    ]
    assert stuck.since(10.9, found=6, left=6) == 0.0  # one more was found
    assert stuck.since(11.5, found=6, left=6) == pytest.approx(0.6)
    assert stuck.since(11.6, found=6, left=5) == 0.0  # one has gone
    assert stuck.since(12.2, found=6, left=5) == pytest.approx(0.6)
    assert stuck.lasted(12.2) == pytest.approx(2.2)


def test_who_obeys_within_the_grace_is_not_killed_and_not_waited_for() -> None:
    """F5: decided by seeing them gone."""
    swept = sweeping(
        f"""
        child = vice({vices.command("polite_tree")!r})
        reaped, before = [], time.monotonic()
        result = trees.sweep(os.getpid(), grace_s=10.0, groups=[child.pid], reaped=lambda *one: reaped.append(one))
        """
        + textwrap.indent(REPORT, " " * 8)
    )
    assert (swept.survivors, swept.rung) == ([], "term")
    assert swept.seconds < 3
    assert {status for _, status in swept.reaped} == {-signal.SIGTERM}


def test_the_spared_live_on_with_all_that_is_below_them() -> None:
    """Rule 1: a worker that lives keeps its tools, while orphans of a dead one beside it go."""
    swept = sweeping(
        f"""
        spared = vice({vices.command("polite_tree")!r})
        below = len(trees.descendants(spared.pid))
        vice({vices.command("daemonizes")!r})
        reaped, before = [], time.monotonic()
        result = trees.sweep(os.getpid(), spare=lambda: (spared.pid,), grace_s=0.1)
        assert len(trees.descendants(spared.pid)) == below >= 9, below
        assert spared.poll() is None
        alive = trees.descendants(os.getpid(), spare=[spared.pid])
        assert alive == [], alive
        again = trees.sweep(os.getpid(), grace_s=0.1)
        assert again.killed == below + 1, again
        """
        + textwrap.indent(REPORT, " " * 8)
    )
    assert (swept.survivors, swept.alive) == ([], [])


def test_the_status_of_a_tracked_child_is_left_to_its_owner() -> None:
    """Rule 6."""
    swept = sweeping(
        """
        mine = start("exit 7")
        other = start("exit 8")
        for child in (mine, other):
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        reaped, before = [], time.monotonic()
        result = trees.sweep(os.getpid(), tracked=lambda: (mine.pid,), grace_s=0.1,
                             reaped=lambda pid, status: reaped.append((0, status)))
        assert mine.wait() == 7
        """
        + textwrap.indent(REPORT, " " * 8)
    )
    assert (swept.reaped, swept.rung, swept.killed) == ([(0, 8)], "ack", 0)


def test_who_cannot_be_ended_is_reported_when_the_time_is_up() -> None:
    """Rule 7. Signals are kept from a process; one that does not die of SIGKILL no test can make."""
    swept = sweeping(
        """
        child = start("exec sleep 25")
        reaped, before = [], time.monotonic()
        signal_identity, processes.signal_identity = processes.signal_identity, lambda *_, **__: False
        result = trees.sweep(os.getpid(), grace_s=0.1, kill_wait_s=0.2)
        processes.signal_identity = signal_identity
        assert result.survivors == (child.pid,), result
        trees.sweep(os.getpid(), grace_s=0.0)
        """
        + textwrap.indent(REPORT, " " * 8)
    )
    assert (len(swept.survivors), swept.killed, swept.alive) == (1, 0, [])
    assert swept.seconds < 3 * 0.3 + 1


def test_the_kernel_without_lists_of_children_is_served_by_one_walk() -> None:
    """Design 7: CONFIG_PROC_CHILDREN is optional."""
    swept = sweeping(
        f"""
        procfs._lists_children = False
        vice({vices.command("daemonizes")!r})
        vice({vices.command("own_session")!r})
        reaped, before = [], time.monotonic()
        result = trees.sweep(os.getpid(), grace_s=0.1)
        """
        + textwrap.indent(REPORT, " " * 8)
    )
    assert (swept.survivors, swept.alive) == ([], [])
    assert swept.killed >= 3


def test_a_kernel_without_pidfds_is_served_by_number_and_start_time() -> None:
    """Design 3: the fallback, forced."""
    swept = sweeping(
        f"""
        del os.pidfd_open
        vice({vices.command("fork_storm")!r})
        vice({vices.command("ignores_term")!r})
        reaped, before = [], time.monotonic()
        result = trees.sweep(os.getpid(), grace_s=0.1)
        """
        + textwrap.indent(REPORT, " " * 8)
    )
    assert (swept.survivors, swept.alive) == ([], [])


# Identity (G3)


def test_a_number_with_another_start_time_is_not_signalled() -> None:
    """G3: the number was given to another process."""
    with subprocess.Popen(["sleep", "25"]) as child:
        identity = processes.identify(child.pid)
        assert identity is not None
        stranger = Identity(child.pid, identity.start_ticks - 1)
        assert processes.signal_identity(stranger, signal.SIGKILL) is False
        assert processes.open_pidfd(stranger) is None
        assert processes.is_alive(identity)
        assert processes.signal_identity(identity, signal.SIGKILL) is True
        assert child.wait() == -signal.SIGKILL
        assert processes.signal_identity(identity, signal.SIGKILL) is False
        assert not processes.is_alive(identity)


def test_init_ourselves_and_our_group_are_refused() -> None:
    """G3: to aim there is a bug, so it raises."""
    for pid in (-1, 0, 1, os.getpid(), os.getpgrp()):
        with pytest.raises(ValueError, match="refusing to signal"):
            processes.signal_identity(Identity(pid, 0), signal.SIGTERM)


def test_a_name_with_parentheses_and_spaces_does_not_confuse(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "25"], start_new_session=True) as child:
        process = processes.read_process(child.pid)
        child.kill()
    assert process is not None
    assert (process.parent, process.group, process.session, process.threads) == (os.getpid(), child.pid, child.pid, 1)


def test_a_leader_that_ended_before_its_threads_is_alive() -> None:
    """Rule 4 of processes.py: state Z, and yet it runs."""
    with subprocess.Popen(vices.command("leaderless"), shell=True, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 10
        states: set[str] = set()
        while "Z" not in states and time.monotonic() < deadline:
            found = [processes.read_process(one.pid) for one in survivors_and_zombies(shell.pid)]
            states = {process.state for process in found if process is not None and process.alive}
        for one in survivors_and_zombies(shell.pid):
            os.kill(one.pid, signal.SIGKILL)
        shell.kill()
    assert "Z" in states


def survivors_and_zombies(pid: int) -> list[processes.Process]:
    found = [processes.read_process(child) for child in [pid, *processes.children(pid)]]
    return [process for process in found if process is not None]


def test_children_of_every_thread_are_seen() -> None:
    started: list[subprocess.Popen[bytes]] = []
    go_on = threading.Event()

    def work() -> None:
        started.append(subprocess.Popen(["sleep", "25"]))
        go_on.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    while not started:
        pass
    seen = started[0].pid in processes.children(os.getpid())
    go_on.set()
    thread.join()
    with started[0] as child:
        child.kill()
    assert seen


def test_a_list_of_children_longer_than_a_page_is_read_whole() -> None:
    """The kernel hands out such lists in pages of 4,096 bytes, none of them quite full."""
    swept = sweeping(
        """
        start("i=0; while [ $i -lt 1200 ]; do sleep 25 & i=$((i+1)); done; echo >$READY; wait")
        os.read(told, 1)
        seen = len(trees.descendants(os.getpid()))
        assert seen == 1201, seen
        reaped, before = [], time.monotonic()
        result = trees.sweep(os.getpid(), grace_s=2.0)
        """
        + textwrap.indent(REPORT, " " * 8)
    )
    assert (swept.survivors, swept.killed) == ([], 1201)


def test_nothing_is_alive_below_a_process_without_children() -> None:
    with subprocess.Popen(["sleep", "25"]) as child:
        below = processes.children(child.pid)
        child.kill()
    assert below == []
    assert [one.pid for one in survivors.descendants(os.getpid()) if one.pid == child.pid] == []


# A process's own state


def test_inherited_dispositions_and_masks_are_undone() -> None:
    """F2: an ignored SIGCHLD passes through exec and takes exit statuses away."""
    body = """
import os, signal, subprocess, sys
from haltline.protocol import linux
linux.reset_signals()
assert subprocess.run(["false"]).returncode == 1
shown = open("/proc/self/status").read().split()
print(shown[shown.index("SigIgn:") + 1], shown[shown.index("SigBlk:") + 1])
"""

    def spoil() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))

    done = subprocess.run([sys.executable, "-c", body], preexec_fn=spoil, stdout=subprocess.PIPE, check=True)
    ignored, blocked = done.stdout.split()
    kept = sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ))
    assert (int(ignored, 16), int(blocked, 16)) == (kept, 0)
