"""Makes the checkout's private .venv, then becomes `.venv/bin/python ARGS`. Run through bin/setup.

1. A level (runtime, dev) is ready when .venv/ready-LEVEL holds this venv's path and the digest of what it was made
   from. The stamp is removed before anything is touched and written last, so a set-up that was interrupted anywhere
   is not ready, and whatever it left is removed and made again.
2. A stamp gets the time of its newest input plus a little, so that bin/haltline can see by `-nt` alone that nothing
   has changed since.
3. One at a time: an flock on .cache/set-up.lock, which every child holds as its standard input. It ends with the last
   of them, also when this process is killed while one of them still writes.
4. Nothing is printed to standard output and nothing read from standard input: both belong to the program that follows.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # during the imports Ctrl+C ends this without a traceback

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(os.path.realpath(__file__)).parent.parent
VENV = ROOT / ".venv"
CACHE = ROOT / ".cache"
CONSTRAINTS = ROOT / "constraints.txt"
PYPROJECT = ROOT / "pyproject.toml"
LEVELS = ("runtime", "dev")

MADE_BY = "made-by-haltline"
"""File in .venv that says it is ours to remove."""

FORMAT = "2"
"""Raised when this file makes something else of the same inputs, so that each venv is brought up to date."""

NEWER_NS = 1_000_000
"""How much newer than its inputs a stamp is: 1 ms, more than any file system rounds."""

CONFIGURATION = 78
"""Exit code for what the user can put right (interface.md)."""

PR_SET_PDEATHSIG = 1
"""prctl number, linux/prctl.h."""

REDIRECTIONS = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_DRY_RUN", "PIP_REQUIRE_VIRTUALENV")
"""Settings of the user's that would send packages elsewhere than into the venv. All others count."""

MOCK = "llmock"
"""An independent mock of model servers. It registers a pytest plugin, so it lives in a venv of its own."""

MOCK_VENV = CACHE / f"{MOCK}-venv"

SPECIMENS = ("cachetools", "inflection", "unidiff")
"""Small distributions whose source archives bring their tests: real code for an agent to mend."""


DISK_FULL = f"the disk is full; {ROOT} needs about 30 MB to run and 500 MB for bin/test"

NOT_FOUND = re.compile(r"ERROR: (?:No matching distribution found for|Cannot install) (.+?)(?: because|\n|$)")
"""pip's words, with the requirement, when the index did not have it or was not reached. The pins fit together, so what
it calls a conflict is a version that it did not find."""


class SetUpError(Exception):
    """What the user reads: one line that says what failed, where, and what to do."""


@dataclass(frozen=True)
class Recipe:
    """What a level is made from: requirements as pip takes them, and the digest over all that matters."""

    level: str
    requirements: tuple[str, ...]
    digest: str
    newest_ns: int

    @property
    def stamp_ns(self) -> int:
        """Rule 2."""
        return self.newest_ns + NEWER_NS


