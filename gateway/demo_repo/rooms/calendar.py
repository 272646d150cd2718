"""The bookings of one room on one day."""

from bisect import insort

from rooms.interval import Interval

OPENS = 8 * 60
CLOSES = 18 * 60


class Conflict(Exception):
    """The room is taken at that time."""


class Calendar:
    """Bookings of one room, in the order of time."""

    def __init__(self, room: str) -> None:
        self.room = room
        self._bookings: list[tuple[Interval, str]] = []

    def book(self, when: Interval, who: str) -> None:
        """Raises Conflict, and books nothing, if the room is taken or closed then."""
        if when.start < OPENS or when.end > CLOSES:
            raise Conflict(f"{self.room} is closed at {when}")
        for taken, by in self._bookings:
            if taken.overlaps(when):
                raise Conflict(f"{self.room} is taken by {by} at {taken}")
        insort(self._bookings, (when, who))

    def who(self, minute: int) -> str | None:
        """Who has the room at that minute."""
        for taken, by in self._bookings:
            if taken.contains(minute):
                return by
        return None

    def free(self, at_least: int = 1) -> list[Interval]:
        """The times without a booking, of at least so many minutes."""
        gaps = []
        begin = OPENS
        for taken, _ in self._bookings:
            if taken.start > begin:
                gaps.append(Interval(begin, taken.start))
            begin = taken.end
        if begin < CLOSES:
            gaps.append(Interval(begin, CLOSES))
        return [gap for gap in gaps if gap.minutes >= at_least]

    def cancel(self, who: str) -> int:
        """Drop all bookings of somebody; returns how many there were."""
        before = len(self._bookings)
        self._bookings = [(taken, by) for taken, by in self._bookings if by != who]
        return before - len(self._bookings)
