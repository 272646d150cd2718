"""`haltline soak`: many sessions of one supervisor, stopped at random, their workers killed and stopped at random; what
is left of them is counted."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Final, get_args

import click
import msgspec

from haltline.cli import witness
from haltline.cli.gateway_process import GatewayProcess, serving
from haltline.cli.interrupts import Interrupted
from haltline.cli.loop import SupervisorLost
from haltline.cli.owned import Owned
from haltline.cli.soak_plan import Rates
from haltline.cli.soak_report import Report, last_lines, round_line
from haltline.cli.soak_run import RoundSeen, Soak
from haltline.cli.starting import start
from haltline.cli.version import VERSION
from haltline.cli.whole_numbers import WholeNumber
from haltline.protocol import exits, linux, processes, times
from haltline.protocol.errors import BrokenInvariant, UsageProblem
from haltline.protocol.kinds import IsolationWish

EXAMPLES: Final = """\b
Examples:
  haltline soak --sessions 50 --rounds 10
  haltline soak --sessions 20 --rounds 5 --seed 7 --kill-workers 30 --stop-workers 0
  haltline soak --sessions 100 --rounds 2 --json
"""


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    sessions: int
    rounds: int
    seed: int
    rates: Rates
    isolation: IsolationWish


def _soak(
    *,
    sessions: int,
    rounds: int,
    seed: int,
    kill_workers: int,
    stop_workers: int,
    isolation: IsolationWish,
    as_json: bool,
) -> int:
    owned = click.get_current_context().find_object(Owned)
    if owned is None:
        raise BrokenInvariant("soak was started without a process chain")
    if kill_workers + stop_workers > 100:
        raise UsageProblem(
            f"--kill-workers {kill_workers} and --stop-workers {stop_workers} are more than 100 % together: "
            "a session loses one worker at most"
        )
    asked = _Asked(
        sessions=sessions,
        rounds=rounds,
        seed=seed,
        rates=Rates(kill=kill_workers, stop=stop_workers),
        isolation=isolation,
    )
    linux.become_subreaper()  # what the guard would lose comes to us, and is counted
    owned.in_use = True
    seen: list[RoundSeen] = []
    trouble = ""

    def show(one: RoundSeen) -> None:
        seen.append(one)
        if not as_json:
            click.echo(round_line(one))

    try:
        with TemporaryDirectory(prefix="haltline-soak-") as workspace, serving() as gateway:
            try:
                _rounds(owned, workspace, gateway, asked, show)
            except SupervisorLost as lost:
                trouble = f"{_when(len(seen) + 1, of=rounds)} {lost}"
            left = _left(gateway)
    except Interrupted as interruption:
        return interruption.exit_code
    report = Report(
        sessions=sessions,
        seed=seed,
        rounds=tuple(seen),
        left=left,
        trouble=trouble,
    )
    click.echo(msgspec.json.encode(report.as_object()).decode() if as_json else last_lines(report))
    return exits.COMPLETED if report.holds else exits.OBJECTIVE_MISSED


def _rounds(
    owned: Owned, workspace: str, gateway: GatewayProcess, asked: _Asked, show: Callable[[RoundSeen], None]
) -> None:
    with ExitStack() as ends:
        ends.callback(_leave, owned)
        lane, supervisor_fd = start(owned, _interrupt)
        ends.callback(lane.close)
        ends.callback(os.close, supervisor_fd)
        soak = Soak(
            lane,
            owned.signals_fd,
            supervisor_fd,
            gateway_url=gateway.url,
            ours=_sessions(gateway.pid),
            cwd=workspace,
            seed=asked.seed,
            rates=asked.rates,
            isolation=asked.isolation,
            version=VERSION,
        )
        for number in range(1, asked.rounds + 1):
            show(soak.round(number, asked.sessions))
        soak.close()


def _when(number: int, *, of: int) -> str:
    """Of something that happened when `number` - 1 rounds were over."""
    return f"in round {number}" if number <= of else "after the last round"


def _leave(owned: Owned) -> None:
    """However it ends, nothing is to be left but what is then counted."""
    owned.leave()
    owned.wait_for_guard(times.client_lost_s() + times.guard_left_s())


def _left(gateway: GatewayProcess) -> int:
    """Processes that live when all is over, ours included."""
    return sum(process.pid != gateway.pid for process in witness.below(os.getpid()))


def _interrupt(number: int) -> None:
    raise Interrupted(number)


def _sessions(gateway_pid: int) -> frozenset[int]:
    """The kernel's sessions of this command, its guard and its supervisor, each the only child of the one before."""
    found = {os.getsid(0)}
    parent = os.getpid()
    while children := [pid for pid in processes.children(parent) if pid != gateway_pid]:
        (parent,) = children
        found.add(os.getsid(parent))
    return frozenset(found)


def _percent(name: str, default: int, words: str) -> click.Option:
    return click.Option(
        [name], type=WholeNumber(0, 100), metavar="PERCENT", default=default, show_default=True, help=words
    )


command = click.Command(
    "soak",
    params=[
        click.Option(
            ["--sessions"], type=WholeNumber(1, 1000), default=20, show_default=True, help="Beside each other."
        ),
        click.Option(
            ["--rounds"], type=WholeNumber(1, 10_000), default=5, show_default=True, help="One after the other."
        ),
        click.Option(
            ["--seed"], type=int, default=1, show_default=True, help="Decides what is done to which session, and when."
        ),
        _percent("--kill-workers", 10, "Of the sessions of a round: one of their workers gets SIGKILL."),
        _percent("--stop-workers", 10, "Of the sessions of a round: one gets SIGSTOP, and answers nothing."),
        click.Option(
            ["--isolation"],
            type=click.Choice(get_args(IsolationWish)),
            default="auto",
            show_default=True,
            help="How tool workers are kept apart, as in `run`.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="One object at the end."),
    ],
    callback=_soak,
    help="Run many sessions in one supervisor, stop them and hurt their workers at random, count what is left: "
    "processes, open streams, sessions without an end, ends that nothing explains. Exit 99 if there is any.",
    epilog=EXAMPLES,
)
