"""`haltline cancel`: the polite stop of a session's run, or of all, from any terminal.

It waits until the stop was seen and prints the receipt. Each tool gets its grace, however often this is asked: a second
`cancel` during the stop waits for the same end and makes nothing harder. The key in the session's own terminal does
(F10), and so does `haltline kill`. The session stays and takes the next prompt.
"""

import os
from typing import Final

import click

from haltline.cli.stops import Stops, stop_all, stop_these
from haltline.protocol import times
from haltline.protocol.client_messages import CancelRequest
from haltline.protocol.endpoints import Places
from haltline.protocol.errors import UsageProblem
from haltline.protocol.ids import ROLES, Role

EXAMPLES: Final = """\b
Examples:
  haltline ps
  haltline cancel 9f3a21bc
  haltline cancel 9f
  haltline cancel --all
"""


def _cancel(*, typed: tuple[str, ...], everything: bool, worker: Role | None, as_json: bool) -> int:
    if worker is not None:
        whom = typed[0] if typed else "ID"
        raise UsageProblem(f"a worker cannot be cancelled: `haltline kill {whom} --worker {worker}` ends it")
    places = Places(os.environ, os.getuid())
    stops = Stops("cancel", as_json=as_json)
    if bool(typed) == everything:
        raise UsageProblem("name one session, or --all (see `haltline ps`)")
    if everything:
        return stop_all(stops, places, CancelRequest(session_id=None, by="client"), within_s=times.stop_answered_s())
    return stop_these(stops, places, typed, None, within_s=times.stop_answered_s())


command = click.Command(
    "cancel",
    params=[
        click.Argument(["typed"], metavar="ID...", nargs=-1),
        click.Option(["--worker"], type=click.Choice(ROLES), hidden=True),  # `kill` has it: say so
        click.Option(["--all", "everything"], is_flag=True, help="Every session of every supervisor of this user."),
        click.Option(["--json", "as_json"], is_flag=True, help="The receipts as one array."),
    ],
    callback=_cancel,
    help="Stop what a session is doing, wait until that was seen, and print the receipt. ID: as `ps` shows it, or the "
    "beginning of it; also several. The session stays; stopping twice is no error.",
    epilog=EXAMPLES,
)
