"""What `run` and `chat` have in common: a process chain of their own, and one client on it."""

import os
from collections.abc import Callable

import click

from haltline.cli import setting_up
from haltline.cli.client import Client, Left
from haltline.cli.options import Output
from haltline.cli.owned import Owned
from haltline.protocol import exits
from haltline.protocol.errors import BrokenInvariant, ConfigurationProblem


def own_chain() -> Owned:
    """The chain that the launcher started for this command."""
    owned = click.get_current_context().find_object(Owned)
    if owned is None:
        raise BrokenInvariant("the launcher started no process chain for this command")
    return owned


def with_client(owned: Owned, output: Output, body: Callable[[Client], int]) -> int:
    """Run `body` and let go of the supervisor, whatever happens. Returns the exit code: 0 only if all was written.
    Raises ConfigurationProblem, when nothing is left of what this command started."""
    client = Client(owned, view=setting_up.view(output, os.environ), outlet=setting_up.outlet())
    try:
        code = _closed_also_when_refused(client, body)
    except Left as left:
        return left.exit_code
    finally:
        client.hang_up()
    return exits.INTERRUPTED if code == exits.COMPLETED and client.output_lost else code


def _closed_also_when_refused(client: Client, body: Callable[[Client], int]) -> int:
    try:
        return body(client)
    except ConfigurationProblem:  # the supervisor could not start, or did not open the session
        client.close()
        raise
