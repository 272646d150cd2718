"""What every test gets: a clean environment, a folder of its own, and the check that it left no process alive.

`--ci` and `--all` ask for larger samples; tests marked `ci` or `exhaustive` run only there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import hypothesis
import pytest
from hypothesis.configuration import set_hypothesis_home_dir
from support import survivors

ROOT = Path(__file__).resolve().parent.parent

FOREIGN_PREFIXES = ("HALTLINE_", "OPENAI_", "ANTHROPIC_", "XDG_")
FOREIGN_SUFFIXES = ("_API_KEY", "_PROXY", "_proxy")
FOREIGN_NAMES = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
"""Variables of the person who runs the tests that would change what the product does."""

SHORT_TEMP = 24
"""Longest temporary folder, in bytes, that leaves room for a socket path of 100 bytes below HALTLINE_HOME."""

_environment_before: dict[str, str] = {}
_cookie = uuid.uuid4().hex


class Samples(Protocol):
    """How many samples to take: `quick` by default, `ci` with --ci, `exhaustive` with --all."""

    def __call__(self, quick: int, ci: int, exhaustive: int) -> int: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ci", action="store_true", help="larger samples and the tests marked ci (under 30 minutes)")
    parser.addoption("--all", action="store_true", help="the largest samples and every test; no bound on time")


def pytest_configure(config: pytest.Config) -> None:
    survivors.become_subreaper()
    _environment_before.update(os.environ)
    for name in list(os.environ):
        if name.startswith(FOREIGN_PREFIXES) or name.endswith(FOREIGN_SUFFIXES) or name in FOREIGN_NAMES:
            del os.environ[name]
    os.environ[survivors.COOKIE] = _cookie
    set_hypothesis_home_dir(ROOT / ".cache" / "hypothesis")
    for name, examples in {"quick": 50, "ci": 500, "all": 5000}.items():
        # Derandomized: a red run is red again. No database: a run depends on the checkout alone. No deadline: a slow
        # machine is not a wrong answer.
        hypothesis.settings.register_profile(
            name, max_examples=examples, derandomize=name == "quick", database=None, deadline=None
        )
    hypothesis.settings.load_profile(_level(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    level = _level(config)
    left_out = {"quick": ("ci", "exhaustive"), "ci": ("exhaustive",), "all": ()}[level]
    dropped = [item for item in items if any(item.get_closest_marker(name) for name in left_out)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


def _level(config: pytest.Config) -> str:
    if config.getoption("--all"):
        return "all"
    return "ci" if config.getoption("--ci") else "quick"


@pytest.fixture
def samples(pytestconfig: pytest.Config) -> Samples:
    level = _level(pytestconfig)

    def choose(quick: int, ci: int, exhaustive: int) -> int:
        return {"quick": quick, "ci": ci, "all": exhaustive}[level]

    return choose


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def environment_before() -> Mapping[str, str]:
    """The environment as it was when pytest started, for what must reach the package index."""
    return dict(_environment_before)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """HALTLINE_HOME of this test: state, sockets and configuration of the product go here and nowhere else."""
    temp = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="hl-", dir=temp if len(os.fsencode(temp)) <= SHORT_TEMP else "/tmp"))
    monkeypatch.setenv("HALTLINE_HOME", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def _orphans() -> survivors.Orphans:
    return survivors.Orphans()


@pytest.fixture(autouse=True)
def _no_process_survives_the_test(home: Path, _orphans: survivors.Orphans) -> Iterator[None]:  # noqa: ARG001 home goes after this check
    before = survivors.descendants(os.getpid())

    def started_since() -> list[survivors.Survivor]:
        return [one for one in survivors.descendants(os.getpid()) if one not in before]

    yield
    _fail_on_survivors("test", started_since)
    _orphans.reap()


@pytest.fixture(scope="session", autouse=True)
def _no_process_survives_the_run() -> Iterator[None]:
    yield
    _fail_on_survivors(
        "run", lambda: list(dict.fromkeys([*survivors.descendants(os.getpid()), *survivors.carrying(_cookie)]))
    )


def _fail_on_survivors(what: str, find: Callable[[], list[survivors.Survivor]]) -> None:
    found = find()
    left = survivors.settle(found) if found else []
    if left:
        survivors.end(find)
        pytest.fail(f"left alive by this {what} (now ended):\n" + "\n".join(map(str, left)), pytrace=False)
