"""Books meeting rooms."""

from rooms.calendar import Calendar, Conflict
from rooms.interval import Interval

__all__ = ["Calendar", "Conflict", "Interval"]
