"""The page docs/configuration.md: every key of a configuration file, from the types that the files are read into."""

from __future__ import annotations

import inspect
import typing
from typing import Final

import msgspec
from msgspec import inspect as types

from haltline.cli import config_file
from haltline.cli.config_tables import MOST, ConfigFile, Table
from haltline.protocol import settings
from haltline.worker.llm.messages_request import MAX_TOKENS

_BY_PLACE: Final = "`interactive` on a terminal, else `patient`"


def _defaults(table: str, values: msgspec.Struct) -> dict[str, object]:
    return {f"{table}.{name}": value for name, value in msgspec.structs.asdict(values).items()}


def _policies() -> dict[str, object]:
    """Of `backoff`: one value, or one for each policy."""
    patient = _defaults("backoff", settings.PATIENT)
    return {
        key: quick if quick == patient[key] else f"{_shown(quick)} (interactive), {_shown(patient[key])} (patient)"
        for key, quick in _defaults("backoff", settings.INTERACTIVE).items()
    }


def _shown(default: object) -> str:
    match default:
        case float():
            return f"{default:,g}"
        case int():
            return f"{default:,}"
        case _:
            return str(default)


_DEFAULTS: Final[dict[str, object]] = {
    "api": "`responses`, `messages` at OpenAI's, Anthropic's own address, else `chat`",
    "key_variable": "`OPENAI_API_KEY` (`ANTHROPIC_API_KEY` for `messages`), where it is set",
    "base_url": "`OPENAI_BASE_URL` (`ANTHROPIC_BASE_URL`), else the provider's own",
    "retry": _BY_PLACE,
    "approval_mode": "ask",
    "isolation": "auto",
    "max_output_tokens": f"the server's; {MAX_TOKENS:,} for `messages`",
    "window_tokens": "as an error of the server names it",
    "stalled_after_s": settings.STALLED_AFTER_S,
    "delta_window_ms": settings.DELTA_WINDOW_MS,
    **_defaults("limits", settings.Limits()),
    **_defaults("session_limits", settings.NO_LIMITS),
    **_policies(),
    "timeouts.connect": settings.StreamLimits().connect_s,
    "timeouts.first_event": settings.StreamLimits().first_event_s,
    "timeouts.idle": settings.StreamLimits().silence_s,
    "timeouts.progress": settings.StreamLimits().progress_s,
    "timeouts.request": settings.StreamLimits().whole_s,
    "tools.timeout": settings.ToolLimits().timeout_s,
    "tools.max_timeout": settings.ToolLimits().max_timeout_s,
    "tools.output_bytes": settings.ToolLimits().output_bytes,
}
"""Of every key that has one."""

_EXAMPLE: Final = """\
model = "openai/gpt-4.1"
approval_mode = "auto-edit"

[limits]
turns = 50
seconds = 900

[timeouts]
first_event = 60
"""


def page() -> str:
    """The whole page. Raises KeyError or AssertionError for a key without description."""
    config_file.parse(_EXAMPLE.encode(), "the example")
    lines = [
        "# Configuration",
        "",
        "Two files, both optional, both TOML: your own, `$XDG_CONFIG_HOME/haltline/config.toml` (by default",
        "`~/.config/haltline/config.toml`), and the nearest `.haltline.toml` upward of the workspace. The later wins:",
        "your file, the workspace's, `HALTLINE_MODEL`, options. A mistake in a file ends the command with exit 78.",
        "",
        " ".join(inspect.cleandoc(config_file.__doc__ or "").split("\n\n")[1].split()),
        "",
        "```toml",
        *_EXAMPLE.splitlines(),
        "```",
    ]
    tables = [(name, _table(field)) for name, field in _fields(ConfigFile) if _table(field) is not None]
    keys = [(name, field) for name, field in _fields(ConfigFile) if _table(field) is None]
    lines += ["", "## At the top", "", *_rows(ConfigFile, "", keys)]
    for name, table in tables:
        assert table is not None
        words = _described(ConfigFile, name) or inspect.cleandoc(table.__doc__ or "")
        lines += ["", f"## `[{name}]`", "", words, "", *_rows(table, f"{name}.", _fields(table))]
    return "\n".join(lines) + "\n"


def _fields(table: type[Table]) -> list[tuple[str, types.Type]]:
    info = types.type_info(table)
    assert isinstance(info, types.StructType)
    return [(field.encode_name, field.type) for field in info.fields]


def _table(kind: types.Type) -> type[Table] | None:
    bare = kind.type if isinstance(kind, types.Metadata) else kind
    return bare.cls if isinstance(bare, types.StructType) and issubclass(bare.cls, Table) else None


def _described(table: type[Table], name: str) -> str | None:
    hint: object = typing.get_type_hints(table, include_extras=True)[name]
    metas = (meta for meta in typing.get_args(hint)[1:] if isinstance(meta, msgspec.Meta))
    return next((meta.description for meta in metas if meta.description), None)


def _rows(table: type[Table], above: str, fields: list[tuple[str, types.Type]]) -> list[str]:
    lines = ["| key | value | default | what it is |", "|---|---|---|---|"]
    for name, kind in fields:
        words = _described(table, name)
        assert words is not None, f"{above}{name} is not described"
        default = _DEFAULTS.get(f"{above}{name}", "none")
        lines.append(f"| `{name}` | {_value(kind)} | {_shown(default)} | {words} |")
    return lines


def _value(kind: types.Type) -> str:
    match kind:
        case types.Metadata(type=inner):
            return _value(inner)
        case types.UnionType(types=parts):
            return " or ".join(_value(part) for part in parts if not isinstance(part, types.NoneType))
        case types.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in values)
        case types.IntType():
            return f"whole number{_range(kind)}"
        case types.FloatType():
            return f"number{_range(kind)}"
        case types.StrType():
            return "text"
        case types.VarTupleType():
            return "list of texts"
        case _:
            raise AssertionError(f"no words for {kind}")


def _range(kind: types.IntType | types.FloatType) -> str:
    parts = [
        f"above {kind.gt:,}" if kind.gt is not None else "",
        f"from {kind.ge:,}" if kind.ge is not None else "",
        f"to {kind.le:,}" if kind.le not in (None, MOST) else "",
    ]
    return "".join(f" {part}" for part in parts if part)
