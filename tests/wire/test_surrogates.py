"""No half character leaves the worker (R87)."""

from __future__ import annotations

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from haltline.worker.llm.surrogates import mend

PIECES = ("\\ud83c", "\\uDF89", "\\uD83C\\udf89", "\\\\", "\\n", "\\u00e9", "ud83c", "x", "\u00e9", "\x00")


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("\\\\ud83c")
@example("\\\\\\ud83c")
@example("\\ud83c\\ud83c\\udf89\\udf89")
@example("\x00\x01\x02\ue000")
def test_each_half_is_replaced_and_nothing_else(text: str) -> None:
    """A pair is one character, and behind an escaped backslash there is no escape."""
    whole: str = json.loads(f'"{text}"', strict=False)
    assert json.loads(f'"{mend(text)}"', strict=False) == re.sub("[\ud800-\udfff]", "\ufffd", whole)


def test_text_without_a_half_is_untouched() -> None:
    for text in ("", "x\\u00e9", "\\ud83c\\udf89", "\\\\ud83c", "\\\\\\\\udf89 \x00"):
        assert mend(text) == text
