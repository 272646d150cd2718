"""`haltline ps`: the live sessions and workers of this user, whatever they are doing.

Every supervisor is asked, together and under one deadline; one that does not answer is named on stderr and
takes nothing from the others.
"""

import os
import time
from typing import Final

import click
import msgspec

from haltline.cli.door import Admitted, knock
from haltline.cli.lane import LANE, Lane, wait
from haltline.cli.printable import fit, one_line
from haltline.protocol import exits
from haltline.protocol.client_messages import Listing, ListRequest, PsRow, Welcome
from haltline.protocol.endpoints import Places

LISTED_WITHIN_S: Final = 2.0
_TOOL_COLUMNS: Final = 40
_HEADINGS: Final = ("ID", "ROLE", "PID", "STATE", "TURN", "AGE", "CPU", "MEMORY", "HEARTBEAT", "TOOL")


def _ps(*, as_json: bool, quiet: bool) -> int:
    doors = knock(Places(os.environ, os.getuid()))
    rows, mute = _rows(doors.admitted)
    for folder in (*doors.silent, *mute):
        click.echo(f"haltline ps: no answer from the supervisor in {folder} within {LISTED_WITHIN_S:g} s", err=True)
    for words in doors.refused:
        click.echo(f"haltline ps: {one_line(words)}", err=True)
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
    elif quiet:
        for row in rows:
            if row.role == "session":
                click.echo(row.id)
    else:
        click.echo(table(rows))
    return exits.NO_PERMISSION if doors.refused else exits.COMPLETED


def _rows(admitted: tuple[Admitted, ...]) -> tuple[list[PsRow], list[str]]:
    """The rows of all supervisors, and the folders of those that were mute."""
    rows: list[PsRow] = []
    mute: list[str] = []
    deadline = time.monotonic() + LISTED_WITHIN_S
    lanes = [(one, Lane(one.endpoints, one.token)) for one in admitted]
    for one, lane in lanes:
        listing = _listing(lane, deadline)
        lane.close()
        if listing is None:
            mute.append(one.endpoints.folder)
        else:
            rows += listing.rows
    return rows, mute


def _listing(lane: Lane, deadline: float) -> Listing | None:
    while LANE in wait(lane, reading=(), timeout_s=deadline - time.monotonic()):
        match lane.receive():
            case Welcome():
                lane.send(ListRequest())
            case Listing() as listing:
                return listing
            case _:
                continue
    return None


def table(rows: list[PsRow]) -> str:
    """Columns as wide as their widest cell; only the headings where nothing lives."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _cells(row: PsRow) -> tuple[str, ...]:
    heartbeat = "-" if row.heartbeat_age_s is None else f"{row.heartbeat_age_s:.1f} s"
    return (
        row.id,
        row.role,
        str(row.pid),
        row.state,
        str(row.turn),
        _age(row.age_s),
        f"{row.cpu_ms / 1000:.1f} s",
        f"{row.memory_kib / 1024:.1f} MiB",
        heartbeat,
        fit(one_line(row.tool), _TOOL_COLUMNS) if row.tool else "-",
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
    help="Live sessions and workers of this user.",
)
