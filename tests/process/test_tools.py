"""Tools: what a call returns, when it returns, and that its process tree is gone by then."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import survivors, vices
from support.tool_worker import PATIENCE_S, ToolWorker

from haltline.protocol.messages import CancelAcknowledged, CancelDone, ToolEnded
from haltline.protocol.settings import ToolLimits
from haltline.worker.actor import EXIT_BUG

PYTHON = f"{sys.executable} -S"
KEPT = 32_768


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[ToolWorker]:
    with ToolWorker(tmp_path) as made:
        yield made
    assert made.errors == ""


# What a call returns


def test_output_comes_in_order_and_ends_with_the_exit_code(worker: ToolWorker) -> None:
    outcome = worker.run("shell", command="echo one; echo two >&2; echo three")
    assert (outcome.status, outcome.changed, outcome.exit_code) == ("done", "maybe", 0)
    assert outcome.text == "one\ntwo\nthree\n[exit code 0]"


def test_a_failing_command_says_so_and_keeps_its_output(worker: ToolWorker) -> None:
    """B1."""
    outcome = worker.run("shell", command="echo 2 tests failed; exit 3")
    assert (outcome.status, outcome.changed, outcome.exit_code) == ("failed", "maybe", 3)
    assert outcome.text == (
        "error: the command ended with exit code 3 and may have changed something. "
        "Read its output before you try again:\n2 tests failed\n[exit code 3]"
    )


def test_a_command_that_died_of_a_signal_names_it(worker: ToolWorker) -> None:
    outcome = worker.run("shell", command="kill -SEGV $$")
    assert (outcome.status, outcome.exit_code) == ("failed", 139)
    assert outcome.text.endswith("[killed by SIGSEGV]")


def test_a_call_that_does_not_start_changed_nothing(worker: ToolWorker, tmp_path: Path) -> None:
    """B6, B1: no number of the system and no trace."""
    (tmp_path / "gone").mkdir()
    with ToolWorker(tmp_path / "gone") as other:
        (tmp_path / "gone").rmdir()
        outcome = other.run("shell", command="true")
    assert (outcome.status, outcome.changed) == ("failed", "nothing")
    assert outcome.text == (
        "error: the command could not be started: the workspace folder is not there any more; nothing was changed. "
        "Try a shorter or simpler command."
    )
    assert "NUL" in worker.run("shell", command="echo \0").text


def test_arguments_that_are_no_struct_of_the_tool_become_a_failed_result(worker: ToolWorker) -> None:
    """R52: the schema was checked before, and a fault there must not end the worker."""
    outcome = worker.run("shell", kommand="true")
    assert (outcome.status, outcome.changed) == ("failed", "nothing")
    assert outcome.text.startswith("error: the arguments of shell could not be read")
    assert worker.run("shell", command="echo on").text == "on\n[exit code 0]"


def test_an_exception_in_a_tool_becomes_a_result_and_its_trace_goes_to_the_log(tmp_path: Path) -> None:
    """B6, R52."""
    raises = "from haltline.worker.tool import files; files.read_file = lambda *_: 1 / 0"
    with ToolWorker(tmp_path, prelude=raises) as worker:
        outcome = worker.run("read_file", path="f")
        assert worker.run("shell", command="echo on").text == "on\n[exit code 0]"
    assert (outcome.status, outcome.changed) == ("failed", "maybe")
    assert outcome.text.startswith("error: read_file failed because of a fault in the harness")
    assert "Traceback" not in outcome.text
    assert "ZeroDivisionError" in worker.errors


@pytest.mark.parametrize(
    "callback", ["child.Child._readable", "child.Child._check", "tree.Tree._reap"], ids=["reader", "pidfd", "timer"]
)
def test_a_bug_in_a_callback_of_the_loop_ends_the_worker_with_its_trace(tmp_path: Path, callback: str) -> None:
    """L2: it would hang until its deadline otherwise; its death is seen at once and it is replaced."""
    raises = f"from haltline.worker.tool import child, tree; {callback} = lambda *_: 1 / 0"
    with ToolWorker(tmp_path, prelude=raises) as worker:
        worker.start("shell", command="echo out")
        assert worker.process.wait(PATIENCE_S) == EXIT_BUG
    assert "ZeroDivisionError" in worker.errors


def test_bytes_that_are_no_utf_8_are_replaced(worker: ToolWorker) -> None:
    """R87, G7: no lone surrogate, no NUL."""
    outcome = worker.run("shell", command=r"printf '\377\376\355\240\200\000z'")
    assert outcome.text == "\ufffd" * 6 + "z\n[exit code 0]"
    outcome.text.encode()


def test_a_command_longer_than_an_argument_may_be_runs_from_a_file(worker: ToolWorker) -> None:
    """R91."""
    long = "x" * 140_000
    outcome = worker.run("shell", command=f"printf %s {long} | wc -c")
    assert outcome.text.split() == ["140000", "[exit", "code", "0]"]


# Standard input and terminal


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("cat", ""),
        ("read x; echo got=$x", "got=\n"),
        (f"{PYTHON} -c 'import sys; print(len(sys.stdin.read()))'", "0\n"),
    ],
)
def test_a_command_that_reads_its_input_ends_at_once(worker: ToolWorker, command: str, printed: str) -> None:
    """R07, G7."""
    before = time.monotonic()
    outcome = worker.run("shell", command=command)
    assert time.monotonic() - before < 5
    assert (outcome.status, outcome.text) == ("done", f"{printed}[exit code 0]")


def test_a_tool_has_no_terminal(worker: ToolWorker) -> None:
    """G7."""
    outcome = worker.run("shell", command="(: < /dev/tty) 2>/dev/null || echo none")
    assert outcome.text == "none\n[exit code 0]"


def test_a_tool_starts_with_default_signals_and_nothing_blocked(tmp_path: Path) -> None:
    """F2, R07: SIGINT ignored by a background shell, or by us, must not reach a tool."""
    with ToolWorker(tmp_path) as worker:
        outcome = worker.run("shell", command="grep -E '^Sig(Blk|Ign)' /proc/self/status")
    assert outcome.text.split()[:4] == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


# Keys


def test_no_tool_and_not_even_the_worker_has_a_key(tmp_path: Path) -> None:
    """J4: also not in what the kernel shows of the worker's own environment."""
    keys = {"OPENAI_API_KEY": "key-1-secret", "ANTHROPIC_API_KEY": "key-2-secret", "MINE": "key-3-secret"}
    with ToolWorker(tmp_path, environment=keys, key_variable="MINE") as worker:
        outcome = worker.run("shell", command=f"env; cat /proc/{worker.pid}/environ")
        memory = Path(f"/proc/{worker.pid}/environ").read_bytes() if os.geteuid() == 0 else b""
    assert "PATH=" in outcome.text
    assert "secret" not in outcome.text
    assert b"secret" not in memory


