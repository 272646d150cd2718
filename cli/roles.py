"""What the zygote runs for each role: the one place where the rooms are put together.

Each entry is called in a fresh fork with the boot bytes that the supervisor sent and, for the embedded gateway,
a listening socket. Imports stay inside: the zygote decides what is loaded when.
"""

import os
import select

import msgspec

from haltline.protocol import linux, secrets
from haltline.protocol.boot import WorkerBoot

ROLES = {
    "llm": "haltline.cli.roles:llm",
    "tool": "haltline.cli.roles:tool",
    "gateway": "haltline.cli.roles:gateway",
}
EARLY = ("haltline.cli.roles", "haltline.worker.actor", "haltline.worker.tool.main", "haltline.worker.llm.main")
"""Imported before the first fork."""
IDLE = ("haltline.worker.llm.preload:steps",)
"""Iterators that the zygote advances while it has nothing to do; a fork has what was done by then."""


def llm(boot: bytes, _fd: int | None) -> None:
    from haltline.worker.llm.main import main

    linux.set_process_name("llm")
    main(msgspec.msgpack.decode(boot, type=WorkerBoot))


def tool(boot: bytes, _fd: int | None) -> None:
    from haltline.worker.tool.main import main

    linux.set_process_name("tool")
    main(msgspec.msgpack.decode(boot, type=WorkerBoot))


def gateway(boot: bytes, fd: int | None) -> None:
    """`boot`: the number of the descriptor that tells of the supervisor's death."""
    import socket
    import threading

    from haltline.gateway.main import run_on

    secrets.forget(os.environ)
    linux.set_process_name("gateway")
    threading.Thread(target=_leave_with, args=(int(boot),), daemon=True).start()
    run_on(socket.socket(fileno=fd))


def _leave_with(supervisor: int) -> None:
    """The zygote ends the gateway; this does where both have died at once. The gateway itself knows none of us."""
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.poll()
    os._exit(0)
