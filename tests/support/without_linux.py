"""Takes away what Linux alone has, then is `haltline ARGS`; with `import`, imports every module and says how many.

What is missing raises, as it would elsewhere. /proc is there for psutil alone, which has other ways on other systems.
"""

import builtins
import ctypes
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def take_names_away() -> None:
    for place, names in (
        (os, ("pidfd_open", "memfd_create", "pipe2", "unshare", "setns", "sched_getaffinity", "eventfd")),
        (signal, ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo")),
        (select, ("epoll",)),
        (socket, ("SOCK_SEQPACKET", "SOCK_NONBLOCK", "SOCK_CLOEXEC")),
    ):
        for name in names:
            if hasattr(place, name):
                delattr(place, name)


def take_prctl_away() -> None:
    whole = ctypes.CDLL.__getattr__

    def getattr_(library: ctypes.CDLL, name: str) -> object:
        if name in ("prctl", "unshare", "setns", "pidfd_open"):
            raise AttributeError(f"dlsym: symbol not found: {name}")
        return whole(library, name)

    ctypes.CDLL.__getattr__ = getattr_  # type: ignore[method-assign,assignment]


def guarded(function: Callable[..., object]) -> Callable[..., object]:
    def call(*arguments: object, **options: object) -> object:
        in_proc = bool(arguments) and str(arguments[0]).startswith("/proc")
        if in_proc and "psutil" not in sys._getframe(1).f_globals["__name__"]:
            raise FileNotFoundError(2, "no /proc here")
        return function(*arguments, **options)

    return call


def take_proc_away() -> None:
    for place, name in ((builtins, "open"), (os, "open"), (os, "listdir")):
        setattr(place, name, guarded(getattr(place, name)))


def import_all() -> int:
    import haltline

    count = 0
    for room in ("protocol", "supervisor", "worker", "gateway", "cli"):
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if "demo_repo" in parts or parts[-1] in ("__main__", "find"):
                continue
            importlib.import_module(".".join((haltline.__name__, *parts)).removesuffix(".__init__"))
            count += 1
    return count


os.environ["HALTLINE_PORTABLE"] = "1"  # what sys.platform says elsewhere
importlib.import_module("psutil")  # looks at /proc when it is imported
take_names_away()
take_prctl_away()
take_proc_away()
if sys.argv[1:] == ["import"]:
    print(import_all())
else:
    from haltline.cli.launcher import main

    main()
