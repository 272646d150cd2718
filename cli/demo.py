"""`haltline demo`: an agent repairs a small real repository, then three runs are stopped, and the proof is shown.

Everything is real but the model: processes, requests, tools, tests. The repository's tests are run by this command
itself, before and after, and the stops are watched from outside; nothing that the agent says is taken for it. Exit 0
only if every line of the receipt holds.

The repository and the server's log lie in a temporary folder, which is removed on every way out but two: a receipt
that does not hold is evidence, and `--keep` asks for the repository. Both name the folder.
"""

import os
import shlex
import shutil
import signal
import tempfile
from types import FrameType
from typing import NoReturn

import click

from haltline.cli import setting_up
from haltline.cli.demo_receipt import Part, receipt
from haltline.cli.demo_repair import repair_checks, run_tests
from haltline.cli.demo_run import run_and_show
from haltline.cli.demo_stopping import Stops
from haltline.cli.gateway_process import serving
from haltline.cli.interrupts import STOPPING, Interrupted, undisturbed
from haltline.cli.lane import wait
from haltline.cli.outlet import Outlet
from haltline.cli.own_command import as_typed
from haltline.cli.pieces import note
from haltline.gateway import demo as repository
from haltline.protocol import exits, linux
from haltline.protocol.errors import ConfigurationProblem


def _demo(*, keep: bool) -> int:
    linux.become_subreaper()  # whatever a run left behind would come to us, and is counted
    for number in STOPPING:
        signal.signal(number, _interrupt)
    outlet = setting_up.outlet()
    place = Place()
    kept = False
    try:
        place.make()
        code, kept = _shown(place, outlet, keep=keep)
        return code
    except Interrupted as interruption:
        kept = keep
        _say(outlet, f"stopped; the repository is {f'kept in {place.repository}' if keep else 'removed'}")
        return interruption.exit_code
    finally:
        if not kept:
            place.remove()


class Place:
    """A temporary folder with the repository and the server's log in it."""

    def __init__(self) -> None:
        self.folder = ""
        """Empty: not made."""

    @property
    def repository(self) -> str:
        return os.path.join(self.folder, "repository")

    @property
    def log(self) -> str:
        return os.path.join(self.folder, "server.log")

    def make(self) -> None:
        """Raises ConfigurationProblem."""
        try:
            with undisturbed():
                self.folder = tempfile.mkdtemp(prefix="haltline-demo-")
            repository.copy_to(self.repository)
        except OSError as error:
            raise ConfigurationProblem(
                f"no room for the demo repository: {error}; set TMPDIR to a writable folder"
            ) from error

    def make_anew(self) -> None:
        """As it was before the repair, without a log."""
        with undisturbed():
            shutil.rmtree(self.repository)
            repository.copy_to(self.repository)
            os.unlink(self.log)

    def remove(self) -> None:
        with undisturbed():
            if self.folder:
                shutil.rmtree(self.folder)


def _shown(place: Place, outlet: Outlet, *, keep: bool) -> tuple[int, bool]:
    """The exit code, and whether the folder stays."""
    repaired = _repair(place.repository, outlet)
    if outlet.reader_lost:
        raise Interrupted(signal.SIGPIPE)  # for whom should it go on?
    with serving(place.log) as gateway:
        parts = (repaired, *Stops(gateway, place.repository, outlet).all())
    _flush(outlet)
    click.echo(receipt(parts))
    if not all(check.holds for part in parts for check in part.checks):
        _say(outlet, f"the repository and the server's log are kept in {place.folder}")
        return exits.BUG, True
    if not keep:
        _say(outlet, f"the repository is removed; `{as_typed()} demo --keep` keeps one, to try approvals in")
        return exits.COMPLETED, False
    place.make_anew()
    _say(
        outlet,
        f"the repository is in {place.repository}, with its test failing again; to be asked before each step:\n"
        f"  {shlex.join([as_typed(), 'run', *_arguments(place.repository)])}",
    )
    return exits.COMPLETED, True


def _arguments(folder: str) -> list[str]:
    return ["-m", "demo/repair", "-C", folder, repository.PROMPT]


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


def _repair(folder: str, outlet: Outlet) -> Part:
    before = run_tests(folder)
    outlet.put(
        (
            note(f"a repository with {before.ran} tests, {'all green' if before.green else 'not all green'}: {folder}"),
            note(shlex.join([as_typed(), "run", "-y", *_arguments(folder)])),
        )
    )
    seen = run_and_show(["-y", *_arguments(folder)], setting_up.view("text", os.environ), outlet)
    return Part("a repository, repaired", repair_checks(before, seen, run_tests(folder)))


def _say(outlet: Outlet, words: str) -> None:
    outlet.put((note(words),))
    _flush(outlet)


def _flush(outlet: Outlet) -> None:
    while outlet.waiting:
        outlet.write(wait(None, reading=(), writing=outlet.waiting, timeout_s=None))


command = click.Command(
    "demo",
    params=[click.Option(["--keep"], is_flag=True, help="Keep the repository, and say how to run it again.")],
    callback=_demo,
    help="Repair a small repository on the embedded model server, stop three runs, and show what was proved. "
    "Needs no key, no network.",
)
