"""How a conversation is made shorter: folds, cuts, what is kept in words (E1, E3)."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.long_history import histories, talk, turn

from haltline.protocol.conversation import AssistantMessage, Item, ToolResult, UserMessage
from haltline.supervisor import estimate, feedback, folding, history

ERROR = "error: the command failed with exit code 2. Read its output:\nmake: no rule\nmore\n" + "x" * 900


def results(items: tuple[Item, ...]) -> list[str]:
    return [item.text for item in items if isinstance(item, ToolResult)]


def size(items: tuple[Item, ...]) -> int:
    return sum(estimate.characters(item) for item in items)


def test_a_failed_call_keeps_its_tool_the_head_of_its_arguments_its_status_and_its_first_line() -> None:
    """E1."""
    items = (UserMessage(text="go"), *turn(1, ERROR, ok=False, name="shell"), *turn(2, "fresh"))
    folded, fresh = results(folding.fold(items, 1))
    assert folded == (
        '[folded to save room: shell {"path":"file_1_0.py"}: failed: '
        "error: the command failed with exit code 2. Read its output: make: no rule]"
    )
    assert fresh == "fresh"


def test_a_call_that_went_well_keeps_its_size_and_status() -> None:
    folded, _ = results(folding.fold((*talk(1, characters=5_000), *turn(7, "fresh")), 1))
    assert folded == (
        '[folded to save room: read_file {"path":"file_0_0.py"}: done, 5000 characters; call it again if you need them]'
    )


@pytest.mark.parametrize(("kept", "whole"), [(4, 4), (1, 1)])
def test_the_latest_results_stay_whole(kept: int, whole: int) -> None:
    texts = results(folding.fold(talk(9), kept))
    assert [len(text) for text in texts[-whole:]] == [4_000] * whole
    assert all(len(text) < 200 for text in texts[:-whole])


def test_a_short_result_is_not_replaced_by_a_longer_line() -> None:
    items = (*talk(3, characters=20), *turn(9, "fresh"))
    assert folding.fold(items, 1) == items


def test_results_that_the_model_has_answered_to_are_folded_when_the_next_prompt_comes() -> None:
    items = (*talk(1), AssistantMessage(text="done"), UserMessage(text="next"))
    assert len(results(folding.fold(items, 1))[0]) < 200


def test_a_long_result_without_an_answer_keeps_its_head_and_tail() -> None:
    items = (*talk(2), *turn(9, "HEAD" + "x" * 30_000 + "TAIL"))
    *older, last = results(folding.shorten(items))
    assert older == ["r" * 4_000] * 2
    assert last.startswith("HEAD")
    assert "TAIL\n[shortened:" in last
    assert len(last) < 2_300


def test_the_prompt_of_the_run_stays_word_for_word_and_earlier_ones_stay_bounded() -> None:
    """E3."""
    long = "p" * 9_000
    items = (
        *(item for number in range(6) for item in (UserMessage(text=f"{number} {long}"), AssistantMessage(text="ok"))),
        UserMessage(text=f"the task {long}"),
        *turn(1, "a"),
        UserMessage(text="not the user's", tag="nudge"),
        *turn(2, "b"),
    )
    place = folding.cut(items, 100)
    *prompts, summary = folding.rebuilt(items, place, "SUMMARY")[: -len(items[place:])]
    assert [prompt.text[:8] for prompt in prompts if isinstance(prompt, UserMessage)] == [
        "3 pppppp",
        "4 pppppp",
        "5 pppppp",
        "the task",
    ]
    assert isinstance(prompts[-1], UserMessage)
    assert prompts[-1].text == f"the task {long}"
    assert summary == feedback.summary("SUMMARY")
    assert items[place:] == turn(2, "b")


def test_three_compactions_in_a_row_leave_no_result_without_its_call() -> None:
    """R75: over a history of 40 calls."""
    items: tuple[Item, ...] = talk(40, said=300)
    for number in range(3):
        items = folding.fold(items, 1)
        items = folding.rebuilt(items, folding.cut(items, 3_000), f"summary {number}")
        assert history.check(items) is None
        assert items[0] == UserMessage(text="mend the parser")
        assert [item.tag for item in items if isinstance(item, UserMessage)] == [None, "summary"]
        items += turn(100 + number, "more", text="x" * 4_000)


@given(items=histories(), kept=st.integers(1, 5), recent=st.integers(0, 20_000), summary=st.text(min_size=1))
def test_whatever_is_folded_cut_or_shortened_stays_valid_and_never_grows(
    items: tuple[Item, ...], kept: int, recent: int, summary: str
) -> None:
    """K1, R75: at every place where it may be cut."""
    folded = folding.fold(items, kept)
    assert history.check(folded) is None
    assert size(folded) <= size(items)
    assert folding.fold(folded, kept) == folded
    assert [type(item) for item in folded] == [type(item) for item in items]
    short = folding.shorten(folded)
    assert history.check(short) is None
    assert size(short) <= size(folded)
    place = folding.cut(folded, recent)
    if place:
        assert history.check(folding.rebuilt(folded, place, summary)) is None
        assert size(folded[place:]) <= recent or not any(
            isinstance(item, AssistantMessage) for item in folded[place + 1 :]
        )


@given(items=histories(), most=st.integers(200, 30_000))
def test_a_transcript_is_as_long_as_it_may_be_and_no_longer(items: tuple[Item, ...], most: int) -> None:
    text = folding.transcript(items, most)
    hypothesis.target(len(text))
    assert len(text) <= most + len("\n[... 999999 bytes left out ...]\n")


def test_a_transcript_tells_who_said_what() -> None:
    items = (
        UserMessage(text="go"),
        *turn(1, "a.py", "no such file", text="I look.", ok=False),
        UserMessage(text="stopped", tag="interrupted"),
    )
    assert folding.transcript(items, 5_000).split("\n\n") == [
        "The user: go",
        "The assistant: I look.",
        'It called read_file {"path":"file_1_0.py"}',
        'It called read_file {"path":"file_1_1.py"}',
        "Result of read_file (failed): a.py",
        "Result of read_file (failed): no such file",
        "The harness (interrupted): stopped",
    ]
