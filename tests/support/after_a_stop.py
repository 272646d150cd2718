"""What has to be true after every stop, whatever was stopped in whatever state (F1, F8, F9, G1, K1)."""

from __future__ import annotations

import os
import re

from support import survivors
from support.conversation import Conversation, Footing, Run
from support.puppet_gateway import DONE, Said, broken_rule, told_between
from support.scripted_gateway import Gateway

NEXT = "what now?"


def nothing_goes_on(conversation: Conversation, stopped: Run) -> None:
    """At the moment of `result`, without any time to settle: nothing that the run had started is alive, `result` is the
    last word, and each call has one result."""
    strangers = conversation.strangers()
    assert not strangers, f"alive after the stop: {', '.join(map(str, strangers))}"
    assert (stopped.result["type"], len(stopped.of("result"))) == ("result", 1)
    used = [event["call_id"] for event in stopped.of("tool_use")]
    assert [event["call_id"] for event in stopped.of("tool_result")] == used


def told_next(conversation: Conversation, gateway: Gateway, order: str, footing: Footing | None = None) -> list[Said]:
    """The next prompt is taken at once and its request is valid; what was said between the two, times as `N`. By then
    the session holds what it held before, where there was a before."""
    answered = conversation.ask(NEXT)
    assert (answered.result["reason"], answered.result["text"]) == ("completed", DONE)
    body = gateway.requests(session=conversation.session_id)[-1].body
    assert broken_rule(body) is None
    now = conversation.settled()
    assert footing in (None, now), f"{now} where it was {footing}"
    return [
        Said(said.role, re.sub(r"\b\d+\.\d s\b", "N s", said.text), said.calls)
        for said in told_between(body, order, NEXT)
    ]


def quits(conversation: Conversation) -> None:
    """The input ends behind a run that was stopped."""
    assert conversation.leave().exit_code == 130


def leaves(conversation: Conversation) -> None:
    """The session ends in good order, `result` last, and when the client is gone nothing is left."""
    ended = conversation.leave()
    left = [one for one in survivors.descendants(os.getpid()) if one not in conversation.before]
    assert not left, f"alive after the session: {', '.join(map(str, left))}"
    assert (ended.exit_code, ended.result["reason"]) == (0, "completed"), ended.stderr
