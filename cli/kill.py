"""`haltline kill`: the hard stop, of a session, of one worker, or of everything, from any terminal.

No grace, no acknowledgement: the workers and everything under them are killed, the receipt comes once they were seen
gone. A session that was killed takes no further prompt, its command ends with 137. A worker that was killed is
replaced, and its session goes on. A supervisor that does not answer is ended with all that it serves.
"""

import os
from typing import Final

import click

from haltline.cli.stops import Stops, stop_all, stop_these
from haltline.protocol import times
from haltline.protocol.client_messages import KillRequest
from haltline.protocol.endpoints import Places
from haltline.protocol.errors import UsageProblem
from haltline.protocol.ids import ROLES, Role

EXAMPLES: Final = """\b
Examples:
  haltline kill 9f3a21bc
  haltline kill 9f3a21bc/tool
  haltline kill --all
"""


def _kill(*, typed: tuple[str, ...], everything: bool, worker: Role | None, as_json: bool) -> int:
    places = Places(os.environ, os.getuid())
    stops = Stops("kill", as_json=as_json)
    if bool(typed) == everything:
        raise UsageProblem("name one session or worker, or --all (see `haltline ps`)")
    if typed:
        return stop_these(stops, places, typed, worker, within_s=times.kill_answered_s())
    if worker is not None:
        raise UsageProblem("--worker is for one session: name it")
    return stop_all(stops, places, KillRequest(session_id=None), within_s=times.kill_answered_s())


command = click.Command(
    "kill",
    params=[
        click.Argument(["typed"], metavar="ID...", nargs=-1),
        click.Option(
            ["--worker"], type=click.Choice(ROLES), help="This worker of the session alone; a new one takes its place."
        ),
        click.Option(["--all", "everything"], is_flag=True, help="Every session of every supervisor of this user."),
        click.Option(["--json", "as_json"], is_flag=True, help="The receipts as one array."),
    ],
    callback=_kill,
    help="End a session, or one worker of it, at once and with everything under it, and print the receipt. ID: of a "
    "session or a worker, as `ps` shows it, or the beginning of it; also several. Works also where nothing "
    "answers any more.",
    epilog=EXAMPLES,
)
