"""The PID namespace around the tool worker: what it keeps in, what it ends, and what is said where it cannot be had.

As an ordinary user, and as root where the tests run as root. What this machine cannot have is not tried here, but
refused (support/isolations.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from conftest import Samples
from support import no_namespaces, ordinary_user
from support.asking_gateway import AskingGateway, asking
from support.chain import MEMBERS, Member, members, seconds_until_gone
from support.command import COMMAND, Ended, Event, Running
from support.isolations import NAMESPACED, USERS, Who

LOOKS = Path(__file__).resolve().parent.parent / "support" / "vices" / "looks_around.py"
SEED_VARIABLE = "ISOLATION_SEED"
GONE_S = 2.0
"""G2."""
SLACK = 3
"""Times that a requirement states are asserted at three times their value."""
STOPPED_S = 10.0
"""Longest stop of a run some of whose processes are dead."""


def as_each_of(users: tuple[Who, ...]) -> pytest.MarkDecorator:
    """The first in every run, the others with --ci."""
    return pytest.mark.parametrize(
        "who", [pytest.param(who, marks=() if who == users[0] else pytest.mark.ci) for who in users]
    )


class Place:
    """Where `who` works."""

    def __init__(self, who: Who, home: Path) -> None:
        self.who: Who = who
        self.folder = home
        self.command: tuple[str, ...] = COMMAND
        if who == "user":
            self.command = (*ordinary_user.COMMAND, *COMMAND)
            if os.geteuid() == 0:
                os.chown(home, ordinary_user.USER, ordinary_user.USER)

    def start(self, *options: str, before: tuple[str, ...] = ()) -> Running:
        """`before`: what starts the program in its turn."""
        command = (*self.command[: -len(COMMAND)], *before, *COMMAND)
        return Running(
            ["run", "--json", "-C", str(self.folder), *options, "hi"],
            command=command,
            extra={"HOME": str(self.folder)},
        )


@pytest.fixture
def place(who: Who, home: Path) -> Place:
    return Place(who, home)


@pytest.fixture
def gateway() -> Iterator[AskingGateway]:
    with asking() as made:
        yield made


def ran(place: Place, gateway: AskingGateway, command: str) -> tuple[Running, Event]:
    """A run in a namespace whose model asked for `command`; its result has come, and the model has not gone on."""
    gateway.command = command
    running = place.start("-m", "any", "--base-url", gateway.base_url, "-y", "--isolation", "pidns")
    return running, running.until("tool_result")


def kill(pids: dict[Member, int], victims: Sequence[Member]) -> None:
    """One after the other, without a pause; who leaves because of an earlier one may be gone already."""
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[victim], signal.SIGKILL)


def number_inside(pid: int) -> int:
    """What the innermost namespace of a process calls it."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("NSpid:"))
    return int(line.split()[-1])


