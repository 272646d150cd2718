"""The output for people. stdout: the assistant's text and nothing else; stderr: everything else. Pure.

1. Text is taken from deltas as they come; a whole message is shown only where no delta came before it.
2. Line ends at the end of a message are held back, so that stdout ends with exactly one, and two messages of a
   run are apart by one, whatever the model sent.
3. On a terminal a call is one line, shown when it ended; while it runs, and while anything is waited for, a
   status line says so and counts. Without a terminal each fact is a plain line of its own.
4. A stranger's text is made harmless: always in lines of ours, and on a terminal also the assistant's.
"""

import math
from typing import Final, Literal, assert_never

import msgspec

from haltline.cli import result_words, tool_words
from haltline.cli.pieces import Piece, note
from haltline.cli.printable import for_screen, one_line
from haltline.protocol import events
from haltline.protocol.ids import CallId
from haltline.protocol.kinds import Handling
from haltline.protocol.lines import Line


class _Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """What the status line shows: seconds left until `moment`, or gone by since."""

    words: str
    moment: float
    counts: Literal["down", "up"]
    more: str = ""
    """After the seconds."""

    def at(self, now: float) -> str:
        if self.counts == "down":
            return f"{self.words} in {max(0, math.ceil(self.moment - now))} s{self.more}"
        gone_s = int(now - self.moment)
        return f"{self.words}, {gone_s} s" if gone_s else self.words


