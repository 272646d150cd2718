import unittest

from rooms import Interval
from rooms.interval import format_time, parse_time


class TimeTest(unittest.TestCase):
    def test_a_time_is_read_as_minutes(self) -> None:
        self.assertEqual(parse_time("00:00"), 0)
        self.assertEqual(parse_time("09:30"), 570)
        self.assertEqual(parse_time("24:00"), 1440)

    def test_what_is_no_time_is_refused(self) -> None:
        for text in ("", "9", "09:60", "24:01", "ab:cd", "-1:00"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                parse_time(text)

    def test_a_time_is_written_as_it_is_read(self) -> None:
        for minutes in (0, 59, 60, 61, 1439):
            self.assertEqual(parse_time(format_time(minutes)), minutes)


class IntervalTest(unittest.TestCase):
    def test_an_interval_has_a_length(self) -> None:
        self.assertEqual(Interval.parse("09:30-10:15").minutes, 45)

    def test_an_empty_interval_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            Interval(540, 540)

    def test_it_contains_its_start_and_not_its_end(self) -> None:
        morning = Interval.parse("09:00-12:00")
        self.assertTrue(morning.contains(540))
        self.assertTrue(morning.contains(719))
        self.assertFalse(morning.contains(720))
        self.assertFalse(morning.contains(539))

    def test_intervals_overlap_in_either_order(self) -> None:
        early, late = Interval.parse("09:00-10:00"), Interval.parse("09:30-11:00")
        self.assertTrue(early.overlaps(late))
        self.assertTrue(late.overlaps(early))

    def test_it_is_shown_as_it_is_written(self) -> None:
        self.assertEqual(str(Interval.parse("08:05-09:00")), "08:05-09:00")


if __name__ == "__main__":
    unittest.main()
