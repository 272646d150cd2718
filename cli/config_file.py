"""Configuration files: the user's config.toml, and the nearest `.haltline.toml` upward of the workspace.

Decoded strictly: an unknown key or a wrong type names the file, the key and what was expected. A workspace may
be somebody else's repository, so its file can only ask for less: it cannot choose where the key is sent
(`base_url` beyond this machine, `key_variable`), loosen approvals, or say how its processes are held (`isolation`).
Those are the user's own to say.
"""

import math
import os
import re
import tomllib
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Final, TypeAlias, get_args

import msgspec

from haltline.cli.config_tables import BackoffTable, ConfigFile, LimitsTable, Table, TimeoutsTable, ToolsTable
from haltline.protocol import secrets
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.kinds import Api, ApprovalMode, IsolationWish
from haltline.protocol.tools import TOOLS

PROJECT_FILE: Final = ".haltline.toml"

Toml: TypeAlias = "str | int | float | datetime | date | time | list[Toml] | dict[str, Toml]"
"""A value as tomllib reads it."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was found, or the absence of one (path "")."""

    path: str = ""
    config: ConfigFile = ConfigFile()
    of_project: bool = False


def load(path: str, *, of_project: bool) -> Source:
    """An empty Source where there is no file. Raises ConfigurationProblem."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return Source(of_project=of_project)
    except OSError as error:
        raise ConfigurationProblem(f"{path}: cannot be read: {error.strerror}") from error
    config = parse(data, path)
    if of_project:
        _refuse_what_only_the_user_may_say(config, path)
    return Source(path=path, config=config, of_project=of_project)


def nearest_project_file(cwd: str) -> str | None:
    """The `.haltline.toml` in `cwd` (absolute) or the closest folder above it."""
    folder = cwd
    while True:
        path = os.path.join(folder, PROJECT_FILE)
        if os.path.lexists(path):
            return path
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def parse(data: bytes, path: str) -> ConfigFile:
    """Raises ConfigurationProblem, one line: file, key, what was expected, what stands there."""
    try:
        tables: dict[str, Toml] = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigurationProblem(f"{path}: not UTF-8 at byte {error.start}; TOML in UTF-8 is expected") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationProblem(f"{path}: not TOML: {error}") from error
    try:
        config = msgspec.convert(tables, ConfigFile)
    except msgspec.ValidationError as error:
        raise ConfigurationProblem(f"{path}: {_words(str(error), tables)}") from error
    for key, value in _numbers(tables):
        if not math.isfinite(value):
            raise ConfigurationProblem(f"{path}: {key}: expected a finite number, got {value}")
    if config.key_variable is not None and not secrets.is_key(config.key_variable):
        raise ConfigurationProblem(
            f"{path}: key_variable: expected a name that ends in {secrets.KEY_SUFFIX}, by which every process knows "
            f"what no tool may see, got {config.key_variable!r}"
        )
    for name in config.tools.allowed or ():
        if name not in TOOLS:
            raise ConfigurationProblem(f"{path}: tools.allowed: {name!r} is no tool, expected {', '.join(TOOLS)}")
    return config


_TABLES: Final[dict[str, type[Table]]] = {
    "": ConfigFile,
    "limits": LimitsTable,
    "session_limits": LimitsTable,
    "backoff": BackoffTable,
    "timeouts": TimeoutsTable,
    "tools": ToolsTable,
}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "api": get_args(Api),
    "retry": ("interactive", "patient"),
    "approval_mode": get_args(ApprovalMode),
    "isolation": get_args(IsolationWish),
    "backoff.jitter": ("equal", "added"),
}


def _words(problem: str, tables: dict[str, Toml]) -> str:
    """msgspec's sentence, turned so that the key comes first."""
    sentence, _, place = problem.partition(" - at ")
    key = place.strip("`").removeprefix("$").lstrip(".")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", sentence)
    if unknown is not None:
        full = f"{key}.{unknown[1]}" if key else unknown[1]
        return f"{full}: unknown key, expected one of {', '.join(_TABLES[key].__struct_fields__)}"
    if key in _CHOICES:
        expected = f"one of {', '.join(_CHOICES[key])}"
    else:
        expected = sentence.removeprefix("Expected ").partition(", got ")[0].replace("`", "").replace(" | null", "")
    return f"{key}: expected {expected}, got {_at(tables, key)!r}"


def _at(tables: dict[str, Toml], key: str) -> Toml:
    """What the file says under `key`, such as `limits.turns`; of an array the whole."""
    value: Toml = tables
    for name in key.partition("[")[0].split("."):
        value = value[name] if isinstance(value, dict) else value
    return value


def _numbers(tables: dict[str, Toml], above: str = "") -> Iterator[tuple[str, float]]:
    """Every number with its key."""
    for name, value in tables.items():
        if isinstance(value, float):
            yield above + name, value
        elif isinstance(value, dict):
            yield from _numbers(value, f"{above}{name}.")


def _refuse_what_only_the_user_may_say(config: ConfigFile, path: str) -> None:
    own = "may only be set in your own config.toml or on the command line, not by a workspace"
    if config.key_variable is not None:
        raise ConfigurationProblem(f"{path}: key_variable: {own}")
    if config.isolation is not None:
        raise ConfigurationProblem(f"{path}: isolation: {own}")
    if config.tools.allowed is not None:
        raise ConfigurationProblem(f"{path}: tools.allowed: {own}")
    if config.approval_mode in ("yolo", "auto-edit"):
        raise ConfigurationProblem(f"{path}: approval_mode: {config.approval_mode} {own}; expected ask or plan")
