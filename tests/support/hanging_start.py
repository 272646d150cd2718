"""Starts the program from a checkout as bin/start.py does, with workers that can be made to hang:

    python -I -S tests/support/hanging_start.py HOW ARGS

`spin`: at SIGUSR1 a worker's loop computes for ever. `block`: it waits for ever for something that never comes. Both
in the loop's own thread, as a bug there would. The product knows nothing of this: its table of roles is wrapped here,
before the first fork.
"""

import sys

root = __file__.rpartition("/tests/")[0]
haltline = type(sys)("haltline")
haltline.__path__ = [root]
sys.modules["haltline"] = haltline
sys.path.append(f"{root}/.venv/site-packages")
how = sys.argv.pop(1)
sys.argv[0] = "haltline"

import signal  # noqa: E402  (the path is set above)
import threading  # noqa: E402
from collections.abc import Callable  # noqa: E402

from haltline.cli import launcher, roles  # noqa: E402

Entry = Callable[[bytes, int | None], None]


def hang(_number: int, _frame: object) -> None:
    if how == "block":
        threading.Event().wait()
    while True:
        pass


def hanging(entry: Entry) -> Entry:
    def run(boot: bytes, fd: int | None) -> None:
        signal.signal(signal.SIGUSR1, hang)
        entry(boot, fd)

    return run


for role in ("llm", "tool"):
    setattr(roles, role, hanging(getattr(roles, role)))
launcher.main()
