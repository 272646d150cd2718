"""The written list of mutations: closed under inversion, and blind to strings and comments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haltline.gateway.mutations import break_line, code_lines, is_python, mutations

LINES = (
    "if a < b and not c:",
    "    while index <= len(items) - 1:",
    "return total + 10 if ready or x == 3 else -total",
    "elif not (low > high):",
    "self.open = True",
    "count -= 2",
    'if text[0] != "<" or "a and b" == text:  # 1 < 2 and so on',
    "def f(x: int = 0) -> bool:",
    "value = a >= 1.5",
)


@pytest.mark.parametrize("line", LINES)
def test_each_mutation_is_undone_by_another(line: str) -> None:
    for mutation in mutations(line):
        assert line in [back.line for back in mutations(mutation.line)], mutation


def test_the_mutations_of_a_line() -> None:
    found = {mutation.line for mutation in mutations("if a <= 1 and b:")}
    assert found == {
        "if a < 1 and b:",
        "if a > 1 and b:",
        "if a >= 1 and b:",
        "if a == 1 and b:",
        "if a != 1 and b:",
        "if a <= 0 and b:",
        "if a <= 2 and b:",
        "if a <= 1 or b:",
        "if not a <= 1 and b:",
    }


def test_likely_mistakes_come_first() -> None:
    assert [mutation.line for mutation in mutations("x = a < 1")][:3] == ["x = a <= 1", "x = a < 0", "x = a < 2"]


@pytest.mark.parametrize("line", ["# a < b", "x = 'a < b and 1'", 's = "True"', "x = f(a)", "@decorated", "p: A -> B"])
def test_strings_comments_and_other_operators_are_left_alone(line: str) -> None:
    assert mutations(line) == []


@given(st.sampled_from(LINES), st.integers())
def test_a_seed_always_breaks_the_same_line_and_only_that(line: str, seed: int) -> None:
    source = f'"""Doc 1 < 2.\n\nif 3 > 2\n"""\n\ndef f():\n    x = 1\n    {"pass" if not is_python(line) else line}\n'
    if not is_python(source):
        return
    broken = break_line(source, seed)
    assert broken == break_line(source, seed)
    before, after = source.split("\n"), broken.text.split("\n")
    changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True), 1) if old != new]
    assert changed == [broken.line_no]
    assert (before[broken.line_no - 1], after[broken.line_no - 1]) == (broken.before, broken.after)
    assert is_python(broken.text)
    assert broken.line_no not in (1, 2, 3, 4)


def test_the_inside_of_long_strings_is_no_code() -> None:
    assert code_lines('x = 1\ny = """\n1 < 2\n"""\nz = 2') == {1, 5}


def test_wanted_lines_are_respected() -> None:
    source = "a = 1\nb = 2\nc = 3\n"
    assert {break_line(source, seed, wanted_lines=(2,)).line_no for seed in range(20)} == {2}
    with pytest.raises(ValueError, match="no line here"):
        break_line(source, 1, wanted_lines=())
