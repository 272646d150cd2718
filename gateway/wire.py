"""Writes one HTTP/1 response by hand, so that it can be broken at any byte.

A library that writes responses repairs them; this one has to be able to send half of one.
"""

import asyncio
import socket
import struct

REASONS = {
    100: "Continue",
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    529: "Overloaded",
}

Headers = tuple[tuple[str, str], ...]


class CutReached(Exception):
    """The response has reached the byte at which it was to break; what came before has been written."""


class Wire:
    """One response on one connection.

    `cut_at`: number of bytes of the response, head included, after which it breaks; None: never.
    `keep_alive`: the connection may serve another request afterwards.
    `chunked`: the client understands chunked bodies (HTTP/1.1); otherwise a body ends with the connection.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        writable: asyncio.Event,
        *,
        cut_at: int | None,
        keep_alive: bool,
        chunked: bool,
    ) -> None:
        self._transport = transport
        self._writable = writable
        self._cut_at = cut_at
        self._written = 0
        self._chunked = chunked
        self.keep_alive = keep_alive and chunked

    def stream_head(self, status: int, headers: Headers) -> None:
        """The head of a body of unknown length."""
        framing = (("transfer-encoding", "chunked"),) if self._chunked else ()
        self._write(self._head(status, headers + framing))

    def part(self, data: bytes) -> None:
        """Bytes of such a body. An empty part would end it, and is not sent."""
        if not data:
            return
        self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def finish(self) -> None:
        """End such a body in good order."""
        if self._chunked:
            self._write(b"0\r\n\r\n")

    def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """A complete response."""
        self._write(self._head(status, (*headers, ("content-length", str(len(body))))) + body)

    def end_connection(self, *, reset: bool) -> None:
        """End the connection after what was written: FIN, or RST, which may overtake it."""
        if reset:
            raw = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        else:
            self._transport.close()

    async def drained(self) -> None:
        """Wait while the client reads slower than the script writes."""
        await self._writable.wait()

    def _head(self, status: int, headers: Headers) -> bytes:
        connection = "keep-alive" if self.keep_alive else "close"
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in (*headers, ("connection", connection))]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _write(self, data: bytes) -> None:
        if self._cut_at is not None and self._written + len(data) >= self._cut_at:
            self._transport.write(data[: self._cut_at - self._written])
            self._written = self._cut_at
            raise CutReached
        self._written += len(data)
        if not self._transport.is_closing():  # the client has gone; the script hears of it at its next step
            self._transport.write(data)