# Completion


@pytest.mark.parametrize("command", ["sleep 25 & echo done", "sleep 25 >/dev/null & echo done"])
def test_a_background_child_that_holds_the_pipe_does_not_hold_the_call(worker: ToolWorker, command: str) -> None:
    """R02, G4, G1: 0.5 s, asserted three times over; and the background process ended with the call."""
    before = time.monotonic()
    outcome = worker.run("shell", command=command)
    assert time.monotonic() - before < 1.5
    assert worker.alive() == []
    assert outcome.text == "done\n[exit code 0]"


def test_the_last_bytes_of_a_command_arrive(tmp_path: Path) -> None:
    """R15."""
    with ToolWorker(tmp_path, limits=ToolLimits(output_bytes=4_194_304)) as worker:
        outcome = worker.run("shell", command=vices.command("last_words", "2097152"))
    assert outcome.text == "x" * 2_097_152 + "\n[exit code 0]"


def test_what_is_still_on_its_way_through_a_helper_arrives(worker: ToolWorker) -> None:
    """R15: the filter outlives the foreground process by a moment."""
    slow = f"{PYTHON} -c 'import sys; print(len(sys.stdin.read()))'"
    outcome = worker.run("shell", command=f"mkfifo p; {slow} <p & printf abc >p")
    assert outcome.text == "3\n[exit code 0]"


def test_no_zombies_pile_up(worker: ToolWorker) -> None:
    """R85."""
    worker.run("shell", command=vices.command("orphans", "50"))
    assert Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text() == ""


# Limits


def test_a_silent_command_ends_at_its_limit(worker: ToolWorker) -> None:
    """R66, G5, B5."""
    before = time.monotonic()
    outcome = worker.run("shell", command="echo begun; sleep 25; echo x", timeout_s=0.5)
    assert time.monotonic() - before < 3 * 0.5 + 1
    assert worker.alive() == []
    assert (outcome.status, outcome.changed, outcome.exit_code) == ("timed_out", "maybe", None)
    assert outcome.text == (
        "error: the command was stopped after 0.5 s, its limit; it may have partly run, and all that it had started "
        "was ended. Split it into smaller commands, or raise timeout_s (at most 600). Output so far:\n"
        "begun\n[stopped after 0.5 s]"
    )


def test_output_does_not_extend_the_limit(worker: ToolWorker) -> None:
    """R66: the limit is absolute."""
    outcome = worker.run("shell", command="while :; do echo x; sleep 0.05; done", timeout_s=0.5)
    assert outcome.status == "timed_out"
    assert worker.alive() == []


