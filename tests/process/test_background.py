"""Background commands: they outlive their call and the run, and nothing of the session outlives the session (G1, R08).

The first half asks a tool worker alone, in each way in which it can hold what its tools start; the second the whole
chain. What is alive is seen by a walk that shares no code with the product.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from support import survivors, vices
from support.chain import Member, members, seconds_until_gone
from support.command import Running
from support.conversation import Conversation, Run, until
from support.isolations import ISOLATIONS
from support.puppet_gateway import DONE, PROGRAM, Order, background, shell
from support.scripted_gateway import Gateway, running
from support.tool_worker import ToolWorker

from haltline.protocol.kinds import Isolation
from haltline.protocol.messages import CancelDone, Shutdown
from haltline.worker.tool import keeper
from haltline.worker.tool.background import MOST

GONE_S = 2.0
"""R08, G2."""
SLACK = 3
"""Times that a requirement states are asserted at three times their value."""
PYTHON = f"{sys.executable} -S -B"

SERVER = "echo listening; sleep 25; echo never"
"""Two processes: the shell and the sleep that it waits for."""


def stubborn(isolation: str) -> str:
    """R08's helper: it ignores the end of its input and SIGTERM, and forks a daemon twice, with an empty environment
    where that can be found (docs/decisions/0005)."""
    daemon = "(setsid sleep 25 &)" if isolation == "groups" else vices.command("daemonizes")
    return f"{daemon}; {vices.command('ignores_term')} 2>&1"


@pytest.fixture
def isolation() -> Isolation:
    return "subreaper"


@pytest.fixture
def worker(tmp_path: Path, isolation: Isolation) -> Iterator[ToolWorker]:
    with ToolWorker(tmp_path, isolation=isolation) as made:
        yield made
    assert made.errors == ""


in_both_reaches = pytest.mark.parametrize(
    "isolation", [pytest.param("subreaper"), pytest.param("groups", marks=pytest.mark.ci)]
)
"""worker/tool/reach.py. A PID namespace has that of a subreaper."""


def begin(worker: ToolWorker, command: str) -> tuple[int, Path]:
    """A background command: its number and the file of its output."""
    outcome = worker.run("shell", command=command, background=True)
    assert (outcome.status, outcome.changed, outcome.exit_code) == ("done", "maybe", 0), outcome.text
    return number(outcome.text), output_of(outcome.text)


def number(text: str) -> int:
    (found,) = re.findall(r"goes on in the background, as process (\d+)\.", text)
    return int(found)


def output_of(text: str) -> Path:
    (found,) = re.findall(r"What it prints is kept in (\S+); read it with a shell command", text)
    return Path(found)


def everything_but(worker: ToolWorker) -> list[survivors.Survivor]:
    """All that is alive below this process, wherever it hangs, without the worker itself."""
    return [one for one in survivors.descendants(os.getpid()) if one.pid != worker.pid]


def alive(pid: int) -> bool:
    return any(one.pid == pid for one in survivors.descendants(os.getpid()))


# A call and what follows it


@in_both_reaches
def test_it_goes_on_after_its_call_and_after_others(worker: ToolWorker) -> None:
    pid, output = begin(worker, SERVER)
    for command in ("true", "sleep 20 & echo left behind"):
        assert worker.run("shell", command=command).status == "done"
    assert alive(pid)
    assert worker.run("shell", command=f"cat {output}").text == "listening\n[exit code 0]"


@pytest.mark.ci
def test_what_it_has_printed_so_far_comes_with_the_result(worker: ToolWorker) -> None:
    outcome = worker.run("shell", command=SERVER, background=True)
    assert outcome.text.startswith("listening\n[goes on in the background, as process ")


@in_both_reaches
def test_a_bare_ampersand_still_ends_with_its_call(worker: ToolWorker) -> None:
    """G1: also while something is in the background."""
    begin(worker, SERVER)
    before = everything_but(worker)
    for left in (
        "sleep 20 & echo done",
        "(setsid sleep 20 >/dev/null 2>&1 &) ; echo done",
        "nohup sleep 20 & echo done",
    ):
        assert worker.run("shell", command=left).status == "done"
        assert everything_but(worker) == before


@pytest.mark.ci
def test_the_limit_of_another_call_does_not_concern_it(worker: ToolWorker) -> None:
    pid, _ = begin(worker, SERVER)
    assert worker.run("shell", command="sleep 20; echo x", timeout_s=0.3).status == "timed_out"
    assert alive(pid)


@pytest.mark.ci
def test_its_own_limit_does_not_end_it(worker: ToolWorker) -> None:
    outcome = worker.run("shell", command=SERVER, background=True, timeout_s=0.2)
    assert alive(number(outcome.text))


@pytest.mark.ci
def test_the_number_that_it_is_called_by_ends_it(worker: ToolWorker) -> None:
    pid, output = begin(worker, SERVER)
    assert worker.run("shell", command=f"kill -- -{pid}; while kill -0 {pid} 2>&-; do :; done").status == "done"
    until(lambda: "ended" in output.read_text(), "its end was not told")
    assert output.read_text() == "listening\n\n[it has ended: killed by SIGTERM]\n"
    assert everything_but(worker) == []


def test_what_fails_at_once_is_an_ordinary_failure(worker: ToolWorker) -> None:
    """As with a port that is in use."""
    outcome = worker.run("shell", command="echo the port is in use >&2; exit 3", background=True)
    assert (outcome.status, outcome.changed, outcome.exit_code) == ("failed", "maybe", 3)
    assert outcome.text == (
        "error: the command ended with exit code 3 and may have changed something. Read its output before you try "
        "again:\nthe port is in use\n[exit code 3]\n[it has ended already: nothing goes on in the background]"
    )
    assert everything_but(worker) == []


@pytest.mark.ci
def test_what_cannot_start_says_so(worker: ToolWorker, tmp_path: Path) -> None:
    outcome = worker.run("shell", command="echo \0", background=True)
    assert (outcome.status, outcome.changed, "NUL" in outcome.text) == ("failed", "nothing", True)
    tmp_path.rmdir()
    outcome = worker.run("shell", command="true", background=True)
    assert (outcome.status, outcome.changed) == ("failed", "nothing")
    assert "could not be started: the workspace folder is not there any more" in outcome.text
    assert everything_but(worker) == []


@pytest.mark.ci
@in_both_reaches
def test_a_daemon_goes_on_when_its_first_process_has_ended(worker: ToolWorker) -> None:
    outcome = worker.run("shell", command="(setsid sleep 25 &); echo ready", background=True)
    assert "ready\n[its first process has ended (exit code 0); what that started goes on" in outcome.text
    worker.run("shell", command="true")
    assert "sleep 25" in {one.command for one in everything_but(worker)}


@pytest.mark.ci
def test_a_command_longer_than_an_argument_may_be_goes_on_too(worker: ToolWorker) -> None:
    """R91."""
    _, output = begin(worker, f"printf %s {'x' * 140_000} | wc -c; sleep 25")
    assert output.read_text().strip() == "140000"


@pytest.mark.ci
def test_it_has_an_empty_input_no_terminal_and_signals_as_they_are(worker: ToolWorker) -> None:
    """R07, G7: what its keeper handles is not inherited."""
    looks = "cat; (: < /dev/tty) 2>/dev/null && echo terminal; grep -E 'SigIgn|SigBlk' /proc/self/status; sleep 25"
    _, output = begin(worker, looks)
    assert [line.split()[-1] for line in output.read_text().splitlines()] == ["0" * 16, "0" * 16]


# Its output


@pytest.mark.ci
def test_a_flood_is_bounded_and_its_beginning_and_end_are_kept(worker: ToolWorker) -> None:
    """G6, R86: `yes`, until the file has been begun anew twice."""
    _, output = begin(worker, "echo first; exec yes")
    most = keeper.HEAD_BYTES + 2 * keeper.TAIL_BYTES + 100
    seen: set[bytes] = set()

    def looked() -> bool:
        text = output.read_bytes()
        assert len(text) <= most
        assert text.startswith(b"first\ny\n")
        seen.update(re.findall(rb"\n\[\.\.\. (\d+) bytes not kept \.\.\.\]\n", text))
        return len(seen) >= 2

    until(looked, "it was not begun anew")
    (keeping,) = (one.pid for one in everything_but(worker) if "keeper.py" in one.command)
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{keeping}/status").read_text())
    assert peak is not None
    assert int(peak[1]) < 50 * 1024


def with_at_most(name: str, count: int) -> str:
    """As a prelude of a worker: another bound, so that fewer processes show it."""
    return f"from haltline.worker.tool import background; background.{name} = {count}"


@pytest.mark.ci
def test_only_so_many_go_on_at_once(tmp_path: Path) -> None:
    with ToolWorker(tmp_path, prelude=with_at_most("MOST", 2)) as worker:
        pids = [begin(worker, "exec sleep 25")[0] for _ in range(2)]
        refused = worker.run("shell", command="touch never", background=True)
        worker.run("shell", command=f"kill -KILL {pids[0]}")
        until(lambda: len(everything_but(worker)) == 2, "its keeper stayed")
        begin(worker, "exec sleep 25")
    assert MOST == 8
    assert (refused.status, refused.changed) == ("failed", "nothing")
    assert f"their numbers are {pids[0]}, {pids[1]}." in refused.text
    assert not (tmp_path / "never").exists()


@pytest.mark.ci
def test_files_of_commands_that_ended_do_not_pile_up(tmp_path: Path) -> None:
    outputs: list[Path] = []
    with ToolWorker(tmp_path, prelude=with_at_most("ENDED_KEPT", 1)) as worker:
        for _ in range(2):
            pid, output = begin(worker, "exec sleep 25")
            outputs.append(output)
            worker.run("shell", command=f"kill -KILL {pid}")
        until(lambda: not outputs[0].exists(), "the oldest was kept")
        assert outputs[1].exists()


# Stops


@pytest.mark.ci
def test_a_cancel_ends_the_polite_with_sigterm_and_its_grace(worker: ToolWorker, tmp_path: Path) -> None:
    """P1, F5: no call is at work any more."""
    begin(worker, vices.command("cleans_up", str(tmp_path / "marker")))
    worker.in_place()
    done = worker.stopped(grace_s=15.0)
    assert (done.rung, done.survivors, everything_but(worker)) == ("term", 0, [])
    assert (tmp_path / "marker").read_text() == "cleaned"


@pytest.mark.ci
@in_both_reaches
def test_a_cancel_ends_the_stubborn(worker: ToolWorker) -> None:
    """R08, G1."""
    begin(worker, stubborn(worker.isolation))
    while "ignores_term" not in str(everything_but(worker)):
        worker.in_place()
    done = worker.stopped(grace_s=0.3)
    assert (done.survivors, everything_but(worker)) == (0, [])
    assert done.rung == "sweep"


@pytest.mark.ci
def test_a_cancel_in_its_call_ends_it_and_says_so(worker: ToolWorker) -> None:
    call = worker.start("shell", command=f"{vices.command('ignores_term')} 2>&1", background=True)
    worker.in_place()
    done = worker.stopped(grace_s=0.2)
    assert [(one.call_id, one.outcome.status) for one in done.calls] in (
        [(call, "cancelled_killed")],
        [(call, "done")],  # it had returned
    )
    assert everything_but(worker) == []


@pytest.mark.ci
@in_both_reaches
def test_a_late_second_press_does_not_touch_what_was_begun_after_the_first(worker: ToolWorker) -> None:
    """F3: it is of a newer generation, and its call is over."""
    older, _ = begin(worker, SERVER)
    worker.stopped()
    newer, _ = begin(worker, SERVER)
    worker.cancel(level=2, grace_s=0.0)
    done = worker.wait_for(CancelDone, lambda message: message.level == 2)
    assert (done.rung, done.killed, alive(older), alive(newer)) == ("ack", 0, False, True)


@pytest.mark.parametrize("how", ["shutdown", "sigterm"])
@pytest.mark.ci
@in_both_reaches
def test_the_end_of_the_worker_ends_them_politely_and_takes_their_files_along(
    worker: ToolWorker, tmp_path: Path, how: str
) -> None:
    """R08: quit, and the death of the supervisor."""
    _, output = begin(worker, vices.command("cleans_up", str(tmp_path / "marker")))
    worker.in_place()
    begin(worker, f"{vices.command('ignores_term')} 2>&1")
    worker.in_place()
    if how == "sigterm":
        worker.process.terminate()
    else:
        worker.send(Shutdown())
    worker.process.wait(GONE_S * SLACK)
    assert everything_but(worker) == []
    assert ((tmp_path / "marker").read_text(), output.parent.exists()) == ("cleaned", False)


@pytest.mark.ci
def test_what_a_killed_keeper_kept_ends_with_the_next_call(worker: ToolWorker) -> None:
    begin(worker, SERVER)
    (keeping,) = (one.pid for one in everything_but(worker) if "keeper.py" in one.command)
    worker.run("shell", command=f"kill -KILL {keeping}")
    worker.run("shell", command="true")
    assert everything_but(worker) == []


# The whole chain


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateway]:
    with running(tmp_path_factory.mktemp("gateway"), program=PROGRAM) as made:
        yield made


def in_each_isolation(others: pytest.MarkDecorator = pytest.mark.ci) -> pytest.MarkDecorator:
    """The strongest that this machine has in every run, the others with --ci or --all."""
    every = (*ISOLATIONS, "groups")
    return pytest.mark.parametrize(
        "isolation", [pytest.param(one, marks=() if one == ISOLATIONS[-1] else others) for one in every]
    )


def text_of(run: Run) -> str:
    (result,) = run.of("tool_result")
    return str(result["text"])


@contextlib.contextmanager
def serving(gateway: Gateway, workspace: Path, isolation: str, command: str) -> Generator[tuple[Conversation, Path]]:
    """A chat between two runs whose first has begun `command` in the background."""
    with Conversation(gateway.url, workspace, isolation=isolation) as conversation:
        first = conversation.ask(Order(calls=background(command)).prompt)
        assert (first.statuses, first.result["text"]) == (["done"], DONE)
        yield conversation, output_of(text_of(first))


@in_each_isolation()
def test_it_goes_on_after_its_run_and_the_next_prompt_reads_what_it_says(
    gateway: Gateway, tmp_path: Path, isolation: str
) -> None:
    """In a chat; the end of the input ends it, the session and all that is left."""
    talks = "echo listening; while ! test -e asked; do sleep 0.05; done; echo answered; sleep 25; echo never"
    with serving(gateway, tmp_path, isolation, talks) as (conversation, output):
        asking = f"cat {output}; touch asked; until grep answered {output}; do :; done"
        second = conversation.ask(Order(calls=shell(asking)).prompt)
        assert text_of(second) == "listening\nanswered\n[exit code 0]"
        assert {one.command for one in conversation.strangers()} >= {"sleep 25"}
        ended = conversation.leave()
        assert everything_below(conversation) == []
        assert (ended.exit_code, output.exists()) == (0, False)


def everything_below(conversation: Conversation) -> list[survivors.Survivor]:
    return [one for one in survivors.descendants(os.getpid()) if one not in conversation.before]


@in_each_isolation()
def test_a_stop_ends_it_too(gateway: Gateway, tmp_path: Path, isolation: str) -> None:
    """P1, R08: at the moment of `result` nothing that the session started is alive, and the session goes on."""
    with serving(gateway, tmp_path, isolation, stubborn(isolation)) as (conversation, _):
        conversation.prompt(Order(text="so", hangs=True).prompt)
        conversation.until(lambda event: event["type"] == "message" and bool(event["delta"]))
        conversation.press()
        stopped = conversation.result()
        assert conversation.strangers() == []
        assert stopped.result["reason"] == "cancelled"
        assert conversation.greeted()
        conversation.leave()


@pytest.mark.ci
@in_each_isolation()
@pytest.mark.parametrize(
    "victim", ["supervisor", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("client", "guard"))]
)
def test_nothing_of_it_is_alive_after_a_death_of_one_of_ours(
    gateway: Gateway, tmp_path: Path, isolation: str, victim: Member
) -> None:
    """R08, G2: within 2 s, without anyone's help. The guard's death ends no run; the end of the session does."""
    before = survivors.descendants(os.getpid())
    run = hanging_behind(gateway, tmp_path, isolation, stubborn(isolation))
    os.kill(members(run)[victim], signal.SIGKILL)
    if victim == "guard":
        run.process.send_signal(signal.SIGINT)
        run.until("result")
    seconds_until_gone(time.monotonic(), GONE_S * SLACK, before)
    run.end()


@pytest.mark.ci
@in_each_isolation(others=pytest.mark.exhaustive)
def test_the_death_of_its_worker_ends_it_and_the_run_goes_on(gateway: Gateway, tmp_path: Path, isolation: str) -> None:
    """L2, G2."""
    with serving(gateway, tmp_path, isolation, stubborn(isolation)) as (conversation, _):
        begun = conversation.strangers()
        assert len(begun) >= 3
        os.kill(conversation.alive("tool")[-1], signal.SIGKILL)
        until(lambda: not set(begun) & set(everything_below(conversation)), "something outlived the worker")
        assert text_of(conversation.ask(Order(calls=shell("echo on")).prompt)) == "on\n[exit code 0]"
        conversation.leave()


@pytest.mark.ci
@in_each_isolation(others=pytest.mark.exhaustive)
def test_the_end_of_a_run_ends_it(gateway: Gateway, tmp_path: Path, isolation: str) -> None:
    """R08, quit: `run` has one run, so its end is the session's. Within 2 s also where it does not obey."""
    before = survivors.descendants(os.getpid())
    prompt = Order(calls=background(stubborn(isolation))).prompt
    run = Running(run_arguments(gateway, tmp_path, isolation, prompt))
    run.until("result")
    seconds_until_gone(time.monotonic(), GONE_S * SLACK, before)
    assert run.end().exit_code == 0


def hanging_behind(gateway: Gateway, workspace: Path, isolation: str, command: str) -> Running:
    """A run with something in the background and a long command in the foreground."""
    calls = (*background(command), *shell("echo; sleep 25; echo never"))
    run = Running(run_arguments(gateway, workspace, isolation, Order(calls=calls).prompt))
    run.until("tool_result")
    first = str(run.events[-1].get("call_id"))
    run.until(lambda event: event["type"] == "tool_start" and event["call_id"] != first)
    return run


def run_arguments(gateway: Gateway, workspace: Path, isolation: str, prompt: str) -> list[str]:
    return [
        *("run", "-m", "puppet", "--base-url", gateway.url, "-C", str(workspace), "--json", "-y"),
        *("--isolation", isolation, prompt),
    ]
