"""The supervisor's end of one zygote, or of its spare: requests in order, reports, its death.

1. Requests that the socket does not take wait in order; a burst of sessions outruns the zygote for a while.
2. What a zygote said before it died is read to the end. The kernel tells first, and once, that requests were left
   unread (ECONNRESET); the reports are behind that.
"""

import asyncio
import os
import select
import socket
from collections import deque
from collections.abc import Callable

from haltline.protocol import deaths, processes
from haltline.supervisor import zygote_messages

_REPORTS_PER_TURN = 64


class ZygoteLink:
    """Owns `requests` and `pidfd`. `on_report(report, fds)`: the descriptors are the hearer's."""

    def __init__(self, pid: int, pidfd: int, requests: socket.socket) -> None:
        self.pid = pid
        self._pidfd = pidfd
        self._requests = requests
        self._requests.setblocking(False)
        self._unsent: deque[tuple[bytes, tuple[int, ...]]] = deque()
        """Rule 1: requests with their descriptors, which are ours to close."""
        self._loop = asyncio.get_running_loop()
        self._on_report: Callable[[zygote_messages.Report, list[int]], None] = _unheard

    def listen(
        self, on_report: Callable[[zygote_messages.Report, list[int]], None], on_died: Callable[[], None]
    ) -> None:
        """From now on reports and its death are told, each report before the death."""
        self._on_report = on_report
        self._loop.add_reader(self._requests, self._read)
        self._loop.add_reader(self._pidfd, self._died, on_died)

    def ask(self, request: zygote_messages.Request, fds: tuple[int, ...] = ()) -> None:
        """`fds` are closed once they are sent."""
        self._unsent.append((zygote_messages.encode(request), fds))
        self._send()

    def kill(self) -> None:
        deaths.kill(self._pidfd)

    def is_alive(self) -> bool:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def is_stopped(self) -> bool:
        """By a signal, or by a debugger."""
        process = processes.read_process(self.pid)
        return process is not None and process.stopped

    def close(self) -> None:
        self._loop.remove_reader(self._requests)
        self._loop.remove_writer(self._requests)
        self._loop.remove_reader(self._pidfd)
        self._requests.close()
        os.close(self._pidfd)
        while self._unsent:
            self._forget_first()

    def _send(self) -> None:
        """Rule 1. A zygote that is gone needs no request: its death is seen through its pidfd."""
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                socket.send_fds(self._requests, [data], fds)
            except BlockingIOError:
                self._loop.add_writer(self._requests, self._send)
                return
            except ConnectionError:
                pass
            self._forget_first()
        self._loop.remove_writer(self._requests)

    def _forget_first(self) -> None:
        _, fds = self._unsent.popleft()
        for fd in fds:
            os.close(fd)

    def _died(self, on_died: Callable[[], None]) -> None:
        self._loop.remove_reader(self._pidfd)
        while self._read():  # rule 2
            continue
        on_died()

    def _read(self) -> bool:
        """True: there may be more."""
        for _ in range(_REPORTS_PER_TURN):
            try:
                data, fds, _flags, _address = socket.recv_fds(
                    self._requests, zygote_messages.REQUEST_BYTES, zygote_messages.REPORT_FDS
                )
            except BlockingIOError:
                return False
            except ConnectionResetError:  # rule 2
                continue
            if not data:
                self._loop.remove_reader(self._requests)
                return False
            for fd in fds:
                os.set_inheritable(fd, False)
            self._on_report(zygote_messages.decode_report(data), fds)
        return True


def _unheard(_report: zygote_messages.Report, _fds: list[int]) -> None:
    """A spare reports nothing before it serves."""
