import unittest

from rooms import Calendar, Conflict, Interval


class CalendarTest(unittest.TestCase):
    def setUp(self) -> None:
        self.calendar = Calendar("Attic")
        self.calendar.book(Interval.parse("09:00-10:00"), "Ada")

    def test_a_taken_room_is_refused(self) -> None:
        with self.assertRaises(Conflict):
            self.calendar.book(Interval.parse("09:30-10:30"), "Bob")

    def test_a_meeting_may_begin_when_another_one_ends(self) -> None:
        self.calendar.book(Interval.parse("10:00-11:00"), "Bob")
        self.calendar.book(Interval.parse("08:00-09:00"), "Cem")
        self.assertEqual(self.calendar.who(600), "Bob")

    def test_a_closed_room_is_refused(self) -> None:
        for text in ("07:59-08:30", "17:30-18:01"):
            with self.subTest(text=text), self.assertRaises(Conflict):
                self.calendar.book(Interval.parse(text), "Bob")

    def test_the_gaps_are_free(self) -> None:
        self.calendar.book(Interval.parse("11:00-18:00"), "Bob")
        self.assertEqual([str(gap) for gap in self.calendar.free()], ["08:00-09:00", "10:00-11:00"])

    def test_short_gaps_are_left_out(self) -> None:
        self.calendar.book(Interval.parse("10:20-18:00"), "Bob")
        self.assertEqual([str(gap) for gap in self.calendar.free(at_least=30)], ["08:00-09:00"])

    def test_cancelled_bookings_are_gone(self) -> None:
        self.calendar.book(Interval.parse("13:00-14:00"), "Ada")
        self.assertEqual(self.calendar.cancel("Ada"), 2)
        self.assertIsNone(self.calendar.who(540))


if __name__ == "__main__":
    unittest.main()
