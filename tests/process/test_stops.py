"""Stops, as one table: what is stopped -> the rungs that it takes, what the model is told next, survivors 0.

Each row is one conversation through the real chain: a greeting, the run that is stopped, one more prompt. The model is
support/puppet_gateway.py; vices are real programs (support/vices) and real workers (support/misbehaving_start.py).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from support import after_a_stop, puppet_gateway, scripted_gateway, survivors, vices
from support.command import WITHIN_S
from support.conversation import Conversation, Run, until
from support.isolations import ISOLATIONS
from support.puppet_gateway import DONE, PROGRAM, TURNS, Order, Said, shell
from support.scripted_gateway import Gateway

from haltline.protocol.events import CancelReceipt
from haltline.protocol.ids import ROLES, Role
from haltline.protocol.kinds import RUNG_ORDER, CallStatus, Rung

SLACK = 3
"""Times that a requirement states are asserted at three times their value."""

Reach = Callable[[Conversation, Gateway], object]
"""Returns when the conversation is in the state."""


def rung_in(isolation: str, rung: Rung) -> Rung:
    """A tool worker that is the first process of its namespace takes all of it along."""
    return "pidns" if isolation == "pidns" and rung == "worker_kill" else rung


# What the model is told

SIGNAL = "The run was stopped with Ctrl+C or another signal"
BEFORE_TEXT = Said("user", f"{SIGNAL} before any of your answer had come.")
IN_TEXT = Said("user", f"{SIGNAL} in the middle of your answer; what had come of it stands above and is not complete.")
IN_TOOLS = Said("user", f"{SIGNAL} while tools were at work; their results above say how far each had come.")
NOT_STARTED = Said(
    "tool",
    "error: the run was stopped before this call was started. Nothing was run, nothing was changed. "
    "Send it again if it is still wanted.",
)
UNKNOWN = Said(
    "tool",
    "error: the process that ran this call died with it: the outcome is unknown. It may have run partly or wholly, "
    "and may have changed something. It is not run again by itself. Look at the state of things first.",
)
SEARCH_STOPPED = Said(
    "tool",
    "error: stopped before it ended, because the run was stopped; nothing was changed. "
    "Send it again if it is still wanted.",
)


def stopped(output: str = "") -> Said:
    """The result of a command that ran; `output` is what it had printed."""
    return Said(
        "tool",
        "error: the command was stopped after N s, because the run was stopped; it may have partly run, and all that "
        "it had started was ended. Check the state before you run it again. "
        f"Output so far:\n{output}[stopped after N s]",
    )


def asked_for(*names: str, text: str = "") -> Said:
    return Said("assistant", text, names)


# How a run is brought into a state


def responded(conversation: Conversation, gateway: Gateway) -> None:
    """The order's own request has been answered with headers."""
    gateway.wait_for("response", session=conversation.session_id, count=conversation.greetings + 1)


def said(pieces: int) -> Reach:
    """The server has sent so many pieces of the response; each greeting had one."""

    def reach(conversation: Conversation, gateway: Gateway) -> None:
        gateway.wait_for("piece", session=conversation.session_id, count=conversation.greetings + pieces)

    return reach


def both(*reaches: Reach) -> Reach:
    return lambda conversation, gateway: [reach(conversation, gateway) for reach in reaches]


def text_shown(conversation: Conversation, _gateway: Gateway) -> None:
    conversation.until(lambda event: event["type"] == "message" and bool(event["delta"]))


def waiting(conversation: Conversation, _gateway: Gateway) -> None:
    conversation.until("retry")


def summarising(conversation: Conversation, gateway: Gateway) -> None:
    """After the turns and the request that did not fit, the one for a summary has been answered with headers."""
    conversation.until(lambda event: (event["type"], event.get("handling")) == ("error", "compact"))
    gateway.wait_for("response", session=conversation.session_id, count=conversation.greetings + TURNS + 2)


def questioned(conversation: Conversation, _gateway: Gateway) -> None:
    conversation.until("approval")


def in_place(conversation: Conversation, _gateway: Gateway) -> None:
    """The vice says so itself."""
    conversation.until("tool_start")
    conversation.in_place()