@as_each_of(NAMESPACED)
class TestInANamespace:
    """What holds where it can be had."""

    __test__ = bool(NAMESPACED)

    def test_all_six_killed_at_once_leave_nothing(self, place: Place) -> None:
        """G2, P1: a tree that ignores SIGTERM, daemons in it."""
        running = place.start("-m", "demo/tool_tree", "-y", "--isolation", "pidns")
        running.until("tool_start")
        kill(members(running), MEMBERS)
        seconds_until_gone(time.monotonic(), GONE_S * SLACK)
        running.end()

    @pytest.mark.ci
    def test_it_is_what_auto_means(self, place: Place) -> None:
        """Where ssh has no files of root's that it would refuse as this user (docs/decisions/0004)."""
        running = place.start("-m", "demo/ok")
        isolation = running.until("init")["isolation"]
        strange = place.who == "user" and any(Path("/etc/ssh/ssh_config.d").glob("*.conf"))
        assert isolation == ("subreaper" if strange else "pidns")
        assert running.end().exit_code == 0

    def test_a_tool_finds_no_way_out_and_cannot_end_its_worker(
        self, place: Place, gateway: AskingGateway, home: Path
    ) -> None:
        """G7, L4. SIGKILL to everything that can be named leaves the worker, SIGTERM too."""
        told = home / "told.json"
        looking = shlex.join([sys.executable, "-B", str(LOOKS), str(told), str(os.getpid())])
        running, result = ran(place, gateway, f"{looking}; kill -9 1; kill -TERM 1; kill -9 -1; echo still here")
        assert result["status"] == "done", result
        assert "still here" in str(result["text"])
        seen = msgspec.json.decode(told.read_bytes(), type=Seen)
        assert seen == Seen(
            own_pid=seen.own_pid,
            process_1="haltline-tool",
            processes=seen.ancestors,
            ancestors=seen.ancestors,
            host_seen=False,
            ways_out=[],
            terminal=False,
            inside=True,
            proc_below=[],
        )
        gateway.go_on()
        ended = running.end()
        assert (ended.exit_code, ended.text) == (0, "done")
        assert [event["state"] for event in ended.of("worker") if event["role"] == "tool"] == ["starting", "ready"]

    def test_a_process_is_called_what_everybody_calls_it(self, place: Place, gateway: AskingGateway) -> None:
        """Interface: tool_start.pid; the worker's own."""
        gateway.command = "echo $$ > inner; echo begun > begun; read never < /dev/zero"
        running = place.start(
            "-m", "any", "--base-url", gateway.base_url, "-y", "--isolation", "pidns", "--tool-timeout", "20s"
        )
        pid = int(str(running.until("tool_start")["pid"]))
        tool_worker = members(running)["tool"]
        assert number_inside(tool_worker) == 1
        assert Path(f"/proc/{tool_worker}/comm").read_text() == "haltline-tool\n"
        assert str(tool_worker) in Path(f"/proc/{pid}/status").read_text().split("PPid:")[1].split("\n")[0]
        assert number_inside(pid) > 1
        running.process.send_signal(signal.SIGINT)
        assert running.end().exit_code == 130

    @pytest.mark.ci
    def test_one_that_ends_at_once_has_its_number_too(self, place: Place, gateway: AskingGateway) -> None:
        running, _ = ran(place, gateway, "true")
        assert isinstance(running.until("tool_start")["pid"], int)
        gateway.go_on()
        running.end()

    @pytest.mark.ci
    def test_a_file_tool_is_the_worker_itself(self, place: Place, gateway: AskingGateway, home: Path) -> None:
        (home / "page").write_text("words")
        gateway.path = "page"
        running = place.start("-m", "any", "--base-url", gateway.base_url, "-y", "--isolation", "pidns")
        result = running.until("tool_result")
        assert ("words" in str(result["text"]), result["ok"]) == (True, True)
        assert running.until("tool_start")["pid"] == members(running)["tool"]
        gateway.go_on()
        running.end()

    @pytest.mark.ci
    def test_a_read_only_file_of_its_user_stays_so(self, place: Place, gateway: AskingGateway, home: Path) -> None:
        """The worker gives up what a user namespace lets it do."""
        (home / "mine").mkdir()
        (home / "mine").chmod(0o000)
        if place.who == "user" and os.geteuid() == 0:
            os.chown(home / "mine", ordinary_user.USER, ordinary_user.USER)
        gateway.path = "mine/page"
        running = place.start("-m", "any", "--base-url", gateway.base_url, "-y", "--isolation", "pidns")
        text = str(running.until("tool_result")["text"])
        gateway.go_on()
        running.end()
        assert ("permission" in text.lower()) == (place.who == "user"), text

    @pytest.mark.ci
    def test_an_ordinary_stop_keeps_its_grace(self, place: Place, gateway: AskingGateway, home: Path) -> None:
        """F5, R06: the trap runs."""
        gateway.command = "trap 'echo bye > told; exit 0' TERM; echo; sleep 20 & wait"
        running = place.start("-m", "any", "--base-url", gateway.base_url, "-y", "--isolation", "pidns")
        running.until("tool_start")
        trapped(members(running)["tool"])
        running.process.send_signal(signal.SIGINT)
        ended = running.end()
        assert (ended.receipt.rung, ended.receipt.survivors) == ("term", 0)
        assert (home / "told").read_text() == "bye\n"

    @pytest.mark.ci
    def test_a_worker_that_is_killed_takes_its_tree_along(self, place: Place) -> None:
        """F4, L2: its end is seen, the call's outcome is unknown, a new worker is there."""
        running = place.start("-m", "demo/tool_tree", "-y", "--isolation", "pidns")
        running.until("tool_start")
        os.kill(members(running)["tool"], signal.SIGKILL)
        ended = running.end()
        assert [event["status"] for event in ended.of("tool_result")] == ["outcome_unknown"]
        states = [event["state"] for event in ended.of("worker") if event["role"] == "tool"]
        assert (states[:4], ended.exit_code) == (["starting", "ready", "exited", "replaced"], 0)

    @pytest.mark.ci
    def test_a_stop_that_kills_a_hung_worker_has_the_rung_of_the_namespace(self, place: Place) -> None:
        """F4; interface: rungs. What died along was counted before."""
        running = place.start("-m", "demo/tool_tree", "-y", "--isolation", "pidns")
        running.until("tool_start")
        os.kill(members(running)["tool"], signal.SIGSTOP)
        running.process.send_signal(signal.SIGINT)
        receipt = running.end().receipt
        assert (receipt.rung, receipt.survivors) == ("pidns", 0)
        assert receipt.killed >= 8

    @pytest.mark.ci
    def test_some_of_the_six_killed_leave_nothing(self, place: Place, home: Path, samples: Samples) -> None:
        """G2: of every three or more of them, a sample, in any order. One or two: test_kill_matrix.py."""
        every = [chosen for count in (3, 4, 5, 6) for chosen in itertools.combinations(MEMBERS, count)]
        seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**6))
        chance = random.Random(f"{seed} {place.who}")
        for number, chosen in enumerate(chance.sample(every, samples(quick=0, ci=8, exhaustive=len(every)))):
            victims = chance.sample(chosen, len(chosen))
            print(f"{SEED_VARIABLE}={seed} {place.who} {' '.join(victims)}")
            (home / str(number)).mkdir(mode=0o700)
            self._kill(Place(place.who, home / str(number)), victims)

    def _kill(self, place: Place, victims: list[Member]) -> None:
        running = place.start("-m", "demo/tool_tree", "-y", "--isolation", "pidns")
        running.until("tool_start")
        pids = members(running)
        kill(pids, victims)
        since = time.monotonic()
        if {"client", "supervisor"} & set(victims):
            seconds_until_gone(since, GONE_S * SLACK)
            running.end()
            return
        running.process.send_signal(signal.SIGINT)
        ended = running.end(STOPPED_S * SLACK)
        seconds_until_gone(time.monotonic(), GONE_S * SLACK)
        assert ended.result["reason"] in ("cancelled", "completed", "worker_failed")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What looks_around.py tells."""

    own_pid: int
    process_1: str
    processes: list[int]
    ancestors: list[int]
    host_seen: bool
    ways_out: list[str]
    terminal: bool
    inside: bool
    proc_below: list[str]


def trapped(tool_worker: int) -> None:
    """Wait until the tool has started the sleep that it waits for."""
    children = Path(f"/proc/{tool_worker}/task/{tool_worker}/children")
    deadline = time.monotonic() + STOPPED_S
    while time.monotonic() < deadline:
        for pid in children.read_text().split():
            if Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                return
    raise AssertionError("the tool started nothing")


# Where it cannot be had


def without(who: Who) -> tuple[str, ...]:
    """What starts a program that can have no namespace: nothing, where nobody here can."""
    return no_namespaces.COMMAND if who in NAMESPACED else ()


@as_each_of(USERS)
def test_auto_does_without_where_it_cannot_be_had(place: Place) -> None:
    running = place.start("-m", "demo/ok", before=without(place.who))
    assert running.until("init")["isolation"] == "subreaper"
    assert running.end().exit_code == 0


@as_each_of(USERS)
def test_pidns_is_refused_in_one_line_where_it_cannot_be_had(place: Place) -> None:
    ended = place.start("-m", "demo/ok", "--isolation", "pidns", before=without(place.who)).end()
    (line,) = ended.stderr.splitlines()
    assert (ended.exit_code, ended.events) == (78, ()) or refused(ended), line
    assert line.startswith("haltline: isolation pidns is not usable here: making a"), line
    assert "use auto or subreaper" in line


def refused(ended: Ended) -> bool:
    """With --json the refusal may be a result as well."""
    return ended.exit_code == 78 and [event["type"] for event in ended.events] == ["result"]


@pytest.mark.ci
@pytest.mark.parametrize("wish", ["subreaper", "groups"])
def test_what_is_wanted_and_needs_nothing_is_what_a_session_gets(wish: str) -> None:
    running = Running(["run", "-m", "demo/ok", "--json", "--isolation", wish, "hi"])
    assert running.until("init")["isolation"] == wish
    assert running.end().exit_code == 0


# Who dies in the start of process 1, and at which line (supervisor/namespaced.py, rule 3)

START = """
import json, os, select, signal, sys, time
from haltline.protocol import linux, namespaces
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.namespaces import Place, Refused
from haltline.supervisor import namespaced

