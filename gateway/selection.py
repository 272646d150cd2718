"""Which scenario a request gets: by its model's name, else the server's default.

`slow`, `demo/slow` and any `provider/slow` name the scenario `slow`. `NAME@BYTES` is NAME with the connection cut after
that many bytes of the response, head included.
"""

import msgspec

from haltline.gateway.scenarios import SCENARIOS

DEFAULT_MODEL = "demo"
"""A model that names no scenario; it is always served."""
DEFAULT_SCENARIO = "ok"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cut_at: int | None = None
    """Bytes of the response after which the connection ends; None: it does not."""


class UnknownScenario(Exception):
    """Neither the model nor the server names a scenario that exists; the text lists those that do."""


def select(model: str, default: str | None) -> Selection:
    """The scenario for a model's name. `default`: what the server was started with. Raises UnknownScenario."""
    named = _read(model)
    if named is not None:
        return named
    if default is not None:
        return select(default, None)
    if model == DEFAULT_MODEL:
        return Selection(name=DEFAULT_SCENARIO)
    raise UnknownScenario(f"There is no scenario {model!r}. Those that exist: {', '.join(SCENARIOS)}.")


def _read(model: str) -> Selection | None:
    name, at, cut = model.rpartition("/")[2].partition("@")
    if name not in SCENARIOS:
        return None
    if not at:
        return Selection(name=name)
    return Selection(name=name, cut_at=int(cut)) if cut.isascii() and cut.isdigit() and int(cut) > 0 else None