def begun(count: int) -> Reach:
    """So many calls run."""

    def reach(conversation: Conversation, _gateway: Gateway) -> None:
        started: set[object] = set()
        for _ in range(count):
            event = conversation.until(lambda event: event["type"] == "tool_start" and event["call_id"] not in started)
            started.add(event["call_id"])

    return reach


def signalled(role: Role, before: Reach) -> Reach:
    """One worker's vice has begun, in a state."""

    def reach(conversation: Conversation, gateway: Gateway) -> None:
        before(conversation, gateway)
        os.kill(conversation.ready(role), signal.SIGUSR1)

    return reach


# The table


@dataclass(frozen=True)
class Row:
    """What is stopped, and all that has to come of it. Rungs are those of the weakest isolation."""

    id: str
    order: Order
    reach: Reach
    told: tuple[Said, ...]
    """From the order to the next prompt."""
    statuses: tuple[CallStatus, ...] = ()
    llm: Rung = "ack"
    tool: tuple[Rung, ...] = ("ack",)
    """One of these."""
    killed: int = 0
    """At least so many processes."""
    presses: int = 1
    asks: bool = False
    vice: str = ""
    """Of the workers."""
    quick: bool = field(default=False, kw_only=True)
    """Also in the sample of every run."""

    @property
    def stream_open(self) -> bool:
        return self.order.hangs

    @property
    def tools_open(self) -> bool:
        return bool({"cancelled_killed", "outcome_unknown"} & set(self.statuses))


LONG_TEXT = "I think about it. " * 1_000
"""Nothing but a summary makes it shorter."""
ECHOED = Said("tool", "1\n[exit code 0]")
SLOW_PATTERN = "(a+)+$"
"""Takes longer than anybody waits on a line of `a` that ends otherwise."""
TEXT = Order(text="one two three ", hangs=True)
IN_ITS_TEXT = (asked_for(text="one two three "), IN_TEXT)
LONG = Order(calls=shell('sleep 15 & sleep 15 & printf . > "$READY"; wait; echo ended'))
IN_ITS_TOOL = (asked_for("shell"), stopped(), IN_TOOLS)
TOOL_LOST = (asked_for("shell"), UNKNOWN, IN_TOOLS)

STATES = (
    Row("before the first token", Order(hangs=True), responded, (BEFORE_TEXT,), quick=True),
    Row("in the text", TEXT, text_shown, IN_ITS_TEXT),
    Row(
        "in the arguments of a call",
        Order(text="I write. ", begun_call="write_file", hangs=True),
        both(text_shown, said(2)),
        (asked_for(text="I write. "), IN_TEXT),
    ),
    Row(
        "in the arguments of a call without text",
        Order(begun_call="write_file", hangs=True),
        said(1),
        (BEFORE_TEXT,),
    ),
    Row("in a retry wait", Order(refused_for_s=60), waiting, (BEFORE_TEXT,)),
    Row(
        "in a question",
        Order(text="I look. ", calls=shell("echo 1", "echo 2")),
        questioned,
        (asked_for("shell", "shell", text="I look. "), NOT_STARTED, NOT_STARTED, IN_TOOLS),
        ("cancelled_not_started", "cancelled_not_started"),
        asks=True,
    ),
    Row(
        "in a compaction",
        Order(text=LONG_TEXT, calls=shell("echo 1"), too_long=True, hangs=True),
        summarising,
        (asked_for("shell", text=LONG_TEXT), ECHOED, asked_for("shell", text=LONG_TEXT), ECHOED, BEFORE_TEXT),
        ("done", "done"),
    ),
    Row("in a tool", LONG, in_place, IN_ITS_TOOL, ("cancelled_killed",), tool=("term",), killed=3, quick=True),
    Row(
        "in the second of three tools",
        Order(calls=shell("echo first", 'echo second; printf . > "$READY"; sleep 15; echo x', "echo third")),
        in_place,
        (
            asked_for("shell", "shell", "shell"),
            Said("tool", "first\n[exit code 0]"),
            stopped("second\n"),
            NOT_STARTED,
            IN_TOOLS,
        ),
        ("done", "cancelled_killed", "cancelled_not_started"),
        tool=("term",),
        killed=1,
    ),
    Row(
        "in two tools side by side",
        Order(calls=(("search", {"pattern": SLOW_PATTERN}), ("search", {"pattern": f"b|{SLOW_PATTERN}"}))),
        begun(2),
        (asked_for("search", "search"), SEARCH_STOPPED, SEARCH_STOPPED, IN_TOOLS),
        ("cancelled_killed", "cancelled_killed"),
        tool=("term",),
        killed=2,
    ),
)


