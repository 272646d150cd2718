"""Entry of a tool worker, just after the fork."""

import asyncio
import signal

from haltline.protocol import linux
from haltline.protocol.boot import WorkerBoot
from haltline.worker.actor import Outbox, run_actor
from haltline.worker.tool import environment
from haltline.worker.tool.handler import ToolHandler


def main(boot: WorkerBoot) -> None:
    """Serve until told to go; ends the process, never returns."""
    environment.forget_keys()
    linux.set_process_name("tool")
    linux.become_subreaper()
    linux.set_not_dumpable()
    asyncio.run(run_actor(boot, _make_handler))


def _make_handler(outbox: Outbox) -> ToolHandler:
    # The actor ignores SIGINT, which tools would inherit through exec; a handler is reset there.
    signal.signal(signal.SIGINT, _ignore)
    return ToolHandler(outbox)


def _ignore(_number: int, _frame: object) -> None:
    """Ctrl+C belongs to the client."""
