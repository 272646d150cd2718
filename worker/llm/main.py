"""Entry of the LLM worker, called in a freshly forked child. Imports nothing that a hello does not need."""

import asyncio

from haltline.protocol.boot import WorkerBoot
from haltline.worker.actor import run_actor
from haltline.worker.llm.handler import LlmHandler


def main(boot: WorkerBoot) -> None:
    """Serve until told to leave; ends the process, so it never returns. The caller still guards with os._exit."""
    asyncio.run(run_actor(boot, LlmHandler))