def of_vice(
    name: str,
    *arguments: str,
    tool: Rung | tuple[Rung, ...],
    killed: int = 1,
    presses: int = 1,
    output: str = "ready\n",
    quick: bool = False,
) -> Row:
    """The shell tool runs a vice."""
    return Row(
        " ".join((name, *arguments)),
        Order(calls=shell(vices.command(name, *arguments))),
        in_place,
        (asked_for("shell"), stopped(output), IN_TOOLS),
        ("cancelled_killed",),
        tool=(tool,) if isinstance(tool, str) else tool,
        killed=killed,
        presses=presses,
        quick=quick,
    )


VICES = (
    of_vice("polite_tree", tool="term", killed=10),
    of_vice("crowd", "300", tool="term", killed=301),
    of_vice("nohup", tool="term", killed=2),
    of_vice("stops_itself", tool="term", killed=2),
    of_vice("own_session", tool="sweep", killed=2),
    of_vice("daemonizes", "stay", tool="sweep", killed=2),
    of_vice("holds_pipe", "stay", tool="sweep", killed=2),
    of_vice("headless", tool="sweep", killed=3),
    of_vice("fork_storm", tool=("term", "sweep")),  # by luck all of it is between fork and setsid, and in the group
    of_vice("leader_first", tool="kill", killed=2),
    of_vice("ignores_term", tool="kill"),
    of_vice("ignores_term", tool="kill", presses=2, quick=True),
    of_vice("own_session", tool="sweep", presses=2, killed=2),
)


def of_workers(vice: str, *, killed: int = 0, presses: int = 1) -> Iterator[Row]:
    """Both workers have the vice, and have to be killed; `killed` of the tool's processes are found only then."""
    yield Row(
        f"{vice}, in the text", TEXT, text_shown, IN_ITS_TEXT,
        llm="worker_kill", tool=("worker_kill",), vice=vice, presses=presses,
    )  # fmt: skip
    yield Row(
        f"{vice}, in a tool", LONG, in_place, TOOL_LOST, ("outcome_unknown",),
        llm="worker_kill", tool=("worker_kill",), killed=killed, vice=vice, presses=presses,
    )  # fmt: skip


WORKERS = (
    *of_workers("never_acks", killed=3),
    *of_workers("acks_but_stays"),
    *of_workers("acks_but_stays", presses=2),
    Row("spins, in the text", TEXT, signalled("llm", text_shown), IN_ITS_TEXT, llm="worker_kill", vice="spins"),
    Row(
        "spins, in a tool", LONG, signalled("tool", in_place), TOOL_LOST, ("outcome_unknown",),
        tool=("worker_kill",), killed=3, vice="spins",
    ),
    Row("parses, in the text", TEXT, signalled("llm", text_shown), IN_ITS_TEXT, vice="parses"),
    Row(
        "parses, in a tool", LONG, signalled("tool", in_place), IN_ITS_TOOL, ("cancelled_killed",),
        tool=("term",), killed=3, vice="parses",
    ),
    Row("answers_late, in the text", TEXT, text_shown, IN_ITS_TEXT, vice="answers_late"),
)  # fmt: skip


def cases() -> pytest.MarkDecorator:
    """What is a matter of trees in every isolation of this machine, the rest in the strongest."""
    return pytest.mark.parametrize(
        ("isolation", "row"),
        [
            pytest.param(
                isolation,
                row,
                id=f"{row.id}, {isolation}" + (", two presses" if row.presses > 1 else ""),
                marks=() if row.quick and isolation == ISOLATIONS[-1] else pytest.mark.ci,
            )
            for isolation in ISOLATIONS
            for row in ((*STATES, *VICES, *WORKERS) if isolation == ISOLATIONS[-1] else (*VICES, *WORKERS))
        ],
    )


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with scripted_gateway.running(tmp_path_factory.mktemp("gateway"), scenario="puppet", program=PROGRAM) as running:
        yield running


