"""One TCP connection: requests in (read by h11), responses out (written by hand), and a client that may leave.

Rules:
1. Reading never pauses, so that the end of a connection is seen at once, also in the middle of a response.
2. One request at a time. What arrives during a response waits in `_unread`.
3. A client that ends its sending side has left: nobody who wants an answer does that here.
4. Each request has a fresh h11 reader, as the response is not written through it.
"""

import asyncio
from collections.abc import Awaitable, Callable

import h11
import msgspec

BODY_BYTES = 64 * 1024 * 1024
"""A larger request body is refused; conversations of a million tokens are some 4 MiB."""


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """One whole HTTP request."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    """Names in lower case."""
    body: bytes
    keep_alive: bool
    chunked: bool
    """The client understands a chunked response."""


class Refused(Exception):
    """The request cannot be read; carries the status to answer with."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class RequestReader:
    """Turns bytes into one Incoming."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = bytearray()

    @property
    def wants_continue(self) -> bool:
        return self._http.they_are_waiting_for_100_continue

    @property
    def leftover(self) -> bytes:
        """What came after the request."""
        return self._http.trailing_data[0]

    def feed(self, data: bytes) -> Incoming | None:
        """The request, once it is whole. Raises Refused."""
        try:
            self._http.receive_data(data)
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return None
                match event:
                    case h11.Request():
                        self._head = event
                    case h11.Data():
                        self._body += event.data
                        if len(self._body) > BODY_BYTES:
                            raise Refused(413, f"A request body may have {BODY_BYTES} bytes.")
                    case h11.EndOfMessage():
                        return self._whole()
                    case _:
                        raise Refused(400, "The client has closed before its request was whole.")
        except h11.RemoteProtocolError as error:
            raise Refused(400, f"The request is not HTTP: {error}") from error

    def _whole(self) -> Incoming:
        head = self._head
        assert head is not None, "h11 announces a request before its end"
        return Incoming(
            method=head.method.decode("ascii"),
            target=head.target.decode("latin-1"),
            headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers),
            body=bytes(self._body),
            keep_alive=self._http.their_state is not h11.MUST_CLOSE,
            chunked=head.http_version != b"1.0",
        )


Answer = Callable[["Connection", Incoming], Awaitable[bool]]
"""Answers one request; returns whether the connection may serve another."""


class Connection(asyncio.Protocol):
    def __init__(
        self,
        number: int,
        answer: Answer,
        refuse: Callable[["Connection", Refused], None],
        closed: Callable[["Connection"], None],
    ) -> None:
        self.number = number
        self.writable = asyncio.Event()
        self.writable.set()
        self._answer = answer
        self._refuse = refuse
        self._closed = closed
        self._reader = RequestReader()
        self._unread = b""
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "used before the connection was made"
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            self._unread += data
            return
        try:
            incoming = self._reader.feed(data)
        except Refused as refused:
            self._refuse(self, refused)
            self.transport.close()
            return
        if incoming is not None:
            self._unread = self._reader.leftover
            self._task = asyncio.create_task(self._serve(incoming))
        elif self._reader.wants_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def eof_received(self) -> None:
        """Rule 3: None lets the transport close, and connection_lost follows at once."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self)
        self.writable.set()
        if self._task is not None:
            self._task.cancel("reset" if exc is not None else "closed")

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    async def stop(self) -> None:
        """End the connection in the middle of what it carries, and wait until its response knows."""
        task = self._task
        if task is not None:
            task.cancel("gateway stopped")
        self.transport.abort()
        if task is not None:
            await asyncio.wait((task,))

    async def _serve(self, incoming: Incoming) -> None:
        try:
            again = await self._answer(self, incoming)
        except Exception:
            # A bug of a script must not look like a hang of the scenario.
            self.transport.abort()
            raise
        self._task = None
        if not again or self.transport.is_closing():
            self.transport.close()
            return
        self._reader = RequestReader()
        if self._unread:
            waiting, self._unread = self._unread, b""
            self.data_received(waiting)
