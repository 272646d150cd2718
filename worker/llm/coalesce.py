"""Deltas, gathered so that a fast stream costs one message per window (design 4).

The first goes at once and opens a window; what comes inside it waits for its end, which opens the next one. A window
in which nothing came closes the gathering: after a pause the next delta goes at once again.
"""

import asyncio
from collections.abc import Callable


class Coalescer:
    """Text and reasoning keep their order; neighbours of one kind become one delta."""

    def __init__(self, loop: asyncio.AbstractEventLoop, window_s: float, deliver: Callable[[str, bool], None]) -> None:
        """`deliver(text, reasoning)` sends one delta. `window_s` 0: no gathering."""
        self._loop = loop
        self._window_s = window_s
        self._deliver = deliver
        self._pending: list[tuple[bool, list[str]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, text: str, *, reasoning: bool) -> None:
        if not text:
            return
        if self._window_s <= 0:
            self._deliver(text, reasoning)
            return
        if self._pending and self._pending[-1][0] == reasoning:
            self._pending[-1][1].append(text)
        else:
            self._pending.append((reasoning, [text]))
        if self._timer is None:
            self._turn()

    def flush(self) -> None:
        """Deliver all that waits, and close the window."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        for reasoning, texts in pending:
            self._deliver("".join(texts), reasoning)

    def _turn(self) -> None:
        self._timer = None
        if self._pending:
            self.flush()
            self._timer = self._loop.call_later(self._window_s, self._turn)