def test_a_wrapper_does_not_shield_its_child_from_the_limit(worker: ToolWorker) -> None:
    """R03."""
    outcome = worker.run("shell", command='sh -c "sleep 25"; echo x', timeout_s=0.3)
    assert outcome.status == "timed_out"
    assert worker.alive() == []


def test_cleanup_runs_at_the_limit(worker: ToolWorker, tmp_path: Path) -> None:
    """R06: SIGTERM comes first, and to all."""
    call = worker.vice("cleans_up", str(tmp_path / "marker"), timeout_s=1.0)
    assert worker.ended(call).status == "timed_out"
    assert (tmp_path / "marker").read_text() == "cleaned"


# Output


@pytest.mark.parametrize("arguments", [(), ("one-line",)])
def test_a_flood_is_bounded_where_it_is_read(worker: ToolWorker, arguments: tuple[str, ...]) -> None:
    """R86, G6."""
    call = worker.vice("floods_output", *arguments, timeout_s=1.5)
    outcome = worker.ended(call)
    peak_kib = next(
        int(line.split()[1])
        for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert outcome.status == "timed_out"
    assert "bytes not kept ...]" in outcome.text
    assert KEPT / 2 < len(outcome.text) < KEPT + 1_000
    assert peak_kib < 200 * 1024


def test_a_flood_does_not_cost_a_core(worker: ToolWorker) -> None:
    """G6, design 10: once full, the pipe is read at a limited rate."""
    before_ms = _cpu_ms(worker.pid)
    outcome = worker.ended(worker.vice("floods_output", timeout_s=2.0))
    assert outcome.status == "timed_out"
    assert _cpu_ms(worker.pid) - before_ms < 1_000


# Trees

VICES: dict[str, tuple[str, tuple[str, ...]]] = {
    # vice: rung that it takes, arguments
    "polite_tree": ("term", ()),
    "ignores_term": ("kill", ()),
    "own_session": ("sweep", ()),
    "daemonizes": ("sweep", ("stay",)),
    "fork_storm": ("term sweep", ()),  # by luck all of it is between fork and setsid, and in the group
    "stops_itself": ("term", ()),
    "floods_output": ("term", ()),
    "fork_bomb": ("term kill", ("300",)),
}


@pytest.mark.parametrize(
    "vice", [pytest.param(vice, marks=pytest.mark.ci if vice == "fork_bomb" else ()) for vice in VICES]
)
def test_a_cancel_leaves_nothing_of_a_vice_alive(worker: ToolWorker, vice: str) -> None:
    """G1, F5, R01, R04, R05. The walk that looks for survivors shares no code with the worker."""
    rung, arguments = VICES[vice]
    call = worker.vice(vice, *arguments)
    assert worker.alive() != []
    done = worker.stopped(grace_s=0.3)
    assert worker.alive() == []
    assert done.survivors == 0
    assert done.rung in rung.split()
    assert done.killed >= 1
    assert [(one.call_id, one.outcome.status) for one in done.calls] == [(call, "cancelled_killed")]
    assert "ready" in done.calls[0].outcome.text
    assert not any(isinstance(message, ToolEnded) for message in worker.came)


def test_a_process_whose_first_thread_has_ended_does_not_pass_for_a_zombie(worker: ToolWorker) -> None:
    """G1: state Z, and alive; the walk of the other tests would not see it either."""
    pid = worker.started(worker.vice("leaderless")).pid
    threads = os.listdir(f"/proc/{pid}/task")
    done = worker.stopped()
    assert len(threads) == 2
    assert (done.survivors, done.rung, done.killed) == (0, "term", 1)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("vice", ["daemonizes", "own_session", "ignores_term", "fork_storm"])
def test_what_a_finished_call_left_behind_ends_with_it(worker: ToolWorker, vice: str) -> None:
    """G1."""
    outcome = worker.ended(worker.start("shell", command=f"{vices.command(vice)} & head -c 1 $READY"))
    assert worker.alive() == []
    assert outcome.status == "done"


@pytest.mark.parametrize("vice", ["daemonizes", "own_session", "ignores_term", "stops_itself", "fork_storm"])
def test_the_limit_physically_ends_a_tree(worker: ToolWorker, vice: str) -> None:
    """G5, R03."""
    call = worker.vice(vice, *VICES[vice][1], timeout_s=1.0)
    assert worker.ended(call).status == "timed_out"
    assert worker.alive() == []


# Cancel


def test_an_idle_worker_acknowledges_and_has_nothing_to_end(worker: ToolWorker) -> None:
    worker.run("shell", command="true")
    done = worker.stopped()
    assert (done.rung, done.killed, done.survivors) == ("ack", 0, 0)


def test_a_command_that_obeys_is_gone_at_once(worker: ToolWorker) -> None:
    """F6: within 1 s; here without any grace being used up."""
    call = worker.start("shell", command="sleep 15; echo x")
    worker.started(call)
    before = time.monotonic()
    done = worker.stopped(grace_s=10.0)
    assert time.monotonic() - before < 3
    assert (done.rung, done.survivors, worker.alive()) == ("term", 0, [])


def test_the_acknowledgement_does_not_wait_for_the_tree(worker: ToolWorker) -> None:
    """F3: acknowledged means signalled; done means gone."""
    worker.vice("ignores_term")
    cancel = worker.cancel(grace_s=1.0)
    worker.wait_for(CancelAcknowledged, lambda message: message.generation == cancel.generation)
    assert not any(isinstance(message, CancelDone) for message in worker.came)
    assert worker.wait_for(CancelDone).rung == "kill"


def test_a_second_press_ends_the_grace(worker: ToolWorker) -> None:
    """F5, F10."""
    call = worker.vice("ignores_term")
    worker.cancel(grace_s=PRESSED_TWICE_S)
    worker.wait_for(CancelAcknowledged)
    before = time.monotonic()
    worker.cancel(grace_s=0.0, level=2)
    first = worker.wait_for(CancelDone, lambda message: message.level == 1)
    second = worker.wait_for(CancelDone, lambda message: message.level == 2)
    assert time.monotonic() - before < PRESSED_TWICE_S / 2
    assert (first.rung, first.calls) == (second.rung, second.calls)
    assert (second.rung, second.survivors, worker.alive()) == ("kill", 0, [])
    assert [one.call_id for one in second.calls] == [call]


PRESSED_TWICE_S = 15.0


def test_each_call_of_the_turn_has_one_truthful_outcome(worker: ToolWorker) -> None:
    """F8: finished, killed with its output so far, not started because a stop was under way."""
    finished = worker.start("shell", command="echo whole")
    worker.ended(finished)
    killed = worker.vice("ignores_term")
    first = worker.cancel(grace_s=0.5)
    worker.wait_for(CancelAcknowledged)
    waiting = worker.start("shell", command="touch never")  # of the next generation, while the stop goes on
    worker.cancel(grace_s=0.5)
    done = worker.wait_for(CancelDone, lambda message: message.generation == first.generation)
    assert [(one.call_id, one.outcome.status) for one in done.calls] == [
        (finished, "done"),
        (killed, "cancelled_killed"),
    ]
    assert done.calls[0].outcome.text == "whole\n[exit code 0]"
    assert "ready\n[stopped after" in done.calls[1].outcome.text
    last = worker.wait_for(CancelDone, lambda message: message.generation == first.generation + 1)
    assert [(one.call_id, one.outcome.status, one.outcome.changed) for one in last.calls][-1] == (
        waiting,
        "cancelled_not_started",
        "nothing",
    )


def test_a_call_that_came_during_a_stop_runs_after_it(worker: ToolWorker) -> None:
    """F9: what is being ended holds nothing of the new call."""
    worker.vice("ignores_term")
    worker.cancel(grace_s=0.5)
    worker.wait_for(CancelAcknowledged)
    worker.turn += 1
    outcome = worker.ended(worker.start("shell", command="echo next"))
    assert outcome.text == "next\n[exit code 0]"
    assert [type(message) for message in worker.came if isinstance(message, CancelDone | ToolEnded)] == [
        CancelDone,
        ToolEnded,
    ]


def test_a_late_second_press_does_not_touch_newer_work(worker: ToolWorker) -> None:
    worker.start("shell", command="sleep 20")
    worker.stopped()
    worker.turn += 1
    call = worker.vice("ignores_term", prefix="echo new; ")
    worker.cancel(level=2, grace_s=0.0)
    worker.wait_for(CancelDone, lambda message: message.level == 2)
    assert worker.alive() != []
    assert not any(isinstance(message, ToolEnded) and message.call_id == call for message in worker.came)


def test_work_of_an_older_generation_is_refused(worker: ToolWorker, tmp_path: Path) -> None:
    """F3."""
    worker.stopped()
    worker.generation -= 1
    worker.start("shell", command="touch old")
    worker.generation += 1
    worker.run("shell", command="true")
    assert not (tmp_path / "old").exists()


def test_a_worker_that_is_told_to_go_takes_its_tree_along(tmp_path: Path) -> None:
    """G2: SIGTERM has the same effect as the supervisor's death; grace 1 s."""
    with ToolWorker(tmp_path) as worker:
        worker.vice("daemonizes", "stay")
        left = worker.alive()
        worker.process.terminate()
        worker.process.wait(10)
        orphans = survivors.descendants(os.getpid())
    assert left != []
    assert [one for one in left if one in orphans] == []


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