linux.become_subreaper()
linux.set_not_dumpable()
words_r, words_w = os.pipe()
go_r, go_w = os.pipe()
found = namespaced.Trial().result()

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def body():
    os.close(go_w)
    if os.read(go_r, 1):
        os.write(2, b"begun as %d" % os.getpid())

{change}

told = {{"problem": "", "statuses": [], "words": ""}}
try:
    if {in_a_child} and os.fork() == 0:
        found.fork(body, words_w)
        os._exit(1)
    if not {in_a_child}:
        found.fork(body, words_w)
        os.write(go_w, b"x")
except ConfigurationProblem as problem:
    told["problem"] = str(problem)
for fd in (go_r, go_w, words_w):
    os.close(fd)
while True:
    try:
        ended, status = os.wait()
    except ChildProcessError:
        break
    told["statuses"].append(os.waitstatus_to_exitcode(status))
told["words"] = os.read(words_r, 4096).decode().strip()
print(json.dumps(told))
"""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    problem: str = ""
    statuses: list[int]
    """Of everybody who was to be collected, in that order."""
    words: str = ""


def start(who: Who, change: str, *, in_a_child: bool = False) -> Told:
    """`in_a_child`: who asks for process 1 is a child of the program, which collects whoever is left."""
    program = START.format(change=textwrap.dedent(change), in_a_child=in_a_child)
    before = ordinary_user.COMMAND if who == "user" else ()
    ended = subprocess.run(
        [*before, sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return msgspec.json.decode(ended.stdout, type=Told)


class TestTheStartOfProcess1:
    """As above."""

    __test__ = bool(NAMESPACED)

    @as_each_of(NAMESPACED)
    @pytest.mark.parametrize(
        ("change", "told"),
        [
            pytest.param("", Told(statuses=[0, 0], words="begun as 1"), id="nobody"),
            pytest.param(
                "namespaces.enter = lambda place: die()",
                Told(problem="no PID namespace for it: its helper ended without a word", statuses=[-9]),
                id="the helper before it forks",
            ),
            pytest.param(
                """
                fork = namespaced.fork
                def forks_and_dies(body):
                    pid = fork(body)
                    if os.getpid() != mine:
                        die()
                    return pid
                mine = os.getpid()
                namespaced.fork = forks_and_dies
                """,
                Told(problem="no PID namespace for it: its helper ended without a word", statuses=[-9, 0]),
                id="the helper before it tells",
            ),
            pytest.param(
                """
                namespaced.times.NAMESPACE_HELPER_S = 0.2
                namespaces.enter = lambda place: os.kill(os.getpid(), signal.SIGSTOP)
                """,
                Told(problem="no PID namespace for it: its helper did not answer within 0.2 s", statuses=[-9]),
                id="nobody, and the helper is stopped",
            ),
            pytest.param(
                """
                def refuse(place):
                    raise Refused("making it: a limit is reached")
                namespaces.enter = refuse
                """,
                Told(problem="no PID namespace for it: making it: a limit is reached", statuses=[0]),
                id="nobody, and the system refuses the helper",
            ),
            pytest.param(
                """
                def refuse():
                    raise Refused("mounting /proc: the system does not allow it")
                namespaces.settle = refuse
                """,
                Told(statuses=[0, 1], words="no PID namespace for it: mounting /proc: the system does not allow it"),
                id="process 1, in its words",
            ),
        ],
    )
    def test_who_dies_in_it_is_told_and_leaves_nobody(self, who: Who, change: str, told: Told) -> None:
        """L3. Whoever waits there waits for all of its children: one that stayed would hold it up for ever."""
        assert start(who, change) == told

    @as_each_of(NAMESPACED)
    @pytest.mark.parametrize(
        ("change", "statuses"),
        [
            pytest.param(
                """
                def enter(place):
                    os.kill(os.getppid(), signal.SIGKILL)
                    really(place)
                really, namespaces.enter = namespaces.enter, enter
                """,
                [-9, 0, 0],
                id="before the helper forks",
            ),
            pytest.param(
                """
                def forks_and_kills(body):
                    pid = fork(body)
                    if os.getppid() != top:
                        os.kill(os.getppid(), signal.SIGKILL)
                    return pid
                fork, top = namespaced.fork, os.getpid()
                namespaced.fork = forks_and_kills
                """,
                [-9, 0, 0],
                id="before the helper tells",
            ),
        ],
    )
    def test_who_asked_for_it_and_dies_leaves_nobody(self, who: Who, change: str, statuses: list[int]) -> None:
        """G2: the zygote."""
        told = start(who, change, in_a_child=True)
        assert (sorted(told.statuses), told.words) == (statuses, "")