@cases()
def test_a_stop_leaves_nothing_and_the_model_is_told_the_truth(
    gateway: Gateway, tmp_path: Path, isolation: str, row: Row
) -> None:
    """F1, F3 to F5, F7 to F10, G1, K1; R01, R04, R05, R74, R82, R93."""
    (tmp_path / "line").write_text("a" * 40 + "c")
    with Conversation(gateway.url, tmp_path, isolation=isolation, vice=row.vice, asks=row.asks) as conversation:
        footing = conversation.begun()
        conversation.prompt(row.order.prompt)
        row.reach(conversation, gateway)
        conversation.press()
        for _ in range(row.presses - 1):
            conversation.until(lambda event: (event.get("phase"), event.get("role")) == ("acknowledged", "tool"))
            conversation.press()
        run = conversation.result()
        after_a_stop.nothing_goes_on(conversation, run)
        gateway.wait_until_closed(session=conversation.session_id)
        check(run, row, isolation)
        assert after_a_stop.told_next(conversation, gateway, row.order.prompt, footing) == list(row.told)
        after_a_stop.leaves(conversation)


def check(run: Run, row: Row, isolation: str) -> None:
    """The two reports of each worker, in order, and the receipt."""
    llm, tools = row.llm, [rung_in(isolation, rung) for rung in row.tool]
    acknowledged, done = run.reports("acknowledged"), run.reports("done")
    assert run.steps[0] == ("requested", None)
    assert run.steps[1:] == [*(("acknowledged", role) for role in acknowledged), ("done", "llm"), ("done", "tool")]
    assert done["llm"]["rung"] == llm
    assert done["tool"]["rung"] in tools
    assert run.statuses == list(row.statuses)
    receipt = msgspec.convert(run.result["cancel"], CancelReceipt)
    assert receipt.rung == max((llm, msgspec.convert(done["tool"]["rung"], Rung)), key=RUNG_ORDER.index)
    assert (receipt.survivors, run.result["reason"], run.result["exit_code"]) == (0, "cancelled", 130)
    assert receipt.killed >= row.killed
    assert receipt.killed == sum(int(str(one["killed"])) for one in done.values())
    assert (receipt.stream_ms is not None, receipt.tools_ms is not None) == (row.stream_open, row.tools_open)
    assert receipt.total_ms >= max(receipt.stream_ms or 0, receipt.tools_ms or 0)


# States that a greeting would spoil: it leaves an open connection and living workers behind


def test_a_stop_while_the_name_of_the_server_is_looked_up(gateway: Gateway, tmp_path: Path) -> None:
    """F7, R94: the resolver's thread cannot be stopped, and holds nothing up."""
    url = gateway.url.replace("127.0.0.1", "localhost")
    with Conversation(url, tmp_path, isolation="subreaper", vice="resolves_late") as conversation:
        conversation.hold.touch()
        conversation.prompt(TEXT.prompt)
        conversation.in_place()
        run = stopped_in_connecting(conversation)
        conversation.hold.unlink()
        assert after_a_stop.told_next(conversation, gateway, TEXT.prompt) == [BEFORE_TEXT]
        after_a_stop.leaves(conversation)
    assert run.steps == BOTH_REPORTS


