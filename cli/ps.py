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
_CWD_COLUMNS: Final = 40
_HEADINGS: Final = (
    "ID", "ROLE", "PID", "STATE", "TURN", "AGE", "CPU", "MEMORY", "HEARTBEAT", "TOOL", "MODEL", "CWD",
)  # fmt: skip


def _ps(*, as_json: bool, quiet: bool) -> int:
    places = Places(os.environ, os.getuid())
    doors = knock(places)
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
    elif rows:
        click.echo(table(rows))
    elif not (doors.refused or doors.silent or mute):  # else it is not known
        click.echo(f"haltline ps: nothing runs (looked in {places.runtime})", err=True)
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
        row.id if of_session else f"  {_short(row.id)}",
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


def _short(worker_id: str) -> str:
    """`llm-1` of `llm-abcdef01-1-355a240ca061`: the first that this session has had."""
    role, _, rest = worker_id.partition("-")
    return f"{role}-{rest.split('-')[1]}" if rest.count("-") > 1 else worker_id


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
