"""One attempt: the request, its stream, its limits, its end. The only place where a request is made.

Theory of operation. An attempt is one task. Outside it stand a timer that knows the limits of D4 and `stop`, which a
cancel calls. Rules:

1. The task is cancelled at most once, whoever asks: cancelling a stream twice leaks its connection (R14). The one
   cancel can hit only `_receive`; what comes after it is never cancelled, so the close needs no other shield.
2. The connection is closed before the attempt is reported or a stop returns, within CLOSE_S. A stop whose close did
   not happen is not confirmed: the supervisor then kills the worker, which closes it.
3. httpcore does not close a connection whose TLS handshake is cancelled. So the stream is taken from its trace, and
   closed here.
4. Phases are what was observed, never what was intended.
5. A positive end signal makes the response whole, whatever the connection does afterwards (D2); an error report or
   something unreadable before the end spoils it.
6. A timer that fires late found a loop that did not run (suspended, stopped): bytes may be waiting. It looks again
   LATE_LOOK_S later, when they have been read (L5).
7. A compressed body is never unpacked: a few bytes can be gigabytes (G6), and the request asked for none such.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import anyio
import httpcore
import httpx
import msgspec

from haltline.protocol.conversation import Usage
from haltline.protocol.kinds import Phase, StreamTimer
from haltline.protocol.messages import AttemptEnded, AttemptFailed, AttemptProgress, Delta, FromWorker, StartAttempt
from haltline.protocol.times import CLOSE_S
from haltline.worker.actor import Outbox, watch
from haltline.worker.llm import facts
from haltline.worker.llm.adapters import adapter_for
from haltline.worker.llm.body import BodyReader
from haltline.worker.llm.coalesce import Coalescer
from haltline.worker.llm.happenings import (
    AnyHappening,
    ErrorReport,
    Finished,
    Malformed,
    ReasoningText,
    Step,
    Text,
)
from haltline.worker.llm.http import Http
from haltline.worker.llm.timers import AttemptTimers

AFTER_FINISH_S = 2.0
"""Usage and `[DONE]` follow the finish at once; a line kept open after it spoils no answer."""

DRAIN_S = 0.02
"""Time after the very last event for the body's end, so that the connection can be used again."""

ERROR_BODY_S = 2.0
"""Time for the body of an error answer; its status is known already."""

LATE_S = 1.0
"""A timer this late was not held up by work (L5 allows 0.1 s): the process or the machine did not run."""

LATE_LOOK_S = 1.0
"""Time to read what waits in the socket before the limit is judged again."""

LONGEST_ENCODING = 40
"""Characters shown of a `content-encoding`."""

TRANSPORT_ERRORS = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.StreamError,
    OSError,
    UnicodeError,
    anyio.BrokenResourceError,
)
"""All that a request can raise that is not our bug. UnicodeError: a host name."""

log = logging.getLogger(__name__)


