"""`haltline ps`: the live sessions and workers of this user, whatever they are doing.

Every supervisor is asked at once; one that does not answer is named on stderr and takes nothing from the others.
"""

import os
from typing import Final

import click
import msgspec

from haltline.cli import targets, tool_words
from haltline.cli.printable import cells, fit, one_line
from haltline.cli.stops import no_answer
from haltline.cli.supervisors import ANSWER_S, Ended, Silent, Supervisors, looked_in
from haltline.protocol import exits
from haltline.protocol.client_messages import Listing, ListRequest, PsRow, Receipt, Refused
from haltline.protocol.door import TurnedAway
from haltline.protocol.endpoints import Places

_TOOL_COLUMNS: Final = 40
_CWD_COLUMNS: Final = 40
_NARROW_TOOL_COLUMNS: Final = 16
"""On a terminal, before another column goes."""
_GAP: Final = "  "
_HEADINGS: Final = (
    "ID", "ROLE", "PID", "STATE", "TURN", "AGE", "CPU", "MEMORY", "HEARTBEAT", "TOOL", "MODEL", "CWD",
)  # fmt: skip
_GO_FIRST: Final = ("CWD", "MODEL", "HEARTBEAT", "MEMORY", "CPU", "TURN", "ROLE", "PID")
"""Where a terminal is too narrow: what tells least about which session to stop goes first. The role is in the id."""


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
                case Ended(sessions=sessions) if sessions:
                    problems.append(
                        f"the supervisor in {peer.folder} has ended (session {', '.join(sessions)}); "
                        "its guard stops what is left"
                    )
                case Ended() | Receipt():
                    continue
    rows = by_age(rows)
    for words in problems:
        click.echo(f"haltline ps: {one_line(words)}", err=True)
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
    elif quiet:
        for row in rows:
            if row.role == "session":
                click.echo(row.id)
    elif rows:
        click.echo(table(rows, columns=_columns()))
    elif not problems:  # else it is not known
        click.echo(f"haltline ps: nothing runs (looked in {looked_in(places)})", err=True)
    return code


def by_age(rows: list[PsRow]) -> list[PsRow]:
    """Sessions, the oldest first, each with its workers behind it."""
    ages = {row.session_id: row.age_s for row in rows if row.role == "session"}
    return sorted(rows, key=lambda row: (-ages.get(row.session_id, 0.0), row.session_id, row.role != "session"))


def table(rows: list[PsRow], *, columns: int | None) -> str:
    """Columns as wide as their widest cell. `columns`: of the terminal that it has to fit, None: there is none."""
    lines = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = {name: max(cells(line[index]) for line in lines) for index, name in enumerate(_HEADINGS)}
    if columns is not None:
        _narrow(widths, columns)
    shown = [(index, widths[name]) for index, name in enumerate(_HEADINGS) if name in widths]
    return "\n".join(_line([(line[index], width) for index, width in shown], columns) for line in lines)


def _narrow(widths: dict[str, int], columns: int) -> None:
    """Drop and shorten until it fits, or nothing is left that could go."""

    def over() -> int:
        return sum(widths.values()) + len(_GAP) * (len(widths) - 1) - columns

    natural = widths["TOOL"]
    widths["TOOL"] = min(natural, _NARROW_TOOL_COLUMNS)
    for name in _GO_FIRST:
        if over() <= 0:
            break
        del widths[name]
    widths["TOOL"] = min(natural, max(widths["TOOL"], widths["TOOL"] - over()))


def _line(shown: list[tuple[str, int]], columns: int | None) -> str:
    line = _GAP.join(_padded(fit(cell, width), width) for cell, width in shown).rstrip()
    return line if columns is None else fit(line, columns)


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - cells(cell))


def _columns() -> int | None:
    try:
        return os.get_terminal_size(1).columns or None
    except OSError:  # not a terminal
        return None


def _cells(row: PsRow) -> tuple[str, ...]:
    heartbeat = "-" if row.heartbeat_age_s is None else f"{row.heartbeat_age_s:.1f} s"
    of_session = row.role == "session"
    return (
        targets.shown(row),
        row.role,
        str(row.pid),
        row.state,
        str(row.turn) if of_session else "-",
        _age(row.age_s),
        f"{row.cpu_ms / 1000:.1f} s",
        f"{row.memory_kib / 1024:.1f} MiB",
        heartbeat,
        fit(tool_words.of_listing(row.tool), _TOOL_COLUMNS) if row.tool else "-",
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
    help="Live sessions and workers of this user, the oldest session first. An id may be given to `cancel` and `kill` "
    "as it stands here, or its beginning. The pid of a session is its supervisor's; its CPU time and memory are those "
    "of its workers, without the supervisor and without tools.",
)
