"""Performs a script's steps on the wire: the thin shell around the pure scripts of scenarios.py."""

import asyncio
from collections.abc import Iterator
from typing import assert_never

from haltline.gateway.conversation import BYTES_PER_TOKEN, Request
from haltline.gateway.formats.interface import Content, Reply, Usage, WireFormat
from haltline.gateway.log import Log, Origin
from haltline.gateway.steps import (
    Break,
    Comment,
    End,
    ErrorEvent,
    Hang,
    HttpError,
    Piece,
    Reasoning,
    Refusal,
    Sleep,
    Step,
    ToolCall,
)
from haltline.gateway.wire import CutReached, Headers, Wire

YIELD_EVERY_PIECES = 32
"""A script that never sleeps still lets the other streams run."""

JSON: Headers = (("content-type", "application/json"),)
EVENT_STREAM: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))

Said = Piece | Reasoning | Refusal | ToolCall


class Performance:
    """One response being given. Ends with the script, with the wire's cut, or by cancellation when the client left."""

    def __init__(
        self,
        wire: Wire,
        spoken: WireFormat,
        reply: Reply,
        reply_id: str,
        request: Request,
        log: Log,
        origin: Origin,
    ) -> None:
        self._wire = wire
        self._spoken = spoken
        self._reply = reply
        self._reply_id = reply_id
        self._headers = spoken.headers(reply_id)
        self._request = request
        self._log = log
        self._origin = origin
        self._streams = request.stream
        self._said: list[Said] = []
        self._output_bytes = 0
        self._head_sent = False
        self.status: int | None = None
        self.pieces = 0

    async def run(self, steps: Iterator[Step]) -> None:
        try:
            reason = await self._perform(steps)
        except CutReached:
            self._wire.end_connection(reset=False)
            reason = "cut"
        self._log.write("end", self._origin, status=self.status, reason=reason, pieces=self.pieces)

    async def _perform(self, steps: Iterator[Step]) -> str:
        """Perform the steps; returns how the response ended."""
        for step in steps:
            match step:
                case HttpError():
                    self._respond(step.status)
                    body = self._spoken.error(step.fault, self._reply_id)
                    self._wire.whole(step.status, JSON + self._headers + step.headers, body)
                    return "finished"
                case Sleep():
                    self._begin()
                    await asyncio.sleep(step.seconds)
                case Comment():
                    self._begin()
                    if self._streams:
                        self._wire.part(self._reply.comment(step.text))
                case Piece() | Reasoning() | Refusal() | ToolCall():
                    await self._say(step)
                case ErrorEvent():
                    return self._fail(step)
                case End():
                    return self._end(step)
                case Hang():
                    self._begin()
                    await asyncio.get_running_loop().create_future()
                case Break():
                    self._begin()
                    self._wire.end_connection(reset=step.reset)
                    return "reset" if step.reset else "hung up"
                case _:
                    assert_never(step)
        self._begin()
        self._wire.finish()
        return "finished"

    def _respond(self, status: int) -> None:
        self.status = status
        self._log.write("response", self._origin, status=status)

    def _begin(self) -> None:
        """Send the head, once. A response that is not streamed has its head with its body, unless it never ends."""
        if self._head_sent:
            return
        self._head_sent = True
        self._respond(200)
        self._wire.stream_head(200, (EVENT_STREAM if self._streams else JSON) + self._headers)

    async def _say(self, step: Said) -> None:
        self._begin()
        self._said.append(step)
        text = f"{step.name} {step.arguments}" if isinstance(step, ToolCall) else step.text
        self._output_bytes += len(text)
        if self._streams:
            if self.pieces == 0:
                self._wire.part(self._reply.begin())
            for part in self._parts(step):
                self._wire.part(part)
        self._log.write("piece", self._origin, status=self.status, index=self.pieces, text=text)
        self.pieces += 1
        await self._wire.drained()
        if self.pieces % YIELD_EVERY_PIECES == 0:
            await asyncio.sleep(0)

    def _parts(self, step: Said) -> Iterator[bytes]:
        match step:
            case Piece():
                yield self._reply.piece(step.text)
            case Refusal():
                yield self._reply.refusal(step.text)
            case Reasoning():
                yield from self._reply.reasoning(step)
            case ToolCall():
                yield from self._reply.tool_call(step)
            case _:
                assert_never(step)

    def _fail(self, step: ErrorEvent) -> str:
        self._begin()
        if self._streams:
            self._wire.part(self._reply.error_event(step.fault))
        else:
            self._wire.part(self._spoken.error(step.fault, self._reply_id))
        self._wire.finish()
        return "finished"

    def _end(self, step: End) -> str:
        self._begin()
        usage = Usage(
            prompt=self._request.prompt_tokens,
            completion=-(-self._output_bytes // BYTES_PER_TOKEN),
        )
        if self._streams:
            if self.pieces == 0:
                self._wire.part(self._reply.begin())
            self._wire.part(self._reply.end(step.finish, usage))
        else:
            self._wire.part(self._reply.whole(_content(self._said), step.finish, usage))
        self._wire.finish()
        return "finished"


def _content(said: list[Said]) -> Content:
    return Content(
        text="".join(step.text for step in said if isinstance(step, Piece)),
        refusal="".join(step.text for step in said if isinstance(step, Refusal)),
        reasoning=tuple(step for step in said if isinstance(step, Reasoning)),
        calls=tuple(step for step in said if isinstance(step, ToolCall)),
    )