def main(arguments: list[str]) -> NoReturn:
    level = arguments[0] if arguments else "runtime"
    if level not in LEVELS:
        print(f"haltline: set-up knows the levels {' and '.join(LEVELS)}, not {level!r}", file=sys.stderr)
        sys.exit(2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        make_ready(level)
    except SetUpError as error:
        print(f"haltline: set-up failed: {error}", file=sys.stderr)
        sys.exit(CONFIGURATION)
    except OSError as error:
        words = DISK_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"{error.filename}: {error.strerror}"
        print(f"haltline: set-up failed: {words}", file=sys.stderr)
        sys.exit(CONFIGURATION)
    except KeyboardInterrupt:
        print("\nhaltline: set-up was interrupted; the next start makes it anew", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    if len(arguments) < 2:
        sys.exit(0)
    python = str(VENV / "bin" / "python")
    os.execv(python, [python, *arguments[1:]])


def _end(number: int, _frame: object) -> NoReturn:
    """Unwinds, so that the child which is running is ended too."""
    sys.exit(128 + number)


def make_ready(level: str) -> None:
    """Returns when the level is ready. Raises SetUpError."""
    recipe = read_recipe(level)
    if is_ready(recipe):
        _refresh(recipe)
        return
    try:
        CACHE.mkdir(exist_ok=True)
        lock = os.open(CACHE / "set-up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise SetUpError(
            f"{ROOT} cannot be written to ({error.strerror}); use a copy in a folder of your own, "
            "or `pip install` it into a venv of your own"
        ) from error
    try:
        _take(lock)
        if not is_ready(recipe):
            _make(recipe, lock)
    finally:
        os.close(lock)


def read_recipe(level: str) -> Recipe:
    """What pyproject.toml and constraints.txt ask for now."""
    newest_ns = max(path.stat().st_mtime_ns for path in (PYPROJECT, CONSTRAINTS))
    pins = CONSTRAINTS.read_text()
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    requirements = list(project["dependencies"])
    if level == "dev":
        requirements += project["optional-dependencies"]["dev"]
    digest = hashlib.sha256("\n".join([FORMAT, *requirements, pins]).encode()).hexdigest()
    return Recipe(level, tuple(requirements), digest, newest_ns)


def is_ready(recipe: Recipe) -> bool:
    """Rule 1. False also for a venv that was moved or copied here, or whose Python is gone."""
    try:
        made = _stamp(recipe.level).read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (
        made == [str(VENV), recipe.digest]
        and (VENV / "bin" / "python").exists()
        and (recipe.level == "runtime" or (_has_mock() and all(_specimen(name).exists() for name in SPECIMENS)))
    )


def _stamp(level: str) -> Path:
    return VENV / f"ready-{level}"


def _refresh(recipe: Recipe) -> None:
    """Rule 2: what it was made from is the same, though its files are newer."""
    if _stamp(recipe.level).stat().st_mtime_ns > recipe.newest_ns:
        return
    try:
        os.utime(_stamp(recipe.level), ns=(recipe.stamp_ns, recipe.stamp_ns))
    except OSError as error:
        # It is ready all the same; only the next start looks again.
        say(f"{VENV} is ready but cannot be marked so ({error.strerror})")


def _take(lock: int) -> None:
    """Rule 3."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another set-up of this checkout is running; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _make(recipe: Recipe, lock: int) -> None:
    _refuse_foreign_venv()
    complete = any(_belongs(level) for level in LEVELS)
    _remove_stamps()
    if not complete:
        _remove_venv()
        VENV.mkdir()
        (VENV / MADE_BY).touch()
        say(f"creating .venv (once, about {'20 s' if recipe.level == 'runtime' else 'a minute'})")
        # The real path: a venv made from `python3` breaks when that link moves on to the next version.
        _run([os.path.realpath(sys.executable), "-I", "-m", "venv", str(VENV)], lock, "making .venv")
    names = [re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0] for one in recipe.requirements]
    say(f"installing {', '.join(names)}")
    _pip(VENV, ["install", *recipe.requirements], lock)
    _make_importable()
    _note_blocking_env()
    _write_stamp(read_recipe("runtime"))
    if recipe.level == "dev":
        _fetch_mock(lock)
        for name in SPECIMENS:
            _fetch_specimen(name, lock)
        _write_stamp(recipe)
    say("done")


def _note_blocking_env() -> None:
    """Write down the `env` that can start a program with SIGINT blocked, for bin/haltline. GNU's can, since 2019."""
    note = VENV / "blocking-env"
    note.unlink(missing_ok=True)
    env = shutil.which("env")
    if env and not subprocess.run([env, "--block-signal=INT", "true"], capture_output=True, check=False).returncode:
        note.write_text(f"{env}\n")


def _belongs(level: str) -> bool:
    """Whether the level was once made whole, here, and its Python is still there; then pip can bring it up to date."""
    try:
        made = _stamp(level).read_text().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return made[:1] == [str(VENV)] and (VENV / "bin" / "python").exists()


def _remove_stamps() -> None:
    for level in LEVELS:
        _stamp(level).unlink(missing_ok=True)


def _write_stamp(recipe: Recipe) -> None:
    """Whole or not at all: it is renamed into its place."""
    unfinished = VENV / "ready-unfinished"
    unfinished.write_text(f"{VENV}\n{recipe.digest}\n")
    os.utime(unfinished, ns=(recipe.stamp_ns, recipe.stamp_ns))
    unfinished.rename(_stamp(recipe.level))


def _refuse_foreign_venv() -> None:
    """Nothing may be written or removed in a folder that is somebody else's, also behind a link."""
    linked = VENV.is_symlink() or (VENV.exists() and not VENV.is_dir())
    if linked or (VENV.exists() and any(VENV.iterdir()) and not (VENV / MADE_BY).exists()):
        raise SetUpError(f"{VENV} is in the way and was not made by haltline; move it away")


def _remove_venv() -> None:
    if not VENV.exists():
        return
    say("removing what is left of an earlier .venv")
    # The mark goes last, so that a removal that was interrupted can go on.
    for entry in VENV.iterdir():
        if entry.name != MADE_BY:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.rmtree(VENV)


def _make_importable() -> None:
    """The rooms become haltline.* for every Python of the venv; bin/start.py does the same without `site`."""
    (site_packages,) = VENV.glob("lib/python3*/site-packages")
    link = VENV / "site-packages"
    link.unlink(missing_ok=True)
    link.symlink_to(site_packages.relative_to(VENV))
    # A line of a .pth that starts with `import` is run; an entry in sys.modules is never searched for again, and
    # setdefault leaves a package alone that is there already.
    (site_packages / "haltline-checkout.pth").write_text(
        f'import sys; m = type(sys)("haltline"); m.__path__ = [{str(ROOT)!r}]; sys.modules.setdefault("haltline", m)\n'
    )


def _fetch_mock(lock: int) -> None:
    if _has_mock():
        return
    venv = MOCK_VENV
    wanted = f"{MOCK}=={_pinned(MOCK)}"
    say(f"fetching {wanted}, a mock of model servers for the tests")
    if venv.exists():
        shutil.rmtree(venv)
    _run([os.path.realpath(sys.executable), "-I", "-m", "venv", "--without-pip", str(venv)], lock, f"making {venv}")
    _pip(venv, ["install", wanted], lock)
    (venv / "ready").write_text(_mock_mark())


def _has_mock() -> bool:
    mark = MOCK_VENV / "ready"
    return mark.exists() and mark.read_text() == _mock_mark()


def _mock_mark() -> str:
    return f"{MOCK_VENV}\n{MOCK}=={_pinned(MOCK)}\n"


def _fetch_specimen(name: str, lock: int) -> None:
    folder = _specimen(name)
    if folder.exists():
        return
    version = _pinned(name)
    say(f"fetching the source of {name}=={version}, code for an agent to mend in the tests")
    unfinished = CACHE / "sdists" / "unfinished"
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(parents=True)
    # pip reads an archive's metadata by running its build; the setuptools of the venv is enough for these.
    options = ["--no-deps", "--no-binary", name, "--no-build-isolation", "--dest", str(unfinished)]
    _pip(VENV, ["download", *options, f"{name}=={version}"], lock)
    (archive,) = unfinished.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        # The argument of extractall is newer than Python 3.11.0; this attribute is ignored where it is not known.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(unfinished)
    (unfinished / folder.name).rename(folder)
    shutil.rmtree(unfinished)


def _specimen(name: str) -> Path:
    return CACHE / "sdists" / f"{name}-{_pinned(name)}"


def _pinned(name: str) -> str:
    pin = re.search(rf"^{re.escape(name)}==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE)
    if pin is None:
        raise SetUpError(f"{CONSTRAINTS} pins no {name}")
    return pin[1]


def _pip(venv: Path, arguments: list[str], lock: int) -> None:
    """Runs the venv's pip, or .venv's for a venv without one. The user's own settings of pip count."""
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--constraint", str(CONSTRAINTS)]
    target = [] if venv == VENV else ["--python", str(venv / "bin" / "python")]
    command, *rest = arguments
    install = ["--no-warn-script-location"] if command == "install" else []
    _run([str(VENV / "bin" / "python"), "-I", "-m", "pip", *target, command, *quiet, *install, *rest], lock, "pip")


def _run(command: list[str], lock: int, what: str) -> None:
    """Runs one step to its end, holding the lock (rule 3). Raises SetUpError with what it said."""
    environment = {name: value for name, value in os.environ.items() if name not in REDIRECTIONS}
    done = subprocess.run(
        command,
        stdin=lock,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        errors="replace",
        preexec_fn=_die_with_parent(os.getpid()),
        check=False,
    )
    if done.returncode == 0:
        return
    words = explain(what, done.returncode, done.stdout)
    if words != DISK_FULL:
        (CACHE / "set-up.log").write_text(done.stdout)
    raise SetUpError(words)


def explain(what: str, status: int, output: str) -> str:
    """One line about a step that failed: the cause where its words are known, else what it said."""
    text = re.sub(r"//[^/@\s]+@", "//", output)  # a password in an address stays out of sight
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return DISK_FULL
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.partition("ERROR:")[2].strip() for line in lines if "ERROR:" in line]
    words = (errors or lines[-1:] or [f"ended with status {status}"])[0][:300]
    missing = NOT_FOUND.search(text)
    if missing:
        return (
            f"pip could not get {missing[1]}; is the package index reachable? "
            "See PIP_INDEX_URL, PIP_NO_INDEX and the proxy settings, then start again"
        )
    return f"{what}: {words} (all of it: {CACHE / 'set-up.log'})"


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    """For subprocess: the child is killed when this process is. Only Linux has it; elsewhere the lock alone guards."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


def say(text: str) -> None:
    print(f"setting up: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
