"""What one session leaves in the journal: stimuli, intents and shown events, under one rising `seq`.

1. A row's type is `stimulus.NAME`, `intent.NAME`, or the public event's own type. Rows of one session have rising
   `seq`, and a shown event carries the `seq` of its row.
2. Deltas come in thousands: those of RECORD_TEXT_S share one row, with the `seq` of the last and all their text,
   and heartbeats have none.
"""

import asyncio
from collections.abc import Callable

import msgspec

from haltline.protocol import events
from haltline.protocol.errors import JournalFailed
from haltline.protocol.ids import SessionId
from haltline.protocol.lines import Line, to_json
from haltline.protocol.messages import Cancel, Delta, Heartbeat, Work
from haltline.protocol.timestamps import rfc3339
from haltline.supervisor.effects import SwitchHistory
from haltline.supervisor.journal import NoJournal, Writable
from haltline.supervisor.stimuli import AnyStimulus, FromWorker

RECORD_TEXT_S = 0.25
"""Longest time that text is shown but not yet recorded (design 8)."""

_encode = msgspec.json.Encoder().encode


class _Noted(msgspec.Struct, frozen=True, kw_only=True):
    """Body of a stimulus row."""

    now: float
    """Monotonic seconds of the supervisor that recorded it."""
    stimulus: AnyStimulus


class Record:
    """`on_failed(error)` when gathered text could not be recorded; every other failure is raised to the caller."""

    def __init__(
        self,
        session_id: SessionId,
        journal: Writable,
        *,
        wall_s: Callable[[], float],
        on_failed: Callable[[JournalFailed], None],
    ) -> None:
        self._session_id = session_id
        self._journal = journal
        self._wall_s = wall_s
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._seq = 0
        self._rows = False
        """Rows other than text wait for a commit."""
        self._text: Line | None = None
        """Deltas gathered and not yet a row, as one line."""
        self._flush: asyncio.TimerHandle | None = None

    def event(self, event: events.AnyEvent, *, run: int, turn: int) -> Line:
        """Give the event its `seq` and record it."""
        self._seq += 1
        line = self._line(event, run=run, turn=turn)
        if isinstance(event, events.Message | events.Reasoning) and event.delta:
            self._gather(line, event)
        else:
            self._row_of(line)
        return line

    def unrecorded(self, event: events.AnyEvent) -> Line:
        """The line of an event that the journal will not have."""
        self._seq += 1
        return self._line(event, run=1, turn=0)

    def stimulus(self, stimulus: AnyStimulus, now: float) -> None:
        if isinstance(stimulus, FromWorker) and isinstance(stimulus.message, Delta | Heartbeat):
            return
        body = _encode(_Noted(now=now, stimulus=stimulus))
        self._append(f"stimulus.{stimulus.__struct_config__.tag}", body)

    def intent(self, name: str, message: Work | Cancel | SwitchHistory) -> None:
        """What is about to be done; its commit comes before it is."""
        self._append(f"intent.{name}", _encode(message))

    def commit(self) -> None:
        self._put_text()
        self._rows = False
        self._journal.commit()

    def commit_rows(self) -> None:
        """Commit unless only text is waiting, which has its own time."""
        if self._rows:
            self.commit()

    def abandon(self) -> None:
        """The session was ended because it cannot be recorded; nothing of it is written any more."""
        self._journal = NoJournal()

    def _line(self, event: events.AnyEvent, *, run: int, turn: int) -> Line:
        return Line(
            seq=self._seq, ts=rfc3339(self._wall_s()), session_id=self._session_id, run=run, turn=turn, event=event
        )

    def _append(self, kind: str, body: bytes) -> None:
        self._put_text()
        self._rows = True
        self._seq += 1
        self._journal.append(self._session_id, self._seq, rfc3339(self._wall_s()), kind, body)

    def _row_of(self, line: Line) -> None:
        self._put_text()
        self._rows = True
        self._write(line)

    def _write(self, line: Line) -> None:
        kind = str(line.event.__struct_config__.tag)
        self._journal.append(self._session_id, line.seq, line.ts, kind, to_json(line))

    def _gather(self, line: Line, event: events.Message | events.Reasoning) -> None:
        """Rule 2."""
        held = self._text
        if held is not None and type(held.event) is type(event) and isinstance(held.event, type(event)):
            event = msgspec.structs.replace(event, text=held.event.text + event.text)
            line = msgspec.structs.replace(line, event=event)
        else:
            self._put_text()
        self._text = line
        if self._flush is None:
            self._flush = self._loop.call_later(RECORD_TEXT_S, self._flush_text)

    def _flush_text(self) -> None:
        self._flush = None
        try:
            self.commit()
        except JournalFailed as error:
            self._on_failed(error)

    def _put_text(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._text is not None:
            line, self._text = self._text, None
            self._write(line)
