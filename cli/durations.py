"""Lengths of time as people write them: `90`, `90s`, `15m`, `2h`, `1.5h`."""

import math
import re
from typing import Final

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_FORM: Final = re.compile(r"(\d+(?:\.\d+)?)([smh]?)")


def seconds(text: str) -> float | None:
    """Seconds, or None when `text` is no length of time."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        return None
    value = float(form[1]) * _UNITS[form[2]]
    return value if math.isfinite(value) else None
