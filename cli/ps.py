"""`haltline ps`: the live sessions and workers of this user, whatever they are doing.

Every supervisor is asked at once; one that does not answer is named on stderr and takes nothing from the others.
"""

import os
from typing import Final

import click
import msgspec

from haltline.cli import targets
from haltline.cli.printable import fit, one_line
from haltline.cli.stops import no_answer
from haltline.cli.supervisors import ANSWER_S, Ended, Silent, Supervisors, looked_in
from haltline.protocol import exits
from haltline.protocol.client_messages import Listing, ListRequest, PsRow, Receipt, Refused
from haltline.protocol.door import TurnedAway
from haltline.protocol.endpoints import Places

_TOOL_COLUMNS: Final = 40
_CWD_COLUMNS: Final = 40
_HEADINGS: Final = (
    "ID", "ROLE", "PID", "STATE", "TURN", "AGE", "CPU", "MEMORY", "HEARTBEAT", "TOOL", "MODEL", "CWD",
)  # fmt: skip


def _ps(*, as_json: bool, quiet: bool) -> int:
    places = Places(os.environ, os.getuid())
    rows: list[PsRow] = []
    problems: list[str] = []
    code = exits.COMPLETED
    with Supervisors(places, ListRequest(), within_s=ANSWER_S) as supervisors:
        for peer, happening in supervisors.happenings():
            peer.waiting = False
            match happening:
                case Listing():
                    rows += happening.rows
                case Silent():
                    problems.append(no_answer(peer, happening))
                case TurnedAway(words=words) | Refused(words=words):
                    problems.append(words)
                    code = exits.NO_PERMISSION
                case Ended() | Receipt():
                    continue
    for words in problems:
        click.echo(f"haltline ps: {one_line(words)}", err=True)
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
    elif quiet:
        for row in rows:
            if row.role == "session":
                click.echo(row.id)
    elif rows:
        click.echo(table(rows))
    elif not problems:  # else it is not known
        click.echo(f"haltline ps: nothing runs (looked in {looked_in(places)})", err=True)
    return code


def table(rows: list[PsRow]) -> str:
    """Columns as wide as their widest cell. Workers stand below their session."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _cells(row: PsRow) -> tuple[str, ...]:
    heartbeat = "-" if row.heartbeat_age_s is None else f"{row.heartbeat_age_s:.1f} s"
    of_session = row.role == "session"
    return (
        row.id if of_session else f"  {targets.short(row.id)}",
        row.role,
        str(row.pid),
        row.state,
        str(row.turn) if of_session else "-",
        _age(row.age_s),
        f"{row.cpu_ms / 1000:.1f} s",
        f"{row.memory_kib / 1024:.1f} MiB",
        heartbeat,
        fit(one_line(row.tool), _TOOL_COLUMNS) if row.tool else "-",
        one_line(row.model) or "-",
        fit(one_line(row.cwd), _CWD_COLUMNS) or "-",
    )


def _age(age_s: float) -> str:
    minutes, seconds = divmod(int(age_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


command = click.Command(
    "ps",
    params=[
        click.Option(["--json", "as_json"], is_flag=True, help="One array."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Session ids alone."),
    ],
    callback=_ps,
    help="Live sessions and workers of this user. The pid of a session is its supervisor's.",
)
