"""What the client has seen of its session, so that it can write the last line itself when nobody else can. Pure."""

from haltline.protocol import events, exits
from haltline.protocol.conversation import Usage
from haltline.protocol.ids import SessionId
from haltline.protocol.kinds import Reason
from haltline.protocol.lines import Line

UNOPENED = SessionId("00000000")
"""Stands for a session that never was opened."""


class Seen:
    def __init__(self) -> None:
        self.session_id: SessionId | None = None
        self._seq = 0
        self._run = 1
        self._turn = 0
        self._text = ""
        self._deltas: list[str] = []
        self._tool_calls = 0
        self._tool_runs = 0

    def note(self, line: Line) -> None:
        self._seq, self._run, self._turn = line.seq, line.run, line.turn
        match line.event:
            case events.Message(role="assistant", delta=True, text=text):
                self._deltas.append(text)
            case events.Message(role="assistant", text=text):
                self._text, self._deltas = text, []
            case events.ToolUse():
                self._tool_calls += 1
            case events.ToolStart():
                self._tool_runs += 1
            case events.Result():
                self._text, self._deltas = "", []
                self._tool_calls = self._tool_runs = 0
            case _:
                return

    def last_line(self, reason: Reason, message: str, *, ts: str, ms: int, terminated: bool = False) -> Line:
        """The `result` that the supervisor did not write. `ts`: RFC 3339; `ms`: since the run began."""
        result = events.Result(
            reason=reason,
            message=message,
            text="".join(self._deltas) or self._text,
            retryable=False,
            exit_code=exits.exit_code(reason, terminated=terminated),
            usage=Usage(estimated=True),
            counters=events.Counters(),
            turns=self._turn,
            attempts=self._turn,
            tool_calls=self._tool_calls,
            tool_runs=self._tool_runs,
            ms=ms,
        )
        return Line(
            seq=self._seq + 1,
            ts=ts,
            session_id=self.session_id or UNOPENED,
            run=self._run,
            turn=self._turn,
            event=result,
        )
