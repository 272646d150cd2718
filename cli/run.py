"""`haltline run`: one prompt, one run, its exit code."""

import os

import click
import msgspec

from haltline.cli import prompt_text, setting_up
from haltline.cli.client import Client
from haltline.cli.interrupts import Interrupted
from haltline.cli.loop import SupervisorLost
from haltline.cli.options import SessionOptions, session_params
from haltline.cli.owned import Owned
from haltline.cli.owning import own_chain, with_client
from haltline.cli.session_settings import Decided
from haltline.protocol import exits
from haltline.protocol.endpoints import Places

EXAMPLES = """\b
Examples:
  haltline run "mend the failing test"
  haltline run -m demo/repair -y "mend the failing test"
  git diff | haltline run "review this" -o json
  haltline run - < task.txt
"""


class RunOptions(SessionOptions, frozen=True, kw_only=True):
    prompt: str | None = None


def _run(**given: object) -> int:
    options = msgspec.convert(given, RunOptions)
    owned = own_chain()
    decided = setting_up.decide(options, os.environ)
    try:
        prompt = _prompt(options.prompt, owned)
    except Interrupted as signal:
        early = signal.exit_code
        return with_client(owned, options.format, lambda client: stopped_before(client, early))
    journal = Places(os.environ, os.getuid()).journal
    return with_client(owned, options.format, lambda client: one_run(client, decided, prompt, journal=journal))


def _prompt(argument: str | None, owned: Owned) -> str:
    piped = ""
    if argument == "-" or prompt_text.is_piped(0):
        piped = prompt_text.read_all(0, owned.signals_fd)
    return prompt_text.compose(prompt_text.Given(argument, piped))


def one_run(client: Client, decided: Decided, prompt: str, *, journal: str) -> int:
    """From the hello to the exit code. Raises Left, and ConfigurationProblem where the session cannot be opened."""
    try:
        client.start()
    except Interrupted as signal:
        return stopped_before(client, signal.exit_code)
    except SupervisorLost as lost:
        result = client.conclude_lost(lost)
    else:
        result = client.run_once(decided, prompt, journal=journal)
    client.close()
    return result.exit_code


def stopped_before(client: Client, exit_code: int) -> int:
    """A signal came before there was a run: the last line says so all the same."""
    client.conclude("cancelled", "stopped before the run began", terminated=exit_code == exits.TERMINATED)
    client.close()
    return exit_code


command = click.Command(
    "run",
    params=[click.Argument(["prompt"], required=False), *session_params()],
    callback=_run,
    help="Do one task. PROMPT `-` reads it from standard input; piped input is added to a given one.",
    epilog=EXAMPLES,
)
