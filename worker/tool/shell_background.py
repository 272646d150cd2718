"""A shell call with `background`: begins a command, looks at it for a moment, and returns (background.py)."""

import asyncio

from haltline.protocol.messages import Outcome
from haltline.protocol.tools import Shell
from haltline.worker.tool import words
from haltline.worker.tool.background import FIRST_LOOK_S, Command, TooMany
from haltline.worker.tool.calls import Room, Stopwatch, Terms
from haltline.worker.tool.shell import LINGER_S, command_line, exit_code, why_not_started


class BackgroundCall:
    """One command line that is to go on."""

    def __init__(self, room: Room, terms: Terms, arguments: Shell) -> None:
        self._room = room
        self._terms = terms
        self._command = arguments.command
        self._watch = Stopwatch(room.loop)
        self._stop: asyncio.Future[float] = room.loop.create_future()

    def stop(self, grace_s: float) -> None:
        """Whatever the command has done by then: it is begun or it is not, and a stop ends what goes on."""
        if not self._stop.done():
            self._stop.set_result(grace_s)

    async def run(self) -> Outcome:
        if self._stop.done():
            return self._watch.outcome("cancelled_not_started", words.not_started())
        try:
            command = self._begin()
        except TooMany as full:
            return self._watch.outcome("failed", words.too_many_in_background(full.most, full.pids))
        except (OSError, ValueError) as error:
            return self._watch.outcome("failed", words.shell_not_started(why_not_started(self._room, error)))
        await self._either(command.answered, self._terms.limit_s)
        if command.failed is not None:
            await self._either(command.gone, FIRST_LOOK_S)
            self._room.background.forget(command)
            why = why_not_started(self._room, OSError(0, command.failed))
            return self._watch.outcome("failed", words.shell_not_started(why))
        if command.pid is not None:
            self._terms.started(command.outer_pid)
            await self._either(command.ended, FIRST_LOOK_S)
            if command.ended.done():
                await self._either(command.over, LINGER_S)
        if self._stop.done():
            return await self._stopped(command, self._stop.result())
        if command.pid is None:
            self._room.background.give_up(command)
            raise RuntimeError("a keeper did not answer")
        if command.over.done():
            return await self._ended_already(command)
        command.goes_on = True
        code = command.code
        output = await self._output(command)
        text = words.background_started(command.pid, command.path, output)
        if code is not None:
            text = words.background_daemon(command.keeper_pid, command.path, output, code)
        return self._watch.outcome("done", text, changed="maybe", exit_code=0)

    def _begin(self) -> Command:
        with command_line(self._room, self._command) as (arguments, descriptors):
            return self._room.background.begin(
                arguments,
                generation=self._terms.generation,
                cwd=self._room.workspace.root,
                environment=self._room.environment,
                descriptors=descriptors,
            )

    async def _either(self, future: asyncio.Future[None], within_s: float) -> None:
        """Until `future` is done, the stop comes or the time is up."""
        await asyncio.wait((future, self._stop), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)

    async def _stopped(self, command: Command, grace_s: float) -> Outcome:
        after_s = self._watch.seconds
        swept = await self._room.tree.end(grace_s)
        text = words.shell_cancelled(await self._output(command), after_s, len(swept.survivors))
        self._room.background.forget(command)
        return self._watch.outcome("cancelled_killed", text, changed="maybe")

    async def _ended_already(self, command: Command) -> Outcome:
        """Rule 3 of background.py."""
        if command.code is None:
            raise RuntimeError("a keeper was killed before its command had ended")
        output = await self._output(command)
        await self._either(command.gone, FIRST_LOOK_S)
        self._room.background.forget(command)
        return self._watch.outcome(
            "done" if command.code == 0 else "failed",
            words.background_ended_already(output, command.code),
            changed="maybe",
            exit_code=exit_code(command.code),
        )

    async def _output(self, command: Command) -> str:
        limit = self._room.limits.output_bytes
        return await self._room.loop.run_in_executor(self._room.threads, command.output, limit)
