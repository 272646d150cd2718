"""What a response is made of, whatever its wire format: the outputs of a reader, in order."""

import msgspec

from haltline.protocol.conversation import Reasoning, Usage
from haltline.protocol.kinds import Finish
from haltline.protocol.messages import CallDraft


class Happening(msgspec.Struct, frozen=True):
    pass


class Text(Happening, frozen=True):
    text: str


class ReasoningText(Happening, frozen=True):
    text: str


class Step(Happening, frozen=True):
    """The model did something that is not shown: began, wrote a piece of a call, said why it ended."""


class Finished(Happening, frozen=True):
    """The positive end signal came (D2). `last`: nothing follows; else usage may."""

    last: bool


class ErrorReport(Happening, frozen=True):
    """The provider reports an error. `data`: its own words, whole."""

    data: str
    in_stream: bool


class Malformed(Happening, frozen=True):
    """Something that cannot be read, and its text."""

    words: str
    data: str
    in_stream: bool


AnyHappening = Text | ReasoningText | Step | Finished | ErrorReport | Malformed


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What has been assembled of a response so far."""

    finish: Finish | None = None
    """None: no positive end signal came."""
    finish_raw: str = ""
    calls: tuple[CallDraft, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()
    usage: Usage | None = None
    refusal: str = ""
