"""Who gets which receipt, and when: not before what it says was seen (F1)."""

from __future__ import annotations

from typing import cast

from haltline.protocol.client_messages import Receipt, ToClient
from haltline.protocol.events import CancelReceipt
from haltline.protocol.ids import SessionId, WorkerId
from haltline.supervisor.clients import ClientId, ClientLane
from haltline.supervisor.receipts import Killing, Request

CLIENT = ClientId(b"second terminal")
A, B = SessionId("a0000000"), SessionId("b0000000")
LLM, TOOL = WorkerId("llm-a"), WorkerId("tool-a")
STOPPED = CancelReceipt(stream_ms=1.0, tools_ms=None, total_ms=2.0, rung="ack", killed=0, survivors=0)


class Lane:
    """What was sent to the client."""

    def __init__(self) -> None:
        self.sent: list[ToClient] = []

    def send(self, client: ClientId, message: ToClient) -> None:
        assert client == CLIENT
        self.sent.append(message)

    def request(self, *sessions: SessionId) -> Request:
        return Request(CLIENT, cast(ClientLane, self), sessions)


def test_each_session_is_answered_when_its_own_stop_is_done_and_the_last_one_says_so() -> None:
    lane = Lane()
    request = lane.request(A, B)
    answer_a, answer_b = request.answer_for(A), request.answer_for(B)
    assert lane.sent == []
    answer_b(STOPPED)
    assert lane.sent == [Receipt(session_id=B, cancel=STOPPED, last=False)]
    answer_a(None)
    assert lane.sent[1:] == [Receipt(session_id=A, already_stopped=True)]


def test_a_supervisor_without_sessions_answers_at_once() -> None:
    lane = Lane()
    lane.request()
    assert lane.sent == [Receipt(session_id=None, already_stopped=True)]


def test_workers_that_are_killed_together_are_gone_when_the_last_tree_was_swept() -> None:
    answered: list[CancelReceipt | None] = []
    killing = Killing((LLM, TOOL), (answered.append,), began_s=10.0, rung="worker_kill")
    killing.look(10.0)
    killing.swept(WorkerId("somebody else's"), 10.1, killed=9, survivors=9)
    killing.swept(TOOL, 10.2, killed=3, survivors=0)
    killing.swept(TOOL, 10.3, killed=3, survivors=0)
    assert (answered, killing.over) == ([], False)
    killing.swept(LLM, 10.5, killed=0, survivors=0)
    gone = CancelReceipt(stream_ms=None, tools_ms=None, total_ms=500.0, rung="worker_kill", killed=3, survivors=0)
    assert (answered, killing.over) == ([gone], True)
    killing.give_up(13.0)
    assert answered == [gone]


def test_a_worker_that_was_not_seen_gone_in_time_is_a_survivor() -> None:
    answered: list[CancelReceipt | None] = []
    killing = Killing((LLM, TOOL), (answered.append,), began_s=0.0, rung="pidns", tools_open=True)
    killing.swept(LLM, 0.1, killed=0, survivors=0)
    killing.give_up(3.0)
    assert answered == [
        CancelReceipt(stream_ms=None, tools_ms=3000.0, total_ms=3000.0, rung="pidns", killed=0, survivors=1)
    ]


def test_where_nobody_lives_nothing_is_waited_for() -> None:
    answered: list[CancelReceipt | None] = []
    Killing((), (answered.append,), began_s=5.0, rung="worker_kill").look(5.0)
    assert answered == [
        CancelReceipt(stream_ms=None, tools_ms=None, total_ms=0.0, rung="worker_kill", killed=0, survivors=0)
    ]
