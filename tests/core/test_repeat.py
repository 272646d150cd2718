"""The detector of the same call made again and again (H1, H2, H8)."""

from haltline.protocol.messages import Outcome
from haltline.supervisor.repeat import POLLS, SLOW_S, Window, ended, ladder, moved, seen


def result(text: str = "same") -> Outcome:
    return Outcome(status="done", changed="nothing", exit_code=0, text=text, ms=1)


class Model:
    """Makes calls one after another, each of which ends at once."""

    def __init__(self) -> None:
        self.window = Window()
        self.now = 0.0

    def calls(self, raw: str, text: str = "same", name: str = "shell", after_s: float = 0.0) -> bool:
        """Whether the call was let through."""
        self.now += after_s
        verdict = seen(self.window, name, raw, self.now)
        self.window = verdict.window
        if not verdict.refused:
            self.window = ended(self.window, name, raw, result(text), self.now)
        return not verdict.refused


def test_the_third_identical_call_and_every_one_after_it_is_refused() -> None:
    model = Model()
    assert [model.calls("{}") for _ in range(6)] == [True, True, False, False, False, False]
    assert model.window.streak == 6


def test_another_call_in_between_starts_anew() -> None:
    """R56."""
    model = Model()
    assert all(model.calls(raw) for raw in ("a", "a", "b", "a", "a", "b"))


def test_one_different_space_is_a_different_call_but_not_at_the_ends() -> None:
    model = Model()
    assert [model.calls(raw) for raw in ('{"a":1}', '{"a": 1}', '{"a":1}', ' {"a":1}\n', '{"a":1}')] == [
        True,
        True,
        True,
        True,
        False,
    ]


def test_another_tool_with_the_same_arguments_is_a_different_call() -> None:
    model = Model()
    assert all(model.calls("{}", name=name) for name in ("glob", "search", "glob", "search"))


def test_changing_results_are_polling_up_to_ten_in_a_row() -> None:
    """R53."""
    model = Model()
    assert [model.calls("{}", f"line {number}") for number in range(POLLS + 2)] == [True] * POLLS + [False, False]


def test_polling_ends_when_two_results_are_the_same() -> None:
    model = Model()
    assert [model.calls("{}", text) for text in ("1", "2", "3", "3", "4")] == [True, True, True, True, False]


def test_a_call_whose_forerunner_is_still_open_is_no_polling() -> None:
    window = Window()
    for text in ("1", "2"):
        window = ended(seen(window, "t", "{}", 0.0).window, "t", "{}", result(text), 0.0)
    window = seen(window, "t", "{}", 0.0).window
    assert seen(window, "t", "{}", 0.0).refused


def test_a_call_after_a_minute_does_not_count() -> None:
    """R54."""
    model = Model()
    assert all(model.calls("{}", after_s=SLOW_S) for _ in range(9))
    assert model.window.streak == 1


def test_the_tenth_slow_call_is_told_of_once() -> None:
    model = Model()
    told: list[bool] = []
    for _ in range(14):
        model.now += SLOW_S
        told.append(seen(model.window, "shell", "{}", model.now).slow)
        model.calls("{}")
    assert told == [False] * 10 + [True] + [False] * 3


def test_time_in_which_nothing_ran_is_no_pause() -> None:
    model = Model()
    model.calls("{}")
    model.window = moved(model.window, 100.0)
    model.now += 100.0
    assert model.calls("{}")
    assert model.window.streak == 2


def test_a_late_end_of_an_earlier_call_does_not_count_for_the_present_one() -> None:
    window = seen(seen(Window(), "t", "a", 0.0).window, "t", "b", 0.0).window
    assert ended(window, "t", "a", result(), 1.0) == window


def test_the_ladder_has_three_steps() -> None:
    assert [ladder(trips) for trips in (1, 2, 3, 4)] == ["feedback", "deduct", "stop", "stop"]
