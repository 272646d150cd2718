"""Entry of a tool worker, just after the fork."""

import asyncio
import signal

from haltline.protocol import linux, marks
from haltline.protocol.boot import WorkerBoot
from haltline.protocol.platforms import PORTABLE
from haltline.worker.actor import Outbox, run_actor
from haltline.worker.tool import environment
from haltline.worker.tool.handler import ToolHandler
from haltline.worker.tool.reach import ByMarks, Descent, Reach


def main(boot: WorkerBoot) -> None:
    """Serve until told to go; ends the process, never returns."""
    environment.forget_keys()
    linux.set_process_name("tool")
    reach = _reach(boot)
    linux.set_not_dumpable()

    def make_handler(outbox: Outbox) -> ToolHandler:
        # The actor ignores SIGINT, which tools would inherit through exec; a handler is reset there.
        signal.signal(signal.SIGINT, _ignore)
        return ToolHandler(outbox, reach, boot.outputs)

    asyncio.run(run_actor(boot, make_handler))


def _reach(boot: WorkerBoot) -> Reach:
    """Of two ways the one that was asked for, or the one that there is."""
    if PORTABLE or boot.isolation == "groups":
        return ByMarks(marks.cookie(boot.chain, boot.worker_id))
    linux.become_subreaper()
    return Descent()


def _ignore(_number: int, _frame: object) -> None:
    """Ctrl+C belongs to the client."""
