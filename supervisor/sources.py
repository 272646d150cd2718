"""Where the supervisor's shell gets the wall clock and chance from. Monotonic time is its loop's."""

import os
import random
import time
from collections.abc import Callable

import msgspec


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    wall_s: Callable[[], float] = time.time
    """Seconds since the epoch."""
    jitter: Callable[[], float] = random.random
    """In [0, 1)."""
    random_bytes: Callable[[int], bytes] = os.urandom
    """That many, for names and tokens; nobody can guess them."""
