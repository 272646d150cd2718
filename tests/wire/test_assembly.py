"""What the pieces of calls cost, and when the argument text of a call counts as whole (L5, R36, R38)."""

from __future__ import annotations

import json
import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from haltline.worker.llm.argument_text import SLICE, ArgumentText, is_object
from haltline.worker.llm.assembly import Assembly, Piece

PIECES = 30_000
ENOUGH_S = 3.0
"""The linear way takes below 0.2 s on any machine; the quadratic ones took 15 s and more."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\{}[]\u00e9 ,:')),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
    max_leaves=8,
)


def cpu_s_of(pieces: list[Piece]) -> float:
    calls = Assembly()
    began = time.process_time()
    for piece in pieces:
        calls.add(piece)
    return time.process_time() - began


def test_many_calls_cost_no_more_each_than_few() -> None:
    """L5: the one that a piece belongs to was looked for among all calls."""
    assert cpu_s_of([Piece(index=i, id=f"c{i}", name="shell") for i in range(PIECES)]) < ENOUGH_S


def test_a_name_in_every_piece_costs_no_more_the_longer_the_arguments_are() -> None:
    """L5: all that had come was joined and parsed once per piece."""
    assert cpu_s_of([Piece(index=0, name="shell", arguments="x" * 50 + "}") for _ in range(PIECES)]) < ENOUGH_S
    opened = Piece(index=0, name="shell", arguments='{"a":"')
    assert cpu_s_of([opened, *(Piece(index=0, name="shell", arguments="x}") for _ in range(PIECES))]) < ENOUGH_S


def test_an_id_used_twice_means_the_call_that_was_opened_last() -> None:
    calls = Assembly()
    for piece in (
        Piece(index=0, id="a", name="one", arguments="{}"),
        Piece(index=1, id="a", name="two", arguments='{"b":'),
        Piece(index=0, arguments=" "),
        Piece(id="a", arguments="1}"),
    ):
        calls.add(piece)
    assert [(call.name, call.arguments_raw) for call in calls.calls(ended=True, cut=False)] == [
        ("one", "{} "),
        ("two", '{"b":1}'),
    ]


@given(
    st.dictionaries(st.text(max_size=3), JSON, max_size=4).map(json.dumps)
    | JSON.map(json.dumps)
    | st.text(st.sampled_from('{}[]"\\a:1, \n')),
    st.lists(st.integers(0, 40), max_size=8),
    st.booleans(),
)
def test_arguments_are_whole_exactly_when_their_text_is_an_object(text: str, places: list[int], often: bool) -> None:
    """However they are cut, and whether or not it is asked in between."""
    arguments, so_far = ArgumentText(), ""
    for start, end in pairwise(sorted({0, len(text), *(place for place in places if place < len(text))})):
        arguments.add(text[start:end])
        so_far += text[start:end]
        if often:
            assert arguments.is_whole() == is_object(so_far)
    assert arguments.is_whole() == is_object(so_far)
    assert str(arguments) == so_far


def test_arguments_longer_than_a_slice_are_counted_on() -> None:
    text = json.dumps({"a": "}\\" * SLICE, "b": [{}]})
    arguments = ArgumentText()
    arguments.add(text[:-1])
    assert not arguments.is_whole()
    arguments.add(text[-1])
    assert arguments.is_whole()