def test_a_stop_while_the_server_takes_no_connection(tmp_path: Path) -> None:
    """F7: a listener whose backlog is full answers no SYN. Later it does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = int(listener.getsockname()[1])
        with filled(listener):
            unanswered = connecting_to(port)
            with Conversation(f"http://127.0.0.1:{port}/v1", tmp_path, isolation="subreaper") as conversation:
                conversation.prompt(TEXT.prompt)
                until(lambda: connecting_to(port) == unanswered + 1, "nobody connects")
                run = stopped_in_connecting(conversation)
                until(lambda: connecting_to(port) == unanswered, "somebody still tries to connect")
                with serving(listener, tmp_path) as gateway:
                    assert after_a_stop.told_next(conversation, gateway, TEXT.prompt) == [BEFORE_TEXT]
                after_a_stop.leaves(conversation)
    assert run.steps == BOTH_REPORTS


def test_a_stop_in_a_tls_handshake(tmp_path: Path) -> None:
    """F1, F7: the server sees the end of its connection; the next prompt meets a server that is gone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WITHIN_S)
        port = int(listener.getsockname()[1])
        with Conversation(f"https://127.0.0.1:{port}/v1", tmp_path, isolation="subreaper") as conversation:
            conversation.prompt(TEXT.prompt)
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(WITHIN_S)
                assert connection.recv(65_536)
                run = stopped_in_connecting(conversation)
                assert connection.recv(65_536) == b""
            listener.close()
            ended = conversation.ask(after_a_stop.NEXT)
            assert (ended.result["reason"], ended.result["kind"]) == ("failed", "network")
            conversation.leave()
    assert run.steps == BOTH_REPORTS


BOTH_REPORTS = [
    ("requested", None),
    ("acknowledged", "llm"),
    ("acknowledged", "tool"),
    ("done", "llm"),
    ("done", "tool"),
]


def stopped_in_connecting(conversation: Conversation) -> Run:
    for role in ROLES:
        conversation.ready(role)
    conversation.press()
    run = conversation.result()
    after_a_stop.nothing_goes_on(conversation, run)
    receipt = msgspec.convert(run.result["cancel"], CancelReceipt)
    assert (receipt.rung, receipt.killed, receipt.survivors, receipt.tools_ms) == ("ack", 0, 0, None)
    assert receipt.stream_ms is not None
    return run


def test_a_stop_while_the_workers_start(gateway: Gateway, tmp_path: Path) -> None:
    """F7, R89, R94: they are killed, since they cannot hear anything yet, and started anew for the next prompt."""
    with Conversation(gateway.url, tmp_path, isolation="subreaper", vice="starts_late", held=True) as conversation:
        conversation.prompt(TEXT.prompt)
        for _ in ROLES:
            conversation.in_place()
        assert len(conversation.named(*WORKER_NAMES)) == len(ROLES)
        conversation.press()
        run = conversation.result()
        assert conversation.named(*WORKER_NAMES) == []
        assert run.steps == [("requested", None), ("done", "llm"), ("done", "tool")]
        assert {one["rung"] for one in run.reports("done").values()} == {"worker_kill"}
        conversation.hold.unlink()
        assert after_a_stop.told_next(conversation, gateway, TEXT.prompt) == [BEFORE_TEXT]
        after_a_stop.leaves(conversation)


@pytest.mark.ci
def test_sigterm_while_the_workers_start_ends_all(gateway: Gateway, tmp_path: Path) -> None:
    """R89: `TERM while workers start`, which hold; it is not ignored, and nobody starts them anew."""
    with Conversation(gateway.url, tmp_path, isolation="subreaper", vice="starts_late", held=True) as conversation:
        conversation.prompt(TEXT.prompt)
        for _ in ROLES:
            conversation.in_place()
        conversation.running.process.terminate()
        ended = conversation.running.end()
        conversation.running.type_end()
        left = [one for one in survivors.descendants(os.getpid()) if one not in conversation.before]
    assert (ended.exit_code, left) == (143, [])
    states = [(event["role"], event["state"]) for event in ended.of("worker")]
    assert [states.count((role, "starting")) for role in ROLES] == [1, 1]


@pytest.mark.ci
def test_a_worker_that_dies_in_a_stop_is_not_replaced_while_its_child_stays(gateway: Gateway, tmp_path: Path) -> None:
    """R89: a leader that exits between SIGTERM and SIGKILL, with a child that ignores the first. Stopped means that the
    whole tree is gone, and nothing is started before that."""
    order = Order(calls=shell(vices.command("ignores_term")))
    with Conversation(gateway.url, tmp_path, isolation="subreaper") as conversation:
        conversation.begun()
        conversation.prompt(order.prompt)
        in_place(conversation, gateway)
        leader = conversation.ready("tool")
        conversation.press()
        conversation.until(lambda event: (event["type"], event.get("phase")) == ("cancel", "acknowledged"))
        os.kill(leader, signal.SIGKILL)
        run = conversation.result()
        after_a_stop.nothing_goes_on(conversation, run)
        states = [str(event["state"]) for event in run.of("worker") if event["role"] == "tool"]
        assert not {"starting", "ready"} & set(states), states
        assert run.reports("done")["tool"]["survivors"] == 0
        conversation.settled()
        assert leader not in conversation.alive("tool")
        after_a_stop.leaves(conversation)


