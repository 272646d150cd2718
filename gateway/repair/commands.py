"""Builds the shell commands that run tests, and recognises them again in the conversation.

Rules:
1. Bytecode is never written and old bytecode is removed before the first run: its freshness is judged by whole seconds
   and the file's size, and a trial often keeps both.
2. A comment at the end says what the run is for. It is how a run is recognised later, and it makes each trial's command
   a call of its own: same test, another content.
3. A run that may hang is ended by SIGABRT from inside the tool's limit, as faulthandler then says where it was.
"""

import posixpath
import re
import shlex
from collections.abc import Iterable
from typing import Literal, assert_never

import msgspec

Framework = Literal["pytest", "unittest"]
Purpose = Literal["suite", "trial"]

HANG_LIMIT_S = 5
"""Of a run that is known to hang. Only to see where."""
TRIAL_LEAST_CPU_S: dict[Framework, int] = {"unittest": 1, "pytest": 3}
"""Five times and more what the framework's own start takes."""
TRIAL_FACTOR = 10
"""A trial may use this many times the seconds that the whole suite took, and TRIAL_LEAST_CPU_S at least. Many a wrong
change makes an endless loop; counted in processor time, its end does not depend on what else the machine does."""

_PURPOSE = re.compile(r"# (?P<purpose>suite|trial) with (?P<framework>pytest|unittest)\b[^\n]*\Z")
_CLEAN = "find . -name '*.pyc' -not -path './.*' -delete; "


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where a repository has what; paths as glob lists them."""

    tests: tuple[str, ...]
    modules: tuple[str, ...]
    """Python files that are no tests."""

    @property
    def has_src(self) -> bool:
        return any(path.startswith("src/") for path in self.modules)

    def has_module(self, name: str) -> bool:
        """Whether a file or folder here may be imported by that name."""
        return any(
            f"/{name}/" in f"/{path}" or f"/{path}".endswith(f"/{name}.py") for path in (*self.modules, *self.tests)
        )


class Command(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    timeout_s: int | None = None
    """None: the tool's own limit."""


def layout(paths: Iterable[str]) -> Layout:
    tests: list[str] = []
    modules: list[str] = []
    for path in paths:
        (tests if is_test(path) else modules).append(path)
    return Layout(tests=tuple(tests), modules=tuple(modules))


def is_test(path: str) -> bool:
    """A test file, or something beside one that belongs to the tests."""
    folders, name = path.split("/")[:-1], path.rpartition("/")[2]
    return (
        name.startswith("test_")
        or name.endswith("_test.py")
        or name in ("conftest.py", "tests.py")
        or any(folder in ("tests", "test", "testing") for folder in folders)
    )


def suite(framework: Framework, place: Layout, about: str, *, first: bool = False, hangs: bool = False) -> Command:
    """Run everything. `about`: why, in one line. `first`: rule 1. `hangs`: rule 3."""
    text = (_CLEAN if first else "") + _run(framework, place, hangs=hangs)
    return Command(text=f"{text}  # suite with {framework}: {about}", timeout_s=2 * HANG_LIMIT_S if hangs else None)


def trial(framework: Framework, place: Layout, test: str | None, about: str, suite_seconds: float | None) -> Command:
    """Run one failing test and, if it passes, everything.

    `test` None: everything at once. `about`: what is being tried, in one line. `suite_seconds`: what everything took
    before."""
    text = _run(framework, place)
    if test is not None:
        selection = shlex.quote(test) if framework == "pytest" and "::" in test else f"-k {shlex.quote(test)}"
        text = f"{_run(framework, place, selection=selection)} && {text}"
    limit = max(TRIAL_LEAST_CPU_S[framework], int(TRIAL_FACTOR * (suite_seconds or 0)))
    return Command(text=f"ulimit -t {limit}; {text}  # trial with {framework}: {about}")


def purpose(command: str) -> tuple[Purpose, Framework] | None:
    """What a command of this module was for; None: it is another's."""
    found = _PURPOSE.search(command)
    if found is None:
        return None
    return (
        "suite" if found["purpose"] == "suite" else "trial",
        "pytest" if found["framework"] == "pytest" else "unittest",
    )


def _run(framework: Framework, place: Layout, *, selection: str = "", hangs: bool = False) -> str:
    environment = "PYTHONDONTWRITEBYTECODE=1" + (" PYTHONPATH=src" if place.has_src else "")
    python = f"timeout -s ABRT {HANG_LIMIT_S} python3 -X faulthandler" if hangs else "python3"
    match framework:
        case "pytest":
            what = "pytest -q --tb=native -p no:cacheprovider"
        case "unittest":
            what = "unittest discover" + _start(place)
        case _:
            assert_never(framework)
    return " ".join(filter(None, (environment, python, "-m", what, selection)))


def _start(place: Layout) -> str:
    """The options by which unittest finds the tests: it walks into packages only."""
    options = ""
    files = [path for path in place.tests if not path.endswith(("__init__.py", "conftest.py"))]
    folder = posixpath.commonpath([posixpath.dirname(path) for path in files]) if files else ""
    if folder and f"{folder}/__init__.py" not in place.tests:
        options += f" -s {shlex.quote(folder)}"
    if files and all(path.endswith("_test.py") for path in files):
        options += " -p '*_test.py'"
    return options