class TextView:
    """`out_terminal`, `err_terminal`: what stands behind the two streams. `colour`: only with `err_terminal`."""

    def __init__(self, *, out_terminal: bool, err_terminal: bool, colour: bool = False) -> None:
        self._out_terminal = out_terminal
        self._err_terminal = err_terminal
        self._colour = colour
        self._message_has_deltas = False
        self._text_shown = False
        self._held: str = ""
        self._calls: dict[CallId, str] = {}
        self._running: dict[CallId, _Waiting] = {}
        self._waiting: _Waiting | None = None
        self._silence_told_ms = 0

    def show(self, line: Line, now: float) -> tuple[Piece, ...]:
        event = line.event
        if not isinstance(event, events.Worker):
            self._waiting = None
            self._silence_told_ms = 0
        match event:
            case events.Message():
                return self._message(event)
            case events.ToolUse():
                self._calls[event.call_id] = tool_words.head(event.name, event.arguments_raw)
                return ()
            case events.ToolStart():
                return self._tool_start(event, now)
            case events.ToolResult():
                return self._tool_result(event)
            case events.Retry():
                return self._retry(event, now)
            case events.Worker():
                return self._worker(event, now)
            case events.Result():
                return self._result(event)
            case events.CancelStep():
                return self._cancel(event)
            case events.Error():
                return self._error(event)
            case events.Compaction():
                return self._line("dim", _compaction(event))
            case events.Continuation():
                return self._line("dim", f"cut by the output limit, continuing, {event.count} of {event.of}")
            case events.Loop():
                return self._line(
                    "dim", f"going in circles ({event.detector}, {event.count}): {_LOOP_WORDS[event.action]}"
                )
            case events.Budget():
                return self._budget(event)
            case events.Approval():
                return self._approval(event)
            case events.Init() | events.Reasoning():
                return ()
            case _:
                assert_never(event)

    def status(self, now: float) -> str | None:
        if not self._err_terminal:
            return None
        waiting = self._waiting or next(reversed(self._running.values()), None)
        return None if waiting is None else waiting.at(now)

    def _message(self, message: events.Message) -> tuple[Piece, ...]:
        if message.role == "user":
            return ()
        if message.delta:
            self._message_has_deltas = True
            return self._text(message.text)
        pieces = () if self._message_has_deltas else self._text(message.text)
        self._message_has_deltas = False
        if self._text_shown:
            self._held = "\n"  # rule 2: one, whatever was held
        return pieces

    def _text(self, text: str) -> tuple[Piece, ...]:
        if self._out_terminal:
            text = for_screen(text)
        text = self._held + text
        body = text.rstrip("\n")
        self._held = text[len(body) :]
        if not body:
            return ()
        if not self._text_shown:
            body = body.lstrip("\n")
            self._text_shown = True
        return (Piece("out", body),)

    def _tool_start(self, start: events.ToolStart, now: float) -> tuple[Piece, ...]:
        words = self._calls.get(start.call_id, start.call_id)
        self._running[start.call_id] = _Waiting(words=words, moment=now, counts="up")
        return () if self._err_terminal else (note(f"{start.call_id} {words}"),)

    def _tool_result(self, result: events.ToolResult) -> tuple[Piece, ...]:
        words = self._calls.pop(result.call_id, result.call_id)
        started = self._running.pop(result.call_id, None) is not None
        outcome = tool_words.outcome(result)
        if self._err_terminal:
            return self._line("plain" if result.ok else "red", f"{'✓' if result.ok else '✗'} {words}: {outcome}")
        if started:
            words = words.partition(" ")[0]  # the whole was said when it started
        return (note(f"{result.call_id} {words}: {outcome}"),)

    def _retry(self, retry: events.Retry, now: float) -> tuple[Piece, ...]:
        attempt = f", attempt {retry.attempt} of {retry.of}"
        again = f"trying again {f'in {tool_words.seconds(retry.wait_ms)}' if retry.wait_ms else 'at once'}"
        self._waiting = _Waiting(words="trying again", moment=now + retry.wait_ms / 1000, counts="down", more=attempt)
        return self._line("dim", f"{one_line(retry.message)}; {again}{attempt} ({retry.kind})")

    def _worker(self, worker: events.Worker, now: float) -> tuple[Piece, ...]:
        reason = f": {one_line(worker.reason)}" if worker.reason else ""
        match worker.state:
            case "stalled":
                silent_ms = worker.silent_ms or 0
                who = "the model" if worker.role == "llm" else "the tool worker"
                if not self._err_terminal:
                    return self._silence(who, silent_ms, reason)
                self._waiting = _Waiting(words=f"{who} is silent", moment=now - silent_ms / 1000, counts="up")
                return ()
            case "killed" | "exited" | "replaced":
                return self._line("dim", f"{worker.role} worker {worker.state}{reason}")
            case "starting" | "ready":
                return ()
            case _:
                assert_never(worker.state)

    def _silence(self, who: str, silent_ms: int, reason: str) -> tuple[Piece, ...]:
        """A line at first, then each time the silence has doubled: a log must not fill with it."""
        if self._silence_told_ms <= silent_ms < 2 * self._silence_told_ms:
            return ()
        self._silence_told_ms = silent_ms
        return (note(f"{who} has been silent for {tool_words.seconds(silent_ms)}{reason}"),)

    def _cancel(self, step: events.CancelStep) -> tuple[Piece, ...]:
        """The client said `stopping` itself when a signal came; the receipt says how it ended."""
        if step.phase == "requested" and step.by in ("limit", "client"):
            by = "a limit" if step.by == "limit" else "asked from another terminal"
            return self._line("plain", f"stopping ({by})")
        return ()

    def _error(self, error: events.Error) -> tuple[Piece, ...]:
        """A retry says it itself; what is surfaced stands in the result."""
        if error.handling in ("retry", "surface"):
            return ()
        name = result_words.named(error.kind, error.subkind)
        return self._line("dim", f"{one_line(error.message)}; {_DONE_ABOUT[error.handling]} ({name})")

    def _budget(self, budget: events.Budget) -> tuple[Piece, ...]:
        """A limit that tripped stands in the result."""
        return () if budget.level == "tripped" else self._line("dim", result_words.used(budget))

    def _approval(self, approval: events.Approval) -> tuple[Piece, ...]:
        """A question to a person is put by the client, which says itself what was answered."""
        if approval.answer is None or approval.by == "user":
            return ()
        words = self._calls.get(approval.call_id, approval.call_id)
        return self._line("dim", f"{words}: {approval.answer}{f' (by {approval.by})' if approval.by else ''}")

    def _result(self, result: events.Result) -> tuple[Piece, ...]:
        pieces: list[Piece] = []
        if self._text_shown:
            pieces.append(Piece("out", "\n"))
        ending = result_words.ending(result)
        if ending is not None:
            pieces += self._line("plain" if result.reason in ("cancelled", "killed") else "red", ending)
        elif self._err_terminal:
            pieces += self._line("dim", result_words.summary(result))
        self._text_shown = False
        self._message_has_deltas = False
        self._held = ""
        self._calls.clear()
        self._running.clear()
        return tuple(pieces)

    def _line(self, style: Literal["plain", "dim", "red"], words: str) -> tuple[Piece, ...]:
        if self._colour and style != "plain":
            words = f"\x1b[{2 if style == 'dim' else 31}m{words}\x1b[0m"
        return (note(words),)


_DONE_ABOUT: Final[dict[Handling, str]] = {
    "feedback": "the model is told",
    "compact": "making the conversation shorter",
    "continue": "going on from there",
    "retry": "trying again",
    "surface": "the run ends",
}
_LOOP_WORDS: Final = {
    "feedback": "the model was told",
    "ask": "asking you",
    "deduct": "the model was told, turns deducted",
    "stop": "stopping the run",
}


def _compaction(compaction: events.Compaction) -> str:
    if not compaction.ok:
        return f"the conversation could not be made shorter ({compaction.trigger})"
    return f"the conversation was made shorter: {compaction.before_tokens:,} to {compaction.after_tokens:,} tokens"
