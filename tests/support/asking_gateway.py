"""The smallest model server that there can be: asks for one call, then says one word, when it may."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WITHIN_S = 30.0


class AskingGateway:
    """`base_url`: chat completions. The second answer waits for `go_on`, so that the session still runs by then."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.command = ""
        """Of a shell call."""
        self.path = ""
        """Of a read_file call, in its place."""
        self._may_go_on = threading.Event()

    def go_on(self) -> None:
        self._may_go_on.set()

    def answer(self, request: dict[str, object]) -> Iterator[dict[str, object]]:
        """The chunks of one response. The first request is the one that ends with the user's message."""
        messages = request["messages"]
        assert isinstance(messages, list)
        if messages[-1]["role"] == "user":
            name, arguments = ("read_file", {"path": self.path}) if self.path else ("shell", {"command": self.command})
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            yield _chunk({"role": "assistant", "tool_calls": [call]}, None)
            yield _chunk({}, "tool_calls")
        else:
            assert self._may_go_on.wait(WITHIN_S)
            yield _chunk({"role": "assistant", "content": "done"}, None)
            yield _chunk({}, "stop")


def _chunk(delta: dict[str, object], finish: str | None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@contextmanager
def asking() -> Generator[AskingGateway]:
    """A gateway on a free port of 127.0.0.1, in threads of this process."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for chunk in gateway.answer(request):
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nothing on the test's stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        gateway = AskingGateway(f"http://127.0.0.1:{server.server_address[1]}/v1")
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        try:
            yield gateway
        finally:
            gateway.go_on()
            server.shutdown()
            serving.join()
