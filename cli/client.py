"""A terminal's side of one session: opens it, puts prompts, shows events, stops runs, closes it.

Theory of operation. One thread; loop.py has its one wait. In order: `start`; then `run_once`, or `open`, `run` and
`read_line` as often as wanted; `close`.

1. A signal, or a key that cancels (keys.py), during a run is a request to the supervisor: stop, then stop at once; the
   third leaves (F10). The client says so on stderr itself, without waiting for an answer. Outside a run a signal ends
   the wait (Interrupted), and such a key drops what was typed. So it is before the session of a run is known: a
   supervisor whose client leaves stops what it has begun.
2. The supervisor writes `result`. Only where it cannot (dead, or mute), or was never asked to run, does the client
   write it, so that the last line of stdout is always a result. What is said of workers behind it waits for the next
   run, and is not said if there is none.
3. A reader of stdout that has gone is a lost client: the run is cancelled, no error is shown.
4. Every wait for the supervisor has an end, with words: opening and closing are quick; a stop has STOPPED_WITHIN_S;
   a run that says nothing is asked whether it is still there (silence.py). While stdout takes nothing we do not
   listen, and no silence counts.
5. At the end everything is written, however slow the reader. The first signal then changes only that a reader who
   takes nothing for STUCK_S is given up; the second leaves. Whoever leaves before all is written says so, and its
   exit code is not 0.
6. A supervisor that somebody ended on purpose and that could not say so has left word why (protocol/ending.py).
7. From the first run, or the first line that a person is asked for, to the close a terminal behind stdin gives keys.
   What is typed while nothing asks for it is not shown: whole lines are prompts to come, shown once their turn comes.
"""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from haltline.cli.interrupts import Interrupted, Presses, code_of
from haltline.cli.keys import Key
from haltline.cli.line_editor import LineEditor, shown
from haltline.cli.lines_in import LineReader
from haltline.cli.loop import Loop, SupervisorLost
from haltline.cli.outlet import Outlet
from haltline.cli.owned import Owned
from haltline.cli.pieces import Piece, View, note
from haltline.cli.questions import Questions, Reply, no_answer
from haltline.cli.seen import Seen
from haltline.cli.session_settings import Decided
from haltline.cli.silence import Silence
from haltline.cli.starting import LAST_LOOK_S, start
from haltline.protocol import exits, times
from haltline.protocol.client_messages import (
    Answer,
    CancelRequest,
    CloseSession,
    ListRequest,
    OpenSession,
    Prompt,
    Refused,
    SessionClosed,
    SessionOpened,
    Shown,
    ToClient,
)
from haltline.protocol.errors import BrokenInvariant, ConfigurationProblem
from haltline.protocol.events import Approval, Result, ToolResult, ToolUse, Worker
from haltline.protocol.kinds import CancelBy, Reason
from haltline.protocol.lines import Line
from haltline.protocol.timestamps import rfc3339

if TYPE_CHECKING:
    from haltline.protocol.ending import EndedBy

STOPPED_WITHIN_S: Final = times.stop_answered_s()
"""From the first press to `result`; a supervisor that has said nothing by then is mute (rule 2)."""
OPENED_WITHIN_S: Final = times.opened_s()
CLOSED_WITHIN_S: Final = times.closed_s()
NOT_GONE: Final = {
    "ended": "haltline: the supervisor did not end by itself; it was ended, and all that it had started",
    "left": "haltline: not all that this command started could be ended; what is left dies when the kernel lets it",
}
STUCK_S: Final = 1.0
"""Rule 5. A reader that works takes something every few milliseconds."""
LEAVE_S: Final = 0.1
"""For the last line of a client that leaves at the third press."""


