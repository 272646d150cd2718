"""The five limits of one attempt (D4), as a pure question: when, and which, is the next to trip?

Rules:
1. connect: from the start until the connection stands (name, TCP, TLS).
2. first_event: from the connection, again from the request sent, until the first model event. Silence on the wire
   does not count in this time: thinking models send nothing for 100 s (R31).
3. silence, after the first event: from the last byte of any kind.
4. no_progress, after the first event: from the last model event.
5. whole_request: from the start.
6. Once the outcome is known and only the rest of the body is to be read, its own short time counts in place of these
   (`limit_rest`); it ends with the whole request at the latest.
"""

from haltline.protocol.kinds import StreamTimer
from haltline.protocol.settings import StreamLimits


class AttemptTimers:
    """All times are of one monotonic clock, seconds. A limit of 0 is off."""

    def __init__(self, limits: StreamLimits, now: float) -> None:
        self._limits = limits
        self._started = now
        self._connected: float | None = None
        self._first_event: float | None = None
        self._last_byte = now
        self._last_step = now
        self._rest_until: float | None = None

    def connected(self, now: float) -> None:
        """The connection stands; again when the request has been sent."""
        self._connected = now

    def byte(self, now: float) -> None:
        self._last_byte = now

    def step(self, now: float) -> None:
        """A model event."""
        self._last_step = now
        self._first_event = self._first_event or now

    def limit_rest(self, until: float) -> None:
        """Rule 6. Only ever shortens."""
        self._rest_until = until if self._rest_until is None else min(until, self._rest_until)

    def silent_s(self, now: float) -> float:
        """Since the last model event, or since the start."""
        return now - self._last_step

    def next(self) -> tuple[float, StreamTimer | None]:
        """The earliest deadline and its name; None as name: the time for the rest of the body is over."""
        limits = self._limits
        if self._rest_until is not None:
            whole = self._started + limits.whole_s if limits.whole_s > 0 else float("inf")
            return min(self._rest_until, whole), None
        deadlines: list[tuple[float, float, StreamTimer]] = [(self._started, limits.whole_s, "whole_request")]
        if self._connected is None:
            deadlines.append((self._started, limits.connect_s, "connect"))
        elif self._first_event is None:
            deadlines.append((self._connected, limits.first_event_s, "first_event"))
        else:
            deadlines.append((self._last_byte, limits.silence_s, "silence"))
            deadlines.append((self._last_step, limits.progress_s, "no_progress"))
        on: list[tuple[float, StreamTimer]] = [(since + limit, name) for since, limit, name in deadlines if limit > 0]
        return min(on, default=(float("inf"), None))
