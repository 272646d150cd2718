"""Imports of the LLM worker that take long, in steps; done by the zygote when it is idle, else after the handshake.

httpx imports its command line, and with it click, rich and pygments, when they are installed: a third of its import
time. A stub stands in for that module. (httpx assigns to an attribute of `main`, so it must be an object that has
attributes.)
"""

import importlib
import ssl
import sys
import types
from collections.abc import Iterator
from functools import cache

STEPS: tuple[tuple[str, ...], ...] = (
    ("h11",),
    ("anyio",),
    ("anyio._backends._asyncio",),
    ("httpcore",),
    ("httpx", "httpx._transports.default"),
    ("httpcore._backends.anyio", "httpcore._async.http11"),
    ("haltline.worker.llm.stream",),
)
"""One step holds a loop at most for what its own modules cost: 10 to 40 ms, cold."""


def steps() -> Iterator[None]:
    """All of them, to be advanced step by step by a loop that must stay able to answer (L5)."""
    _stub_command_line()
    for modules in STEPS:
        for module in modules:
            importlib.import_module(module)
        yield


@cache
def tls_context() -> ssl.SSLContext:
    """The context for https, with the certificate authorities of the environment: 25 ms, so it is made where an https
    URL is in use. Read-only once made: forked children share it."""
    import httpx

    return httpx.create_ssl_context()


def _stub_command_line() -> None:
    if "httpx" not in sys.modules and "httpx._main" not in sys.modules:
        stub = types.ModuleType("httpx._main")

        def main() -> None:
            raise SystemExit("the httpx command line is not part of this process")

        stub.main = main  # type: ignore[attr-defined]
        sys.modules["httpx._main"] = stub
