"""A `haltline run` of our own, as a real process, shown live while its events are kept."""

import os
import subprocess
import time
from typing import Final

import msgspec

from haltline.cli.interrupts import Interrupted
from haltline.cli.lane import wait
from haltline.cli.outlet import Outlet
from haltline.cli.own_command import own_command
from haltline.cli.pieces import View
from haltline.protocol import trees
from haltline.protocol.events import Result
from haltline.protocol.lines import from_json

_STATUS_S: Final = 0.25


class RunSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run from outside."""

    result: Result | None
    """None: it ended without a last line."""
    exit_code: int
    seconds: float
    """From the start of the process to its end."""
    left: int
    """Processes alive below us when it had ended. This process has to be a subreaper."""


def run_and_show(arguments: list[str], view: View, outlet: Outlet) -> RunSeen:
    """Start `haltline run -o stream-json ARGUMENTS` and show it. An Interrupted is handed to it as the signal that it
    was and, when it has ended, on up."""
    began = time.monotonic()
    process = subprocess.Popen(
        own_command("run", "-o", "stream-json", *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        process_group=0,  # a Ctrl+C of the terminal reaches it through us alone, once
    )
    assert process.stdout is not None, "it was asked for"
    try:
        result = _show(process.stdout.fileno(), view, outlet)
        exit_code = process.wait()
    except Interrupted as interruption:
        _stop(process, process.stdout.fileno(), interruption.number, view, outlet)
        raise
    finally:
        process.stdout.close()
    return RunSeen(
        result=result,
        exit_code=exit_code,
        seconds=time.monotonic() - began,
        left=sum(process.alive for process in trees.descendants(os.getpid())),
    )


def _stop(process: subprocess.Popen[bytes], fd: int, number: int, view: View, outlet: Outlet) -> None:
    """Hand on every signal until it has ended; it leaves at the third by itself."""
    while True:
        process.send_signal(number)
        try:
            _show(fd, view, outlet)
            process.wait()
        except Interrupted as again:
            number = again.number
        else:
            return


def _show(fd: int, view: View, outlet: Outlet) -> Result | None:
    """Show events until the stream ends. Returns the last result."""
    result: Result | None = None
    buffer = b""
    while True:
        status = view.status(time.monotonic())
        outlet.set_status(status)
        ready = wait(None, reading=(fd,), writing=outlet.waiting, timeout_s=_STATUS_S if status is not None else None)
        outlet.write(ready)
        if fd not in ready:
            continue
        piece = os.read(fd, 65536)
        *lines, buffer = (buffer + piece).split(b"\n")
        for line in map(from_json, lines):
            outlet.put(view.show(line, time.monotonic()))
            if isinstance(line.event, Result):
                result = line.event
        if not piece:
            return result