WORKER_NAMES = ("haltline-llm", "haltline-tool")


@contextmanager
def filled(listener: socket.socket) -> Generator[None]:
    """Connections that nobody accepts, until the kernel answers no more."""
    fillers = [socket.socket() for _ in range(4)]
    try:
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield
    finally:
        for filler in fillers:
            filler.close()


@contextmanager
def serving(listener: socket.socket, folder: Path) -> Generator[Gateway]:
    """The gateway on a socket that was there before."""
    log = folder / "late.jsonl"
    command = [sys.executable, "-I", *PROGRAM, "--fd", str(listener.fileno()), str(log)]
    with subprocess.Popen(command, pass_fds=(listener.fileno(),)) as process:
        gateway = Gateway(process, f"http://127.0.0.1:{listener.getsockname()[1]}/v1", log)
        try:
            gateway.state()
            yield gateway
        finally:
            process.terminate()


def connecting_to(port: int) -> int:
    """Sockets of this machine that wait for an answer of that port (state 02, linux/tcp_states.h)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)


# One stop after the other


def test_the_late_answer_of_a_stopped_run_reaches_no_later_one(gateway: Gateway, tmp_path: Path) -> None:
    """R12, F3, F9: two stops with a prompt in between; each time the worker goes on where it was stopped."""
    second = Order(text="four five ", hangs=True)
    with Conversation(gateway.url, tmp_path, isolation="subreaper", vice="answers_late") as conversation:
        footing = conversation.begun()
        for order in (TEXT, second):
            conversation.prompt(order.prompt)
            text_shown(conversation, gateway)
            conversation.press()
            run = conversation.result()
            after_a_stop.nothing_goes_on(conversation, run)
            assert run.result["text"] == order.text
        assert after_a_stop.told_next(conversation, gateway, TEXT.prompt, footing) == [
            *IN_ITS_TEXT,
            Said("user", second.prompt),
            asked_for(text=second.text),
            IN_TEXT,
        ]
        after_a_stop.leaves(conversation)
        texts = [event["text"] for event in conversation.running.events if event["type"] == "message"]
        assert not any("too late" in str(text) for text in texts)


STOPS = 20
WARM = 5
"""Stops until caches are filled."""
GROWTH_KIB = 8 * 1024
"""A stop that leaked what it read, or a worker that kept what it stopped, would leave more in so many."""


@pytest.mark.ci
def test_many_stops_in_one_session_leave_nothing_behind(gateway: Gateway, tmp_path: Path) -> None:
    """R14: descriptors, socket files, connections and memory are where they were."""
    ways: tuple[tuple[Order, Reach], ...] = ((Order(hangs=True), responded), (TEXT, text_shown), (LONG, in_place))
    with Conversation(gateway.url, tmp_path, isolation="subreaper") as conversation:
        footing = conversation.begun()
        warm: dict[int, int] = {}
        for number in range(STOPS):
            order, reach = ways[number % len(ways)]
            responses = gateway.count("response", session=conversation.session_id)
            conversation.prompt(order.prompt)
            gateway.wait_for("response", session=conversation.session_id, count=responses + 1)
            reach(conversation, gateway)
            conversation.press()
            after_a_stop.nothing_goes_on(conversation, conversation.result())
            gateway.wait_until_closed(session=conversation.session_id)
            if number == WARM:
                warm = conversation.memory_kib()
        assert gateway.state().open_streams == 0
        assert conversation.footing() == footing
        grown = {pid: kib - warm[pid] for pid, kib in conversation.memory_kib().items()}
        assert max(grown.values()) < GROWTH_KIB, grown
        conversation.ask(after_a_stop.NEXT)
        assert puppet_gateway.broken_rule(gateway.requests(session=conversation.session_id)[-1].body) is None
        after_a_stop.leaves(conversation)


# Times that requirements state


def test_a_command_of_15_s_is_gone_a_second_after_the_key(gateway: Gateway, tmp_path: Path) -> None:
    """F6; and the first press shows `stopping` within 100 ms (R93)."""
    with Conversation(gateway.url, tmp_path, isolation="subreaper") as conversation:
        conversation.begun()
        conversation.prompt(LONG.prompt)
        in_place(conversation, gateway)
        pressed = time.monotonic()
        conversation.press()
        conversation.running.until_stderr("stopping")
        shown = time.monotonic()
        run = conversation.result()
        gone = time.monotonic()
        after_a_stop.nothing_goes_on(conversation, run)
        after_a_stop.quits(conversation)
    assert shown - pressed < 0.1 * SLACK
    assert gone - pressed < 1.0 * SLACK


def test_a_second_press_ends_what_ignores_the_first(gateway: Gateway, tmp_path: Path) -> None:
    """F10: 0.3 s after it."""
    with Conversation(gateway.url, tmp_path, isolation="subreaper") as conversation:
        conversation.begun()
        conversation.prompt(Order(calls=shell(vices.command("ignores_term"))).prompt)
        in_place(conversation, gateway)
        conversation.press()
        conversation.until(lambda event: (event.get("phase"), event.get("role")) == ("acknowledged", "tool"))
        pressed = time.monotonic()
        conversation.press()
        run = conversation.result()
        gone = time.monotonic()
        after_a_stop.nothing_goes_on(conversation, run)
        after_a_stop.quits(conversation)
    assert run.statuses == ["cancelled_killed"]
    assert gone - pressed < 0.3 * SLACK


def test_a_stop_in_a_retry_wait_is_over_at_once_and_nothing_is_asked_again(gateway: Gateway, tmp_path: Path) -> None:
    """R13, C7: 100 ms."""
    with Conversation(gateway.url, tmp_path, isolation="subreaper") as conversation:
        conversation.begun()
        conversation.prompt(Order(refused_for_s=60).prompt)
        waiting(conversation, gateway)
        pressed = time.monotonic()
        conversation.press()
        run = conversation.result()
        over = time.monotonic()
        after_a_stop.quits(conversation)
        assert len(gateway.requests(session=conversation.session_id)) == conversation.greetings + 1
    assert (run.result["attempts"], run.result["reason"]) == (1, "cancelled")
    assert over - pressed < 0.1 * SLACK


@pytest.mark.parametrize("rate", [pytest.param((), marks=pytest.mark.ci), ("50",)], ids=["all it can", "50 MB/s"])
def test_a_flood_of_output_holds_no_acknowledgement_up(gateway: Gateway, tmp_path: Path, rate: tuple[str, ...]) -> None:
    """R09: 200 ms."""
    with Conversation(gateway.url, tmp_path, isolation="subreaper") as conversation:
        conversation.begun()
        conversation.prompt(Order(calls=shell(vices.command("floods_output", *rate))).prompt)
        in_place(conversation, gateway)
        conversation.press()
        run = conversation.result()
        after_a_stop.nothing_goes_on(conversation, run)
        after_a_stop.quits(conversation)
    assert float(str(run.reports("acknowledged")["tool"]["ms"])) < 200 * SLACK
    assert run.reports("done")["tool"]["rung"] == "term"
    assert run.statuses == ["cancelled_killed"]


# No stop at all


@pytest.mark.ci
def test_workers_that_compute_for_5_s_are_not_killed(gateway: Gateway, tmp_path: Path) -> None:
    """R82, L5: busy is not dead, one with work due and one without; the call ends well, if late."""
    order = Order(calls=shell("sleep 0.5; echo ended"))
    with Conversation(gateway.url, tmp_path, isolation="subreaper", vice="spins") as conversation:
        conversation.begun()
        conversation.prompt(order.prompt)
        begun(1)(conversation, gateway)
        for role in ROLES:
            os.kill(conversation.ready(role), signal.SIGUSR1)
        run = conversation.result()
        assert (run.statuses, run.result["reason"], run.result["text"]) == (["done"], "completed", DONE)
        assert [event["state"] for event in run.of("worker") if event["state"] != "stalled"] == []
        after_a_stop.leaves(conversation)
