"""Intervals of time, in minutes since midnight."""

from dataclasses import dataclass

MINUTES_PER_HOUR = 60
DAY = 24 * MINUTES_PER_HOUR


def parse_time(text: str) -> int:
    """Minutes since midnight of a time such as "09:30". "24:00" is the end of the day."""
    hours, colon, minutes = text.partition(":")
    if not colon or not hours.isdigit() or not minutes.isdigit():
        raise ValueError(f"{text!r} is no time; write it as 09:30")
    value = int(hours) * MINUTES_PER_HOUR + int(minutes)
    if int(minutes) >= MINUTES_PER_HOUR or value > DAY:
        raise ValueError(f"{text!r} is not a time of the day")
    return value


def format_time(minutes: int) -> str:
    """The reverse of parse_time."""
    return f"{minutes // MINUTES_PER_HOUR:02}:{minutes % MINUTES_PER_HOUR:02}"


@dataclass(frozen=True, order=True)
class Interval:
    """From start up to, and without, end."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(f"an interval must not end at {self.end} if it begins at {self.start}")

    @classmethod
    def parse(cls, text: str) -> "Interval":
        """An interval such as "09:30-10:15"."""
        start, _, end = text.partition("-")
        return cls(parse_time(start.strip()), parse_time(end.strip()))

    @property
    def minutes(self) -> int:
        return self.end - self.start

    def overlaps(self, other: "Interval") -> bool:
        """Whether the two have a minute in common."""
        return self.start <= other.end and other.start < self.end

    def contains(self, minute: int) -> bool:
        return self.start <= minute < self.end

    def __str__(self) -> str:
        return f"{format_time(self.start)}-{format_time(self.end)}"
