"""`haltline selftest`: eleven checks of what the agent does when things go wrong, through real processes (M3).

Needs no key, no network, no terminal and no workspace. One check after the other, so that a process that is left
alive is known to be that check's. Exit 0 only if all hold.
"""

import signal
from types import FrameType
from typing import Final

import click
import msgspec

from haltline.cli.interrupts import Interrupted
from haltline.cli.selftest_checks import CHECKS
from haltline.cli.selftest_findings import Check, check, last_line, line, report, trouble
from haltline.cli.selftest_run import Stage, Trouble, stage
from haltline.protocol import exits, linux

EXAMPLES: Final = """\b
Examples:
  haltline selftest
  haltline selftest --json
  haltline selftest cancel keys
"""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _selftest(*, names: tuple[str, ...], as_json: bool) -> int:
    linux.become_subreaper()  # whatever a run leaves behind comes to us, and is counted
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        with stage() as opened:
            said = report(_look(opened, names or tuple(CHECKS), show=not as_json))
            opened.keep = said.passed < said.of
    except Interrupted as interruption:
        return interruption.exit_code
    except BrokenPipeError:  # nobody reads it any more
        return exits.INTERRUPTED
    if opened.keep:
        click.echo(f"haltline: the journal and the logs of the self-test are kept in {opened.folder}", err=True)
    click.echo(msgspec.json.encode(said).decode() if as_json else last_line(said))
    return exits.BUG if opened.keep else exits.COMPLETED


def _look(opened: Stage, names: tuple[str, ...], *, show: bool) -> list[Check]:
    width = max(map(len, names))
    checks: list[Check] = []
    for name in names:
        try:
            checks.append(check(name, CHECKS[name](opened)))
        except Trouble as words:
            checks.append(check(name, [trouble(str(words))]))
        if show:
            click.echo(line(checks[-1], width))
    return checks


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """The first signal ends the self-test; what it then does to leave nothing behind is not to be interrupted."""
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(number)


command = click.Command(
    "selftest",
    params=[
        click.Argument(["names"], metavar="[CHECK]...", nargs=-1, type=click.Choice(list(CHECKS))),
        click.Option(["--json", "as_json"], is_flag=True, help="One object with all checks."),
    ],
    callback=_selftest,
    help="Inject each fault in a process of its own and check what is done about it. Needs no key, no network. "
    f"Without CHECK all {len(CHECKS)}: {', '.join(CHECKS)}.",
    epilog=EXAMPLES,
)
