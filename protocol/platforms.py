"""Which of the two ways of looking at processes this process uses; decided once, and the same in all forks of it.

`HALTLINE_PORTABLE=1` forces on Linux what other systems get, so that it can be tested: no subreaper, no pidfd, no
/proc, nothing of prctl (docs/decisions/0005-the-portable-fallback.md).
"""

from __future__ import annotations

import os
import sys

FORCED_BY = "HALTLINE_PORTABLE"


def is_portable(platform: str, forced: str | None) -> bool:
    """`platform`: as sys.platform. `forced`: the value of FORCED_BY, None where it is not set; only `1` counts."""
    return forced == "1" or not platform.startswith("linux")


PORTABLE = is_portable(sys.platform, os.environ.get(FORCED_BY))
