"""A gateway that stamps: notes when requests come and clients leave, and sends deltas whose text is the time
at which they left.

Times are CLOCK_MONOTONIC seconds, which all processes of a machine share.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time


class StampingServer:
    """Answers every chat request with `deltas` pieces, `rate` a second. One thread per connection."""

    def __init__(self, *, deltas: int, rate: float) -> None:
        self.arrived: list[float] = []
        """When the first byte of each request came."""
        self.left: list[float] = []
        """When each client closed its response before the end."""
        self._deltas = deltas
        self._rate = rate
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:  # closed
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            data = connection.recv(65536)
            self.arrived.append(time.monotonic())
            while not _whole(data):
                data += connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            try:
                due = time.monotonic()
                for _ in range(self._deltas):
                    due += 1 / self._rate
                    if _leaves(connection, due):
                        self.left.append(time.monotonic())
                        return
                    connection.sendall(_event({"content": f"{time.monotonic():.6f} "}, None))
                connection.sendall(_event({}, "stop") + b"data: [DONE]\n\n")
            except (BrokenPipeError, ConnectionResetError):
                self.left.append(time.monotonic())

    def close(self) -> None:
        self._listener.close()


def _leaves(connection: socket.socket, until: float) -> bool:
    """Wait until then; True as soon as the client has closed."""
    ready, _, _ = select.select([connection], [], [], max(0.0, until - time.monotonic()))
    return bool(ready) and not connection.recv(65536)


def _whole(request: bytes) -> bool:
    head, blank, body = request.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(blank) and len(body) >= int(lengths[0].split(b":")[1]) if lengths else bool(blank)


def _event(delta: dict[str, str], finish: str | None) -> bytes:
    chunk = {
        "id": "1",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
