"""Who is meant by what was typed behind `cancel` and `kill`."""

import msgspec
import pytest

from haltline.cli.receipts import Stopped, in_words, of
from haltline.cli.targets import Target, meant, session_of, short
from haltline.protocol.client_messages import Receipt
from haltline.protocol.events import CancelReceipt
from haltline.protocol.ids import SessionId, WorkerId

A, B = SessionId("ab120000"), SessionId("ab340000")
A_LLM, A_TOOL = WorkerId("llm-ab120000-1-355a240ca061"), WorkerId("tool-ab120000-2-0123456789ab")
B_LLM = WorkerId("llm-ab340000-1-99aabbccddee")
SESSION_A, SESSION_B = Target(session_id=A), Target(session_id=B)
LLM_OF_A = Target(session_id=A, worker="llm", worker_id=A_LLM)
TOOL_OF_A = Target(session_id=A, worker="tool", worker_id=A_TOOL)
LLM_OF_B = Target(session_id=B, worker="llm", worker_id=B_LLM)
LIVE = (SESSION_A, LLM_OF_A, TOOL_OF_A, SESSION_B, LLM_OF_B)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("ab120000", (SESSION_A,)),
        ("ab1", (SESSION_A,)),
        ("ab", (SESSION_A, SESSION_B)),
        ("ab1200001", ()),
        ("b12", ()),
        ("", ()),
        (A_LLM, (LLM_OF_A,)),
        ("llm-ab12", (LLM_OF_A,)),
        ("llm", (LLM_OF_A, LLM_OF_B)),
        ("llm-1", (LLM_OF_A, LLM_OF_B)),
        ("tool-2", (TOOL_OF_A,)),
        ("tool-1", ()),
        ("ab120000/llm", (Target(session_id=A, worker="llm"),)),
        ("ab1/tool", (Target(session_id=A, worker="tool"),)),
        ("ab/llm", (Target(session_id=A, worker="llm"), Target(session_id=B, worker="llm"))),
        ("ab1/", ()),
        ("/llm", ()),
        ("ab1/ll", ()),
        ("llm-ab120000-9", (Target(session_id=A, worker="llm", worker_id=WorkerId("llm-ab120000-9")),)),
    ],
)
def test_an_id_or_its_beginning_means(typed: str, found: tuple[Target, ...]) -> None:
    """The last: a worker that is gone, of a session that is there."""
    assert meant(typed, LIVE) == found


def test_an_id_that_is_also_a_beginning_means_itself() -> None:
    longer = Target(session_id=SessionId("ab1200001"))
    assert meant(A, (longer, SESSION_A)) == (SESSION_A,)


def test_the_parts_of_a_workers_id() -> None:
    assert (short(A_TOOL), short("odd")) == ("tool-2", "odd")
    assert [session_of(typed) for typed in (A_TOOL, "tool-2", "ab12", "ab12/llm")] == [
        "ab120000",
        "tool-2",
        "ab12",
        "ab12",
    ]


def test_a_receipt_is_a_line_for_people_and_an_object_for_programs() -> None:
    said = CancelReceipt(stream_ms=3.0, tools_ms=None, total_ms=2100.0, rung="kill", killed=1, survivors=0)
    row = of(Receipt(session_id=A, cancel=said))
    assert row == Stopped(session_id=A, stream_ms=3.0, total_ms=2100.0, rung="kill", killed=1)
    assert in_words(row, "stopped") == (
        "ab120000: stopped in 2.1 s: stream closed, 1 process ended by force, 0 left, rung kill"
    )
    again = of(Receipt(session_id=A, worker="llm", already_stopped=True))
    assert again == Stopped(session_id=A, worker="llm", already_stopped=True)
    assert in_words(again, "killed") == "ab120000, llm worker: already stopped"
    forced = Stopped(session_id=A, supervisor_ended=True, total_ms=9.0, rung="worker_kill", killed=7)
    ended = "in 9 ms: 7 processes ended by force, 0 left, rung worker_kill"
    assert in_words(forced, "killed") == f"ab120000: killed with its supervisor, which did not answer, {ended}"
    nameless = msgspec.structs.replace(forced, session_id=None)
    assert in_words(nameless, "killed") == f"a supervisor that did not answer: killed {ended}"
