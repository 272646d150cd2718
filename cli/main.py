"""The `haltline` command: finds the sub-command, turns every way to fail into one line and an exit code.

Sub-commands are imported when they are called: `ps` must work while the machine is overloaded, so it loads
nothing of the others; `--help` loads none.
"""

import contextlib
import importlib
import os
import sys
from typing import Final

import click

from haltline.cli import printing
from haltline.cli.owned import Owned
from haltline.cli.version import VERSION
from haltline.protocol import exits
from haltline.protocol.endpoints import Places
from haltline.protocol.errors import BrokenInvariant, ConfigurationProblem, UsageProblem

_COMMANDS: Final = {
    "run": ("haltline.cli.run", "Do one task, as isolated processes."),
    "chat": ("haltline.cli.chat", "A conversation, one prompt per line."),
    "demo": ("haltline.cli.demo", "Repair a small repository, stop three runs, show what was proved. No key needed."),
    "selftest": ("haltline.cli.selftest", "Inject each fault in a process of its own; eleven checks."),
    "soak": ("haltline.cli.soak", "Many sessions at once, stopped and hurt at random; what is left is counted."),
    "gateway": ("haltline.cli.gateway_command", "The scripted, fault-injecting model server on 127.0.0.1."),
    "ps": ("haltline.cli.ps", "Live sessions and workers of this user."),
    "cancel": ("haltline.cli.cancel", "Stop what a session is doing, from any terminal."),
    "kill": ("haltline.cli.kill", "End a session or a worker at once, from any terminal."),
}

EXAMPLES: Final = """\b
Examples:
  haltline demo
  haltline run -m demo "say something"
  haltline run "mend the failing test" --timeout 15m
  haltline ps
  haltline cancel --all
  haltline selftest
"""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        known = _COMMANDS.get(cmd_name)
        if known is None:
            return None
        command: click.Command = importlib.import_module(known[0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_module, words) in _COMMANDS.items()])


def _version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"haltline {VERSION}")
        ctx.exit()


_haltline = _Commands(
    "haltline",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version.",
        )
    ],
    help="Runs agents as isolated processes that can always be stopped.",
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def cli(owned: Owned | None, argv: list[str]) -> int:
    """Run the command line `argv` (without the program's name; empty: help). `owned`: the process chain of `run` and
    `chat`. Returns the exit code; every problem has been said on stderr, in one line."""
    printing.take_stdout()
    try:
        with _haltline.make_context("haltline", argv or ["--help"], obj=owned) as context:
            code: object = _haltline.invoke(context)
    except click.exceptions.Exit as done:  # after --help and --version
        return done.exit_code
    except click.UsageError as problem:
        return _fail(_usage(problem, argv), exits.USAGE)
    except UsageProblem as problem:
        return _fail(str(problem), exits.USAGE)
    except ConfigurationProblem as problem:
        return _fail(str(problem), exits.CONFIGURATION)
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except printing.Unwritable as problem:
        return exits.INTERRUPTED if problem.reader_gone else _fail(str(problem), exits.CONFIGURATION)
    except Exception as bug:  # noqa: BLE001  (the edge: whatever it is, no user sees a traceback)
        return _fail(_log(bug), exits.BUG)
    return code if isinstance(code, int) else exits.COMPLETED


def _usage(problem: click.UsageError, argv: list[str]) -> str:
    command = f" {argv[0]}" if argv and argv[0] in _COMMANDS else ""
    return f"{problem.format_message()} (see `haltline{command} --help`)"


def _fail(words: str, code: int) -> int:
    with contextlib.suppress(OSError):  # stderr takes nothing either: the code says it
        os.write(2, f"haltline: {' '.join(words.split())}\n".encode("utf-8", "replace"))
    return code


def _log(bug: Exception) -> str:
    """Write the traceback where a report can be made from it. Returns one line for the user."""
    import time
    import traceback

    kind = "broken invariant" if isinstance(bug, BrokenInvariant) else type(bug).__name__
    folder = Places(os.environ, os.getuid()).logs
    path = f"{folder}/client-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(path, "x", encoding="utf-8", errors="replace") as log:
            log.write(f"haltline {VERSION}, python {sys.version}\n{''.join(traceback.format_exception(bug))}")
    except OSError as error:
        return f"a bug of haltline's own ({kind}: {bug}); its log could not be written to {folder}: {error.strerror}"
    return f"a bug of haltline's own ({kind}: {bug}); please report it with {path}"