class Left(Exception):
    """Leave now, whatever is going on: the third press in a run, or rule 5. What was lost has been said."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"left with {exit_code}")
        self.exit_code = exit_code


class Client:
    def __init__(self, owned: Owned, *, view: View, outlet: Outlet, stdin_fd: int = 0) -> None:
        self._owned = owned
        owned.in_use = True
        self._view = view
        self._outlet = outlet
        self._stdin_fd = stdin_fd
        self._loop = Loop(
            owned,
            outlet,
            stdin_fd=stdin_fd,
            on_signal=self._hear_signal,
            on_key=self._hear_key,
            on_resumed=self._resume,
            on_foreground=self._ask_again,
        )
        self._editor = LineEditor()
        self._echoing = False
        """Something is asked for: what is typed answers it, and is shown."""
        self._inbox: deque[ToClient] = deque()
        self._seen = Seen()
        self._questions = Questions()
        self._prompt = ""
        """Before the line that is read."""
        self._ahead = LineReader()
        """Prompts that were typed while a run went on."""
        self._interactive = False
        self._presses: Presses | None = None
        """Of the run that is going on; None: there is none."""
        self._mute_at: float | None = None
        """When a stop that was asked for has lasted too long."""
        self._run_began = time.monotonic()
        self._silence = Silence(self._run_began)
        self._has_run = False
        """True: a result is, or will be, the last line."""
        self._reader_told = False
        self._closing = False
        self._pressed_at_close: int | None = None
        """The exit code of the first signal after the last result."""
        self.ended = False
        """True: the session takes no further prompt (killed, closed, or its supervisor is gone)."""
        self.ended_with: int | None = None
        """The exit code that goes with that, where it came while no run went on."""

    def start(self) -> None:
        """Meet the supervisor. Raises ConfigurationProblem with the supervisor's own words, SupervisorLost,
        Interrupted."""
        self._loop.attach(*start(self._owned, self._hear_signal))

    def open(self, decided: Decided, *, journal: str, prompt: str | None = None) -> None:
        """Raises ConfigurationProblem where the supervisor refuses, SupervisorLost, Interrupted."""
        self._interactive = decided.settings.interactive
        self._loop.send(
            OpenSession(
                settings=decided.settings, journal=journal, prompt=prompt, embedded_gateway=decided.embedded_gateway
            )
        )
        deadline = time.monotonic() + OPENED_WITHIN_S
        while self._seen.session_id is None:
            match self._next(max(deadline, time.monotonic() + LAST_LOOK_S)):
                case None if time.monotonic() >= deadline:
                    raise SupervisorLost(
                        f"the supervisor did not open the session within {OPENED_WITHIN_S:g} s: "
                        "is the machine overloaded?"
                    )
                case SessionOpened(session_id=session_id):
                    self._seen.session_id = session_id
                case Refused(words=words) if self._owned.ended_by is not None:
                    raise SupervisorLost(words)
                case Refused(words=words):
                    raise ConfigurationProblem(words)
                case Shown(line=line):
                    self._show(line)
                case _:
                    continue

    def close(self) -> None:
        """Say that no prompt will come, write everything, wait until nothing is left of what this command started.
        Only the reader of stdout may take long. Raises Left (rule 5)."""
        self._closing = True
        self._loop.keyboard.give_back()
        if self._seen.session_id is not None and not self.ended:
            self._loop.send(CloseSession(session_id=self._seen.session_id))
            self._flush()
            self._await_closed()
        self._flush()
        self._loop.hang_up()
        outcome = self._loop.until_guard_gone()
        if outcome != "gone":
            self.say(NOT_GONE[outcome])
            self._loop.write_for(LEAVE_S)

    def _flush(self) -> None:
        if not self._loop.until_written(lambda: None if self._pressed_at_close is None else STUCK_S):
            assert self._pressed_at_close is not None, "without a signal a reader may take for ever"
            self._part(self._pressed_at_close)

    def _await_closed(self) -> None:
        deadline = time.monotonic() + CLOSED_WITHIN_S
        try:
            while time.monotonic() < deadline:
                match self._next(deadline):
                    case SessionClosed():
                        return
                    case Shown(line=line) if not isinstance(line.event, Worker):  # rule 2: `result` stays the last line
                        self._show(line)
                    case _:
                        continue
        except SupervisorLost:
            self.ended = True

    @property
    def is_open(self) -> bool:
        """The session is known."""
        return self._seen.session_id is not None

    def hang_up(self) -> None:
        """Let go of the terminal and of the supervisor, however far we came."""
        self._loop.keyboard.give_back()
        self._loop.hang_up()

    def run_once(self, decided: Decided, prompt: str, *, journal: str) -> Result:
        """A session and its only run, to its result. Raises Left, and ConfigurationProblem where the supervisor
        refuses."""
        return self._one_run(lambda: self.open(decided, journal=journal, prompt=prompt))

    def run(self, prompt: str) -> Result:
        """One run, to its result. Raises Left."""
        session_id = self._seen.session_id
        assert session_id is not None, "open() comes first"
        return self._one_run(lambda: self._loop.send(Prompt(session_id=session_id, text=prompt)))

    def _one_run(self, begin: Callable[[], None]) -> Result:
        self._presses = Presses()
        self._has_run = True
        self._run_began = time.monotonic()
        self._silence = Silence(self._run_began)
        self._loop.keyboard.want()
        try:
            begin()
            return self._until_result()
        except Interrupted as interruption:
            terminated = interruption.exit_code == exits.TERMINATED
            return self.conclude("cancelled", "stopped while the session was being opened", terminated=terminated)
        except SupervisorLost as lost:
            return self.conclude_lost(lost, "; the guard stops what it left behind" if self.is_open else "")
        finally:
            self._presses = None
            self._mute_at = None
            self._questions.clear()

    def _until_result(self) -> Result:
        while True:
            message = self._next(self._silence.due if self._mute_at is None else self._mute_at)
            match message:
                case None:
                    self._check_silence(time.monotonic())
                case Shown(line=line):
                    self._show(line)
                    if isinstance(line.event, Result):
                        self.ended = line.event.reason == "killed"
                        return line.event
                case Refused(words=words):
                    raise BrokenInvariant(f"the supervisor refused the prompt: {words}")
                case SessionClosed():
                    return self._conclude_ended(self._owned.ended_by or "killed")
                case _:
                    continue

    def _check_silence(self, now: float) -> None:
        """Rule 4. Raises SupervisorLost."""
        if self._mute_at is not None:
            if now >= self._mute_at:
                raise SupervisorLost(
                    f"the supervisor said nothing for {STOPPED_WITHIN_S:g} s after the stop was asked for"
                )
            return
        match self._silence.at(now):
            case "ask":
                self._loop.send(ListRequest())
            case "give_up":
                raise SupervisorLost(self._silence.words)
            case "wait":
                return

    def conclude(self, reason: Reason, message: str, *, terminated: bool = False) -> Result:
        """Rule 2: write the `result` in the supervisor's place."""
        if reason == "worker_failed":
            self.ended = True
        ms = round((time.monotonic() - self._run_began) * 1000)
        line = self._seen.last_line(reason, message, ts=rfc3339(time.time()), ms=ms, terminated=terminated)
        self._show(line)
        assert isinstance(line.event, Result)
        self.ended_with = line.event.exit_code
        return line.event

    def conclude_lost(self, lost: SupervisorLost, more: str = "") -> Result:
        """`more` follows the words of what happened."""
        if (ended_by := self._owned.ended_by) is not None:  # rule 6
            return self._conclude_ended(ended_by)
        log = self._owned.kept_log()
        last_words = "" if log is None else f"; its last words are in {log}"
        return self.conclude("worker_failed", f"{lost}{more}{last_words}")

    def _conclude_ended(self, ended_by: "EndedBy") -> Result:
        """Somebody else ended the session, or what it hangs from."""
        self.ended = True
        match ended_by:
            case "killed":
                return self.conclude("killed", "killed from another terminal")
            case "cancelled":
                return self.conclude("cancelled", "stopped from another terminal before the run began")
            case "terminated":
                return self.conclude("cancelled", "SIGTERM ended the supervisor", terminated=True)

    def _show(self, line: Line) -> None:
        if isinstance(line.event, Result) and line.event.exit_code == exits.BUG:
            line = self._with_log(line, line.event)
        self._seen.note(line)
        self._outlet.put(self._view.show(line, time.monotonic()))
        if isinstance(line.event, ToolUse | ToolResult):
            self._questions.note(line.event)
        elif isinstance(line.event, Approval) and self._interactive and self._questions.hear(line.event):
            self._ask()

    def _with_log(self, line: Line, result: Result) -> Line:
        """A bug of ours is said with the path of its log, which the session that met it does not know."""
        log = self._owned.kept_log()
        if log is None:
            return line
        return msgspec.structs.replace(line, event=msgspec.structs.replace(result, message=f"{result.message}: {log}"))

    def _ask(self) -> None:
        self._typed_ahead()
        self._outlet.ask(self._questions.text())

    def _ask_again(self) -> None:
        """Whatever waits for an answer, with what was typed of it. The cursor may still stand behind it."""
        if not self._echoing:
            return
        begun = shown(self._editor.text)
        if self._questions:
            self._outlet.ask(f"\n{self._questions.text()}{begun}")
        else:
            self._outlet.put((Piece("err", f"\r{self._prompt}{begun}"),))

    def _typed_ahead(self) -> None:
        """What was typed before a question was read does not answer it: whole lines are prompts to come, the begun
        one is dropped."""
        if pasted := self._loop.typed.take():
            self._ahead.feed(pasted)
        if self._loop.keyboard.wanted:
            self._echoing = False
            self._loop.hear_keys(ready=True)
            self._editor.clear()
            return
        while is_readable(self._stdin_fd) and not self._ahead.ended:
            self._ahead.feed(os.read(self._stdin_fd, 65536))

    def _answer(self) -> None:
        while self._questions:
            line = self._loop.typed.next()
            if line is not None:
                reply = self._questions.answer(line)
            elif self._loop.typed.ended:
                self._outlet.put((Piece("err", "\n"),))  # Ctrl+D left the cursor behind the question
                reply = self._questions.end_of_input()
            else:
                return
            if reply is None:
                self._outlet.put((Piece("err", no_answer(line or "")),))
                continue
            self._loop.typed.reopen()  # one Ctrl+D answers one question
            self._send_answer(reply)
            self.say(reply.echo)
            if self._questions:
                self._ask()

    def _send_answer(self, reply: Reply) -> None:
        assert self._seen.session_id is not None, "a question came from a session"
        session_id = self._seen.session_id
        self._loop.send(Answer(session_id=session_id, call_id=reply.call_id, answer=reply.answer, words=reply.words))

    def read_line(self, *, prompt: str) -> str | None:
        """The next line of standard input, None at its end or when the session has ended. Raises Interrupted."""
        if self._interactive:
            self._loop.keyboard.want()
        else:  # a terminal whose screen we do not write to: it shows itself what is typed
            self._loop.keyboard.give_back()
        self._prompt = prompt
        self._outlet.put((Piece("err", prompt),))
        line = self._ahead.next()
        if line is not None or self._ahead.ended:
            if line is not None and self._loop.keyboard.wanted:
                self._outlet.put((Piece("err", f"{shown(line)}\n"),))
            return line
        self._outlet.put((Piece("err", shown(self._editor.text)),))
        try:
            return self._typed_line()
        except Interrupted:
            self._editor.clear()
            raise

    def _typed_line(self) -> str | None:
        while not (self.ended or self._outlet.reader_lost):
            line = self._loop.typed.next()
            if line is not None or self._loop.typed.ended:
                return line
            try:
                self._take(self._wait(None, typing=True))
            except SupervisorLost as lost:
                self.conclude_lost(lost)
        return None

    @property
    def output_lost(self) -> bool:
        """Part of what stdout should have got never arrived."""
        return self._outlet.reader_lost

    def say(self, words: str) -> None:
        self._outlet.put((note(words),))

    def _take(self, messages: list[ToClient]) -> None:
        """While no run goes on (rule 2)."""
        for message in messages:
            match message:
                case SessionClosed():
                    if self.ended_with is None:
                        self._conclude_ended(self._owned.ended_by or "killed")
                    self.ended = True
                case Shown(line=line) if isinstance(line.event, Result):
                    self._show(line)
                    self.ended_with = line.event.exit_code
                case Shown(line=line) if not self._has_run:
                    self._show(line)
                case _:
                    self._inbox.append(message)

    def _next(self, deadline: float | None) -> ToClient | None:
        """The next message, None when something else happened or the deadline (monotonic) passed."""
        if not self._inbox:
            self._inbox += self._wait(deadline, typing=bool(self._questions))
            self._answer()
        return self._inbox.popleft() if self._inbox else None

    def _wait(self, deadline: float | None, *, typing: bool) -> list[ToClient]:
        status = None if self._questions else self._view.status(time.monotonic())
        deaf = self._outlet.full
        self._echoing = typing
        messages = self._loop.step(deadline, typing=typing, status=status)
        self._tell_of_lost_reader()
        if messages or deaf:
            self._silence.heard(time.monotonic())
        if deaf and self._mute_at is not None:
            self._mute_at = time.monotonic() + STOPPED_WITHIN_S
        return messages

    def _hear_signal(self, number: int) -> None:
        if self._closing:
            self._press_at_close(number)
        elif self._presses is None or not self.is_open:
            raise Interrupted(number)
        else:
            self._press(self._presses, number, by="signal")

    def _hear_key(self, key: Key) -> None:
        """Rules 1 and 7."""
        if key.cancels:
            if self._presses is not None and not self.is_open:
                raise Interrupted(signal.SIGINT)
            if self._presses is not None:
                self._press(self._presses, signal.SIGINT, by="key")
            else:
                self._outlet.put((Piece("err", self._editor.clear()),))
            return
        into = self._loop.typed if self._echoing else self._ahead
        for typed in self._editor.press(key):
            if self._echoing:
                self._outlet.put((Piece("err", typed.echo),))
            if typed.line is not None:
                into.feed(f"{typed.line}\n".encode())
            if typed.ended:
                into.feed(b"")

    def _resume(self) -> None:
        """This process was stopped; what came meanwhile has to be read before anybody is called mute."""
        self._silence.heard(time.monotonic())
        if self._mute_at is not None:
            self._mute_at = time.monotonic() + STOPPED_WITHIN_S

    def _press_at_close(self, number: int) -> None:
        """Rule 5."""
        if self._pressed_at_close is not None:
            self._part(self._pressed_at_close)
        self._pressed_at_close = code_of(number)
        if self._outlet.waiting:
            self.say("still writing; once more leaves")

    def _press(self, presses: Presses, number: int, *, by: CancelBy) -> None:
        """Rule 1."""
        meaning = presses.press(number)
        if meaning == "leave":
            self._leave(presses.exit_code)
        if self._questions:
            self._outlet.put((Piece("err", "\n"),))  # the cursor stands behind the question
        self._outlet.put((note("stopping" if meaning == "stop" else "stopping at once, without grace"),))
        self._ask_for_stop(by=by, exit_code=presses.exit_code)

    def _ask_for_stop(self, *, by: CancelBy, exit_code: int) -> None:
        if self._mute_at is None:
            self._mute_at = time.monotonic() + STOPPED_WITHIN_S
        self._loop.send(CancelRequest(session_id=self._seen.session_id, by=by, exit_code=exit_code))

    def _leave(self, exit_code: int) -> None:
        self.conclude(
            "cancelled", "left before the stop was complete; the guard finishes it", terminated=exit_code == 143
        )
        self._loop.write_for(LEAVE_S)
        self._part(exit_code)

    def _part(self, exit_code: int) -> NoReturn:
        """Leave without what is unwritten."""
        if self._outlet.forget():
            self.say("haltline: left before all output was written")
            self._loop.write_for(LEAVE_S)
        self.hang_up()
        raise Left(exit_code)

    def _tell_of_lost_reader(self) -> None:
        """Rule 3."""
        if self._outlet.reader_lost and not self._reader_told and self._presses is not None:
            self._reader_told = True
            self._ask_for_stop(by="lost_client", exit_code=exits.INTERRUPTED)


def is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(events & select.POLLIN for _, events in poll.poll(0))
