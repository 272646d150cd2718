"""Starts the gateway: from a terminal, or in a process that was forked for it."""

import asyncio
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence

from haltline.gateway.selection import UnknownScenario
from haltline.gateway.server import HOST, serve

EXIT_USAGE = 2
EXIT_CONFIGURATION = 78
"""The port or the log file cannot be had."""


def run(port: int, scenario: str | None, log: str | None) -> int:
    """Serve until SIGINT or SIGTERM, after one line `listening on URL` on stdout. Returns the exit code."""

    def announce(chosen: int) -> None:
        print(f"listening on http://{HOST}:{chosen}/v1", flush=True)

    try:
        asyncio.run(_until_signalled(serve(None, port=port, scenario=scenario, log=log, ready=announce)))
    except UnknownScenario as error:
        print(f"haltline gateway: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        where = error.filename or f"{HOST}:{port}"
        print(f"haltline gateway: cannot use {where}: {error.strerror or error}", file=sys.stderr)
        return EXIT_CONFIGURATION
    return 0


def run_on(sock: socket.socket, *, scenario: str | None = None, log: str | None = None) -> None:
    """Serve on a bound and listening socket until SIGINT or SIGTERM; for a process that was forked for this."""
    asyncio.run(_until_signalled(serve(sock, scenario=scenario, log=log)))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    import argparse  # a forked gateway has no use for it

    parser = argparse.ArgumentParser(prog="haltline gateway", description="A scripted, fault-injecting model server.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--scenario", help="for models that name none")
    parser.add_argument("--log", metavar="FILE", help="one JSON line per request, response, piece and disconnect")
    options = parser.parse_args(argv)
    return run(options.port, options.scenario, options.log)


async def _until_signalled(serving: Coroutine[None, None, None]) -> None:
    loop = asyncio.get_running_loop()
    server = asyncio.ensure_future(serving)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.cancel)
    await asyncio.wait((server,))
    if not server.cancelled():
        server.result()
