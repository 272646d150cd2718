"""Approval questions on a terminal: asked one at a time, answered with a line. Pure."""

from collections import deque
from typing import Final

import msgspec

from haltline.cli.printable import one_line
from haltline.protocol.events import Approval
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import ApprovalAnswer

KEYS: Final = "[y] yes  [Y] this tool for the session  [n] no, and why  [a] everything for the session > "
_ANSWERS: Final[dict[str, ApprovalAnswer]] = {
    "y": "yes",
    "yes": "yes",
    "Y": "always_tool",
    "n": "no",
    "no": "no",
    "N": "no",
    "a": "always_all",
}


class Reply(msgspec.Struct, frozen=True):
    call_id: CallId
    answer: ApprovalAnswer
    words: str = ""


class Questions:
    """The questions that wait for a person, oldest first."""

    def __init__(self) -> None:
        self._open: deque[Approval] = deque()

    def __bool__(self) -> bool:
        return bool(self._open)

    def hear(self, approval: Approval) -> bool:
        """A question, or its answer by whatever way. True: the question to be asked now is another one."""
        before = self._open[0] if self._open else None
        if approval.answer is None:
            self._open.append(approval)
        else:
            self._open = deque(question for question in self._open if question.call_id != approval.call_id)
        now = self._open[0] if self._open else None
        return now is not None and now is not before

    def text(self) -> str:
        """The oldest question, without a line end: the answer is typed behind it."""
        return f"{one_line(self._open[0].question)}\n{KEYS}"

    def answer(self, line: str) -> Reply | None:
        """The reply to the oldest question, which is then closed; None where `line` is no answer."""
        word, _, words = line.strip().partition(" ")
        answer = _ANSWERS.get(word)
        if answer is None or (words and answer != "no"):
            return None
        return self._close(answer, words.strip())

    def end_of_input(self) -> Reply:
        """The person closed the input: no."""
        return self._close("no", "")

    def clear(self) -> None:
        self._open.clear()

    def _close(self, answer: ApprovalAnswer, words: str) -> Reply:
        return Reply(self._open.popleft().call_id, answer, words)
