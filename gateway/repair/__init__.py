"""The scenario `repair`: a rule-based model that mends a failing test through the tools.

It is no recording. Each response is decided from the messages of the request alone (knowledge.py rebuilds what they
say, policy.py decides), so it goes where the tool results lead, survives a restart of the server, and can be wrong.
"""

import json
from collections.abc import Iterator

from haltline.gateway.conversation import Request
from haltline.gateway.repair.knowledge import learn
from haltline.gateway.repair.policy import decide
from haltline.gateway.steps import End, Piece, Step, ToolCall


def respond(request: Request) -> Iterator[Step]:
    """The steps of the next response."""
    response = decide(learn(request.messages), request.tools)
    for piece in _pieces(response.text):
        yield Piece(piece)
    for ask in response.asks:
        yield ToolCall(ask.tool, json.dumps(ask.arguments))
    yield End("tool_calls" if response.asks else "stop")


def _pieces(text: str) -> Iterator[str]:
    """Words, each with the space that follows it."""
    words = text.split(" ")
    for number, word in enumerate(words, start=1):
        yield word if number == len(words) else f"{word} "
