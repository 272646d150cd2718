"""The file tools as calls: a thread does the work, the loop waits for it and can ask it to stop.

A thread that does not answer (a disk that hangs) is left behind, and the outcome says that it is unknown.
"""

import asyncio
import threading

from haltline.protocol.messages import Outcome
from haltline.protocol.times import FILE_ANSWER_S
from haltline.protocol.tools import EditFile, ReadFile, WriteFile
from haltline.worker.tool import files, words
from haltline.worker.tool.calls import Room, Stopwatch, Terms
from haltline.worker.tool.files import FileResult
from haltline.worker.tool.workspace import Nowhere


class FileCall:
    """One read, write or edit."""

    def __init__(
        self, room: Room, terms: Terms, own_pid: int, arguments: ReadFile | WriteFile | EditFile, *, fails: bool = False
    ) -> None:
        """`fails`: show a disk that did not answer (the injected fault `tool_error`)."""
        self._room = room
        self._terms = terms
        self._own_pid = own_pid
        self._arguments = arguments
        self._fails = fails
        self._watch = Stopwatch(room.loop)
        self._asked = threading.Event()
        self._stop: asyncio.Future[None] = room.loop.create_future()

    def stop(self, grace_s: float) -> None:  # noqa: ARG002  (it ends at its next step)
        self._asked.set()
        if not self._stop.done():
            self._stop.set_result(None)

    async def run(self) -> Outcome:
        if self._stop.done():
            return self._watch.outcome("cancelled_not_started", words.not_started())
        work = self._room.loop.run_in_executor(self._room.threads, self._do)
        await asyncio.wait(
            (work, self._stop),
            timeout=self._terms.limit_s - self._watch.seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not work.done():
            self._asked.set()
            await asyncio.wait((work,), timeout=FILE_ANSWER_S)
        if not work.done():
            return self._watch.outcome("outcome_unknown", words.file_tool_stuck(), changed="maybe")
        try:
            result = work.result()
        except Nowhere:
            return self._watch.outcome("failed", words.no_place(self._arguments.path))
        except files.Failed as failure:
            return self._watch.outcome("failed", failure.text)
        except files.Stopped:
            if self._stop.done():
                return self._watch.outcome("cancelled_killed", words.file_tool_cancelled())
            return self._watch.outcome("timed_out", words.file_tool_timed_out(self._terms.limit_s))
        return self._watch.outcome("done", result.text, changed=result.changed, exit_code=0)

    def _do(self) -> FileResult:
        """In the thread. It has started once its place is known to be allowed."""
        place = self._room.workspace.place(self._arguments.path, outside_allowed=self._terms.outside_allowed)
        self._room.loop.call_soon_threadsafe(self._terms.started, self._own_pid)
        if self._fails:
            raise files.Failed(words.injected_failure(self._arguments.path))
        match self._arguments:
            case ReadFile():
                return files.read_file(place, self._arguments, self._room.limits.output_bytes, self._asked)
            case WriteFile():
                return files.write_file(place, self._arguments, self._asked)
            case EditFile():
                return files.edit_file(place, self._arguments, self._asked)
