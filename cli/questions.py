"""Approval questions on a terminal: asked one at a time, answered with a line. Pure."""

from collections import deque
from typing import Final

import msgspec

from haltline.cli import asked
from haltline.cli.printable import fit, one_line
from haltline.protocol.events import Approval, ToolResult, ToolUse
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import ApprovalAnswer

ENTER: Final = "type y, Y, n or a, then Enter > "
KEYS: Final = (
    "[y] once  [Y] this tool for the session  [a] everything for the session  [n] no; `n WORDS` tells the model why\n"
    + ENTER
)
_SHOWN_COLUMNS: Final = 40
"""Of a line that is no answer."""
_ANSWERS: Final[dict[str, ApprovalAnswer]] = {
    "y": "yes",
    "yes": "yes",
    "Y": "always_tool",
    "n": "no",
    "no": "no",
    "N": "no",
    "a": "always_all",
}


_ECHOES: Final[dict[ApprovalAnswer, str]] = {
    "yes": "allowed once",
    "always_tool": "allowed for this session",
    "always_all": "everything allowed for this session",
    "no": "denied",
}


class Reply(msgspec.Struct, frozen=True):
    call_id: CallId
    answer: ApprovalAnswer
    words: str = ""
    tool: str = ""
    """Its name, for the echo."""

    @property
    def echo(self) -> str:
        """What was understood."""
        return f"{self.tool}: {_ECHOES[self.answer]}" + (f" ({one_line(self.words)})" if self.words else "")


class Questions:
    """The questions that wait for a person, oldest first."""

    def __init__(self) -> None:
        self._open: deque[Approval] = deque()
        self._calls: dict[CallId, ToolUse] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def note(self, call: ToolUse | ToolResult) -> None:
        """A call that may be asked about, until it has its result."""
        if isinstance(call, ToolUse):
            self._calls[call.call_id] = call
        else:
            self._calls.pop(call.call_id, None)

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
        """The oldest question and what it is about, without a line end: the answer is typed behind it."""
        question = self._open[0]
        call = self._calls.get(question.call_id)
        more = () if call is None else asked.in_full(call.name, call.arguments_raw)
        return "\n".join((one_line(question.question), *(f"  {line}" for line in more), KEYS))

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
        self._calls.clear()

    def _close(self, answer: ApprovalAnswer, words: str) -> Reply:
        call_id = self._open.popleft().call_id
        call = self._calls.get(call_id)
        return Reply(call_id, answer, words, "the call" if call is None else call.name)


def no_answer(line: str) -> str:
    """What is said to a line that is none of the answers."""
    return f"{fit(one_line(line), _SHOWN_COLUMNS)!r} is no answer; {ENTER}"
