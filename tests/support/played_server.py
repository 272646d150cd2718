"""A model server that plays prepared bodies, one a request, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec


class Asked(msgspec.Struct, frozen=True):
    path: str
    headers: Mapping[str, str]
    """Lower-case names."""
    body: dict[str, Any]


class Played:
    """`address`: without any path."""

    def __init__(self, address: str, bodies: tuple[bytes, ...]) -> None:
        self.address = address
        self.asked: list[Asked] = []
        self._bodies = list(bodies)

    def answer(self, asked: Asked) -> bytes:
        self.asked.append(asked)
        return self._bodies.pop(0)


@contextmanager
def playing(*bodies: bytes) -> Generator[Played]:
    """A server on a free port of 127.0.0.1, in threads of this process. Each body is a stream."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            data = played.answer(Asked(self.path, headers, body))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nothing on the test's stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        played = Played(f"http://127.0.0.1:{server.server_address[1]}", bodies)
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield played
        finally:
            server.shutdown()
            serving.join()
