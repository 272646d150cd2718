"""`haltline soak`: many sessions of one supervisor, stopped at random; what is left of them is counted."""

import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

import click
import msgspec

from haltline.cli.interrupts import Interrupted
from haltline.cli.own_command import own_command
from haltline.cli.owned import Owned
from haltline.cli.soak_run import RoundSeen, Soak
from haltline.cli.starting import start
from haltline.cli.version import VERSION
from haltline.cli.whole_numbers import WholeNumber
from haltline.protocol import exits, processes, times
from haltline.protocol.errors import BrokenInvariant, ConfigurationProblem

EXAMPLES: Final = """\b
Examples:
  haltline soak --sessions 20 --rounds 5 --seed 1
  haltline soak --sessions 100 --rounds 2 --json
"""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    sessions: int
    seed: int
    rounds: tuple[RoundSeen, ...]
    survivors: int
    open_streams: int
    stuck: int

    @property
    def holds(self) -> bool:
        return not (self.survivors or self.open_streams or self.stuck)


def _soak(*, sessions: int, rounds: int, seed: int, as_json: bool) -> int:
    owned = click.get_current_context().find_object(Owned)
    if owned is None:
        raise BrokenInvariant("soak was started without a process chain")
    owned.in_use = True
    try:
        with TemporaryDirectory(prefix="haltline-soak-") as workspace, _gateway() as (url, gateway_pid):
            seen = _rounds(owned, workspace, url, gateway_pid, sessions, rounds, seed, show=not as_json)
    except Interrupted as interruption:
        return interruption.exit_code
    report = Report(
        sessions=sessions,
        seed=seed,
        rounds=tuple(seen),
        survivors=sum(one.survivors for one in seen),
        open_streams=sum(one.open_streams for one in seen),
        stuck=sum(one.stuck for one in seen),
    )
    click.echo(msgspec.json.encode(report).decode() if as_json else _last_line(report))
    return exits.COMPLETED if report.holds else exits.OBJECTIVE_MISSED


def _rounds(
    owned: Owned, workspace: str, url: str, gateway_pid: int, sessions: int, rounds: int, seed: int, *, show: bool
) -> list[RoundSeen]:
    lane, supervisor_fd = start(owned, _interrupt)
    os.close(supervisor_fd)
    soak = Soak(
        lane,
        owned.signals_fd,
        gateway_url=url,
        ours=_sessions(gateway_pid),
        cwd=workspace,
        seed=seed,
        version=VERSION,
    )
    seen: list[RoundSeen] = []
    for number in range(1, rounds + 1):
        seen.append(soak.round(number, sessions))
        if show:
            click.echo(_line(seen[-1]))
    soak.close()
    lane.close()
    owned.wait_for_guard(times.guard_left_s())
    return seen


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


@contextmanager
def _gateway() -> Generator[tuple[str, int]]:
    """The scripted gateway in a process of its own: base URL and pid."""
    process = subprocess.Popen(
        own_command("gateway"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, process_group=0
    )
    try:
        assert process.stdout is not None, "it was asked for"
        said = process.stdout.readline().decode("utf-8", "replace").split()
        if said[:2] != ["listening", "on"]:
            raise ConfigurationProblem("the scripted gateway did not start")
        yield said[2], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def _line(seen: RoundSeen) -> str:
    ranked = sorted(seen.stop_ms)
    worst = f"stops p50 {ranked[len(ranked) // 2]:.0f} ms, max {ranked[-1]:.0f} ms" if ranked else "nothing stopped"
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(seen.results.items()))
    return (
        f"round {seen.number}: {reasons}; {worst}; escalated {seen.escalated}; "
        f"survivors {seen.survivors}, open streams {seen.open_streams}, stuck {seen.stuck}"
    )


def _last_line(report: Report) -> str:
    mark = "ok" if report.holds else "MISSED"
    return (
        f"{mark}: {report.sessions} sessions, {len(report.rounds)} rounds, seed {report.seed}: "
        f"survivors {report.survivors}, open streams {report.open_streams}, stuck {report.stuck}"
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
            ["--seed"], type=int, default=1, show_default=True, help="Decides who does what and is stopped when."
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="One object at the end."),
    ],
    callback=_soak,
    help="Run many sessions in one supervisor, stop them at random, count what is left. Exit 99 if anything is.",
    epilog=EXAMPLES,
)