class Attempt:
    """Reports through the outbox: AttemptProgress and Deltas, then AttemptEnded or AttemptFailed, unless stopped."""

    def __init__(
        self,
        request: StartAttempt,
        *,
        http: Http,
        key: str | None,
        window_s: float,
        outbox: Outbox,
        ended: Callable[[], None],
    ) -> None:
        """`ended` is called just before the last message goes out: the worker is free then."""
        self.request = request
        self.progress = 0
        """Wire reads and model events."""
        self._http = http
        self._key = key
        self._outbox = outbox
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._adapter = adapter_for(request.api)
        self._reader = self._adapter.reader()
        self._body: BodyReader | None = None
        self._coalescer = Coalescer(self._loop, window_s, self._deliver)
        self._timers = AttemptTimers(request.limits, self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._phase: Phase = "connect"
        self._response: httpx.Response | None = None
        self._stream: httpcore.AsyncNetworkStream | None = None
        self._receiving = True
        self._cancelled = False
        self._stopped = False
        self._closed = True
        """No connection of ours is open. True also before there is one: a cancel may come that early."""
        self._tripped: StreamTimer | None = None
        self._exception: BaseException | None = None
        self._problem: ErrorReport | Malformed | None = None
        self._error_body = bytearray()
        self._task = self._loop.create_task(self._run())
        watch(self._task)

    def silent_s(self) -> float:
        """Since the last model event, or since the start."""
        return self._timers.silent_s(self._loop.time())

    def usage(self) -> Usage | None:
        """As reported so far."""
        return self._reader.summary().usage

    async def stop(self) -> bool:
        """Break off; nothing but the deltas received so far is reported. True: the connection is seen closed."""
        self._stopped = True
        self._cancel_once()
        await asyncio.wait({self._task})
        return self._closed

    def _cancel_once(self) -> None:
        """Rule 1."""
        if self._receiving and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._say_phase("connect")
            self._watch_limits()
            await self._receive()
        except asyncio.CancelledError:
            pass  # rule 1: it was ours, and the reason is in `_stopped` or `_tripped`
        except TRANSPORT_ERRORS as error:
            self._exception = error
        finally:
            self._receiving = False
            if self._timer is not None:
                self._timer.cancel()
        if self._body is not None:
            self._take_all(self._body.close(broken=self._cancelled or self._exception is not None))
        self._closed = await self._close()
        self._coalescer.flush()
        if not self._stopped:
            self._ended()
            self._outbox.send(self._outcome())

    async def _receive(self) -> None:
        if self._key is not None and not (self._key.isascii() and self._key.isprintable()):
            # Said here, since the library's own complaint repeats the key.
            raise httpx.LocalProtocolError("the API key has characters that no HTTP header can carry")
        self._closed = False
        request = self.request
        base, _, query = request.base_url.partition("?")
        url = httpx.URL(base.rstrip("/") + self._adapter.path + (f"?{query}" if query else ""))
        client = await self._http.client(url)
        response = await client.send(
            client.build_request(
                "POST",
                url,
                content=self._adapter.encode(request),
                headers={
                    "content-type": "application/json",
                    "accept": "text/event-stream, application/json",
                    "accept-encoding": "identity",
                    "user-agent": "haltline",
                    **self._adapter.headers(request.session_id, self._key),
                },
                extensions={"trace": self._trace},
            ),
            stream=True,
        )
        self._response = response
        if encoding := _encoding(response.headers):  # rule 7
            words = f"the body is compressed ({encoding}) though none such was asked for"
            self._problem = Malformed(words, "", in_stream=False)
            return
        chunks = response.aiter_raw()
        if response.is_success:
            self._say_phase("first_event")
            await self._receive_answer(chunks, response.headers.get("content-type", ""))
        else:  # refused by its headers; the rest only says why
            await self._receive_error(chunks)

    async def _receive_answer(self, chunks: AsyncIterator[bytes], content_type: str) -> None:
        body = self._body = BodyReader(self._reader, content_type)
        async for chunk in chunks:
            self.progress += 1
            self._timers.byte(self._loop.time())
            self._take_all(body.feed(chunk))
            if self._problem is not None:
                return

    async def _receive_error(self, chunks: AsyncIterator[bytes]) -> None:
        self._limit_rest(ERROR_BODY_S)
        async for chunk in chunks:
            self._error_body += chunk
            if len(self._error_body) >= facts.MAX_BODY_BYTES:
                return

    def _take_all(self, happenings: list[AnyHappening]) -> None:
        for happening in happenings:
            match happening:
                case Text():
                    self._coalescer.add(happening.text, reasoning=False)
                    self._step()
                case ReasoningText():
                    self._coalescer.add(happening.text, reasoning=True)
                    self._step()
                case Step():
                    self._step()
                case Finished():
                    self._step()
                    self._limit_rest(DRAIN_S if happening.last else AFTER_FINISH_S)
                case ErrorReport() | Malformed():
                    self._problem = happening

    def _step(self) -> None:
        self.progress += 1
        self._timers.step(self._loop.time())
        if self._phase != "body":
            self._say_phase("body")
            self._watch_limits()

    async def _trace(self, event: str, info: dict[str, object]) -> None:
        """httpcore's account of the request (rules 3 and 4)."""
        match event:
            case "connection.connect_tcp.complete" | "connection.start_tls.complete":
                stream = info["return_value"]
                if isinstance(stream, httpcore.AsyncNetworkStream):
                    self._stream = stream
            case "http11.send_request_headers.started":
                self._timers.connected(self._loop.time())
                self._say_phase("headers")
            case "http11.send_request_body.complete":
                self._timers.connected(self._loop.time())
                self._watch_limits()
            case _:
                pass

    def _say_phase(self, phase: Phase) -> None:
        self._phase = phase
        self._send_progress(phase)

    def _send_progress(self, phase: Phase) -> None:
        if self._stopped:
            return
        request = self.request
        self._outbox.send(
            AttemptProgress(
                session_id=request.session_id,
                run=request.run,
                turn=request.turn,
                generation=request.generation,
                attempt=request.attempt,
                phase=phase,
            )
        )

    def _deliver(self, text: str, reasoning: bool) -> None:
        request = self.request
        self._outbox.send(
            Delta(
                session_id=request.session_id,
                run=request.run,
                turn=request.turn,
                generation=request.generation,
                attempt=request.attempt,
                text=text,
                reasoning=reasoning,
            )
        )

    def _limit_rest(self, seconds: float) -> None:
        self._timers.limit_rest(self._loop.time() + seconds)
        self._watch_limits()

    def _watch_limits(self) -> None:
        """Have the timer stand no later than the next deadline. One that stands earlier looks again by itself."""
        if not self._receiving:
            return
        deadline, _ = self._timers.next()
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._look, deadline)

    def _look(self, expected: float) -> None:
        self._timer = None
        now = self._loop.time()
        deadline, name = self._timers.next()
        if deadline > now:
            self._watch_limits()
        elif now - expected > LATE_S:  # rule 6
            self._timer = self._loop.call_later(LATE_LOOK_S, self._look, now + LATE_LOOK_S)
        else:
            self._tripped = name
            self._cancel_once()

    async def _close(self) -> bool:
        """Rule 2."""
        closing = self._loop.create_task(self._close_connection())
        done, _ = await asyncio.wait({closing}, timeout=CLOSE_S)
        if closing in done:
            closing.result()
            return True
        log.warning("the connection of attempt %d did not close within %s s", self.request.attempt, CLOSE_S)
        self._http.distrust()
        return False

    async def _close_connection(self) -> None:
        with contextlib.suppress(*TRANSPORT_ERRORS):  # it is broken already, and closed by that
            if self._response is not None:
                await self._response.aclose()
            if self._stream is not None and (self._cancelled or self._exception is not None):
                await self._stream.aclose()

    def _outcome(self) -> FromWorker:
        request, summary, problem = self.request, self._reader.summary(), self._problem
        if summary.finish is not None and problem is None:  # rule 5
            return AttemptEnded(
                session_id=request.session_id,
                run=request.run,
                turn=request.turn,
                generation=request.generation,
                attempt=request.attempt,
                finish=summary.finish,
                finish_raw=summary.finish_raw,
                calls=summary.calls,
                reasoning=summary.reasoning,
                usage=summary.usage,
                refusal=summary.refusal,
            )
        response = self._response
        answered = response is not None and response.is_success
        body = problem.data if problem is not None else self._error_body.decode("utf-8", "replace")
        exception = None
        if self._exception is not None and (answered or response is None):
            exception = facts.without_key(facts.exception_text(self._exception), self._key)
        return AttemptFailed(
            session_id=request.session_id,
            run=request.run,
            turn=request.turn,
            generation=request.generation,
            attempt=request.attempt,
            phase=self._phase,
            status=None if response is None else response.status_code,
            headers={} if response is None else dict(facts.headers_that_matter(response.headers.items())),
            body=facts.without_key(facts.cut(body), self._key),
            in_stream=problem is not None and problem.in_stream,
            exception=exception,
            timer=self._tripped,
            truncated=answered and problem is None and self._tripped is None,
            malformed=problem.words if isinstance(problem, Malformed) else None,
            calls=tuple(msgspec.structs.replace(call, complete=False) for call in summary.calls),
            usage=summary.usage,
        )


def _encoding(headers: httpx.Headers) -> str:
    """Of the body, as text that may be shown; "" for none."""
    names = [name.strip().lower() for name in headers.get("content-encoding", "").split(",")]
    text = ", ".join(name for name in names if name not in ("", "identity"))
    return "".join(filter(str.isprintable, text))[:LONGEST_ENCODING]
