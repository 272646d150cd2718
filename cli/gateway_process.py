"""The scripted gateway in a process of its own: the witness of what happened to a stream."""

import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec

from haltline.cli.interrupts import undisturbed
from haltline.cli.own_command import own_command
from haltline.protocol.errors import ConfigurationProblem

_LOOK_S: Final = 0.005
"""Between two looks at the log."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a line of the gateway's log."""

    event: str
    scenario: str
    session: str
    mono: float


class GatewayProcess:
    """`url`: its base URL. `log`: its log file; None: it keeps none."""

    def __init__(self, pid: int, url: str, log: str | None) -> None:
        self.pid = pid
        self.url = url
        self._log = log

    def lines(self) -> list[LogLine]:
        """What it has logged so far."""
        if self._log is None:
            return []
        with open(self._log, "rb") as log:
            return [msgspec.json.decode(line, type=LogLine) for line in log.read().splitlines()]

    def requests(self, scenario: str) -> list[float]:
        """When each request for this scenario came, monotonic seconds."""
        return [line.mono for line in self.lines() if line.event == "request" and line.scenario == scenario]

    def left_at(self, wanted: Callable[[LogLine], bool], within_s: float) -> float | None:
        """When a client first closed a wanted response before its end (monotonic seconds). Waits `within_s` for that
        at most; None: none was closed."""
        deadline = time.monotonic() + within_s
        while True:
            for line in self.lines():
                if line.event == "disconnect" and wanted(line):
                    return line.mono
            if time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK_S)


@contextmanager
def serving(log: str | None = None, environment: Mapping[str, str] | None = None) -> Generator[GatewayProcess]:
    """It is in a process group of its own, so that a Ctrl+C of the terminal does not reach it, and is ended here,
    whatever comes. `environment`: in place of ours. Raises ConfigurationProblem where it does not start."""
    arguments = ("gateway",) if log is None else ("gateway", "--log", log)
    with ExitStack() as ends:
        with undisturbed():
            process = subprocess.Popen(
                own_command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                env=environment,
                process_group=0,
            )
            ends.callback(_end, process)
        assert process.stdout is not None, "it was asked for"
        said = process.stdout.readline().decode("utf-8", "replace").split()
        if said[:2] != ["listening", "on"]:
            raise ConfigurationProblem("the scripted gateway did not start")
        yield GatewayProcess(process.pid, said[2], log)


def _end(process: "subprocess.Popen[bytes]") -> None:
    with undisturbed():
        process.send_signal(signal.SIGTERM)
        process.communicate()
