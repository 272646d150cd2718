"""`haltline chat`: a conversation, one prompt per line of standard input.

1. A cancel ends a run, never the session: the next line is taken at once (F9). SIGTERM and SIGHUP end both.
2. At the prompt Ctrl+C drops what was typed; three in a row leave, as they do during a run.
3. The exit code is the last run's, as a shell's is its last command's; 0 where there was none. A session that was ended
   while it waited for a prompt (`haltline kill`, or its supervisor is gone) says so by its own.
"""

import os
import signal

import click
import msgspec

from haltline.cli import setting_up
from haltline.cli.client import Client
from haltline.cli.interrupts import Interrupted
from haltline.cli.loop import SupervisorLost
from haltline.cli.options import SessionOptions, session_params
from haltline.cli.owning import own_chain, with_client
from haltline.cli.session_settings import Decided
from haltline.protocol import exits
from haltline.protocol.endpoints import Places

PRESSES_TO_LEAVE = 3


def _chat(**given: object) -> int:
    options = msgspec.convert(given, SessionOptions)
    owned = own_chain()
    decided = setting_up.decide(options, os.environ)
    return with_client(owned, options.format, lambda client: _conversation(client, decided))


def _conversation(client: Client, decided: Decided) -> int:
    try:
        client.start()
        client.open(decided, journal=Places(os.environ, os.getuid()).journal)
        code = _rounds(client, prompt="> " if decided.settings.interactive else "")
    except Interrupted as interruption:
        code = interruption.exit_code
    except SupervisorLost as lost:
        code = client.conclude_lost(lost).exit_code
    client.close()
    return code


def _rounds(client: Client, *, prompt: str) -> int:
    code = exits.COMPLETED
    presses = 0
    if prompt:
        client.say(
            "one prompt per line; Esc or Ctrl+C stops the run (again: without grace, a third time: leaves), "
            "Ctrl+D leaves"
        )
    while not client.ended:
        try:
            line = client.read_line(prompt=prompt)
        except Interrupted as interruption:
            presses += 1
            if interruption.number != signal.SIGINT or not prompt or presses >= PRESSES_TO_LEAVE:
                raise
            client.say("\nCtrl+D leaves")
            continue
        presses = 0
        if line is None:
            if prompt:
                client.say("")  # Ctrl+D left the cursor behind the prompt
            break
        if line.strip():
            code = client.run(line).exit_code
            if code == exits.TERMINATED:
                break
    return code if client.ended_with is None else client.ended_with


command = click.Command(
    "chat",
    params=session_params(),
    callback=_chat,
    help="A conversation: one prompt per line. Esc or Ctrl+C stops a run, Ctrl+D leaves.",
)
