"""What counts as a number of tokens (D6, R61)."""

from __future__ import annotations

import msgspec
import pytest

from haltline.protocol import codec
from haltline.protocol.conversation import Usage
from haltline.protocol.ids import SessionId
from haltline.protocol.messages import CancelAcknowledged
from haltline.worker.llm.chat_usage import ChatUsage
from haltline.worker.llm.counts import MAX_COUNT


def reported(*usages: str) -> Usage | None:
    meter = ChatUsage()
    for usage in usages:
        meter.report(msgspec.Raw(usage.encode()))
    return meter.total()


@pytest.mark.parametrize(
    "count",
    [
        "1e308",
        "1e999",
        "-5",
        "99999999999999999999999",
        "1" * 5000,
        "18446744073709551616",
        '"12"',
        "true",
        "0.5",
        "[]",
    ],
)
@pytest.mark.parametrize("name", ["completion_tokens", "total_tokens", "prompt_cache_hit_tokens"])
def test_what_is_no_count_is_ignored_and_the_rest_of_the_report_holds(name: str, count: str) -> None:
    """One of 1e308 tokens ended the worker: no message can hold it."""
    assert reported(f'{{"prompt_tokens": 7, "{name}": {count}}}') == Usage(input=7)


def test_a_whole_number_with_a_fraction_of_nought_is_a_count() -> None:
    assert reported('{"prompt_tokens": 7.0, "completion_tokens": 2e1}') == Usage(input=7, output=20)


def test_the_largest_counts_fit_into_a_message() -> None:
    usage = reported(f'{{"prompt_tokens": {MAX_COUNT}, "total_tokens": {MAX_COUNT}, "completion_tokens": {MAX_COUNT}}}')
    assert usage == Usage(input=MAX_COUNT, output=MAX_COUNT)
    said = CancelAcknowledged(session_id=SessionId("5e551011"), generation=1, level=1, usage=usage)
    assert codec.from_worker.decode(codec.from_worker.encode(said)) == said


def test_a_report_without_any_count_is_none() -> None:
    """Then the supervisor estimates."""
    assert reported('{"prompt_tokens": "seven", "completion_tokens": -1}') is None
    assert reported('{"prompt_tokens": 0}') == Usage()
