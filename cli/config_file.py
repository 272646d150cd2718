"""Configuration files: the user's config.toml, and the nearest `.haltline.toml` upward of the workspace.

Decoded strictly: an unknown key or a wrong type names the file, the key and what was expected. A workspace may
be somebody else's repository, so its file can only ask for less: it cannot choose where the key is sent
(`base_url` beyond this machine, `key_variable`) nor loosen approvals. Those are the user's own to say.
"""

import os
import re
import tomllib
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.kinds import Api, ApprovalMode
from haltline.protocol.tools import TOOLS

PROJECT_FILE: Final = ".haltline.toml"

_Seconds = Annotated[float, Meta(gt=0)]
_Count = Annotated[int, Meta(ge=0)]


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all tables; an absent key is None."""


class LimitsTable(Table, frozen=True):
    """Of one run; 0 means none."""

    turns: _Count | None = None
    seconds: Annotated[float, Meta(ge=0)] | None = None
    tokens: _Count | None = None


class TimeoutsTable(Table, frozen=True):
    """Seconds, of one request."""

    connect: _Seconds | None = None
    first_event: _Seconds | None = None
    idle: _Seconds | None = None
    progress: _Seconds | None = None
    request: _Seconds | None = None


class ToolsTable(Table, frozen=True):
    allowed: tuple[str, ...] | None = None
    timeout: _Seconds | None = None
    max_timeout: _Seconds | None = None
    output_bytes: Annotated[int, Meta(ge=1024, le=1_048_576)] | None = None


class ConfigFile(Table, frozen=True):
    """One file, as written."""

    model: Annotated[str, Meta(min_length=1)] | None = None
    base_url: str | None = None
    api: Api | None = None
    key_variable: Annotated[str, Meta(min_length=1)] | None = None
    retry: Literal["interactive", "patient"] | None = None
    approval_mode: ApprovalMode | None = None
    limits: LimitsTable = LimitsTable()
    timeouts: TimeoutsTable = TimeoutsTable()
    tools: ToolsTable = ToolsTable()


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
    """Raises ConfigurationProblem, one line: file, key, what was expected."""
    try:
        tables = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigurationProblem(f"{path}: not UTF-8 at byte {error.start}; TOML in UTF-8 is expected") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationProblem(f"{path}: not TOML: {error}") from error
    try:
        config = msgspec.convert(tables, ConfigFile)
    except msgspec.ValidationError as error:
        raise ConfigurationProblem(f"{path}: {_words(str(error))}") from error
    for name in config.tools.allowed or ():
        if name not in TOOLS:
            raise ConfigurationProblem(f"{path}: tools.allowed: {name!r} is no tool, expected {', '.join(TOOLS)}")
    return config


_TABLES: Final[dict[str, type[Table]]] = {
    "": ConfigFile,
    "limits": LimitsTable,
    "timeouts": TimeoutsTable,
    "tools": ToolsTable,
}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "api": get_args(Api),
    "retry": ("interactive", "patient"),
    "approval_mode": get_args(ApprovalMode),
}


def _words(problem: str) -> str:
    """msgspec's sentence, turned so that the key comes first."""
    sentence, _, place = problem.partition(" - at ")
    key = place.strip("`").removeprefix("$").lstrip(".")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", sentence)
    if unknown is not None:
        full = f"{key}.{unknown[1]}" if key else unknown[1]
        return f"{full}: unknown key, expected one of {', '.join(_TABLES[key].__struct_fields__)}"
    if key in _CHOICES:
        return f"{key}: expected one of {', '.join(_CHOICES[key])}"
    return f"{key}: {sentence[:1].lower()}{sentence[1:].replace('`', '').replace(' | null', '')}"


def _refuse_what_only_the_user_may_say(config: ConfigFile, path: str) -> None:
    own = "may only be set in your own config.toml or on the command line, not by a workspace"
    if config.key_variable is not None:
        raise ConfigurationProblem(f"{path}: key_variable: {own}")
    if config.tools.allowed is not None:
        raise ConfigurationProblem(f"{path}: tools.allowed: {own}")
    if config.approval_mode in ("yolo", "auto-edit"):
        raise ConfigurationProblem(f"{path}: approval_mode: {config.approval_mode} {own}; expected ask or plan")
