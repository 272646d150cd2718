"""ZeroMQ as the supervisor and its workers see it, over virtual time: contexts, sockets, and the lines between them.

1. Mail between two sockets keeps its order and takes its time. Nothing but a broadcast can be lost on the way, and
   what a process had under way when it was killed; a line told to be lossy loses the addressed cancel behind a lost
   broadcast too.
2. A descriptor tells of mail once, when there was none before, and tells nothing that any other call on its socket
   has noticed in the meantime (the edge can be eaten).
3. A pipe can be full for a while: then a send is refused with EAGAIN. A peer that was never there, or is known to be
   gone, is refused with EHOSTUNREACH. One that has just died still takes mail, which goes nowhere.
4. A subscription takes its time too; what is broadcast before it arrived is not heard.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import cast

import msgspec
import zmq

from sim.loop import Process, Timeline

AGAIN = zmq.Again()
UNREACHABLE = zmq.ZMQError(zmq.EHOSTUNREACH)
CANCEL, CANCEL_AT = b"cancel", 20
"""Where an encoded message that is a cancel says so."""
GONE_S = 0.005
"""From a process's death to the moment in which its peer's socket knows."""


class Weather(msgspec.Struct, kw_only=True):
    """What a line does to its mail: delays in seconds, chances in [0, 1)."""

    delay_s: float = 0.0003
    slow: float = 0.0
    """Chance that a message is late by up to `late_s`, and all behind it with it."""
    late_s: float = 0.3
    lost_broadcast: float = 0.0
    lossy: bool = False
    """The addressed cancel behind a lost broadcast is lost as well, once."""
    full: float = 0.0
    """Chance that a pipe is full when a message is sent, and for up to `full_s`."""
    full_s: float = 0.2


class Line:
    """The way between one peer and the supervisor, over all lanes. `sent(data)` sees the addressed mail of the
    supervisor in the moment in which it is sent."""

    def __init__(
        self,
        timeline: Timeline,
        name: str,
        rng: Random,
        weather: Weather,
        sent: Callable[[bytes], None] = lambda _data: None,
    ) -> None:
        self.timeline = timeline
        self.name = name
        self.sent = sent
        self.open = True
        self.subscribed = False
        """The supervisor has the subscription."""
        self._rng = rng
        self._weather = weather
        self._last: dict[str, float] = {}
        self._full_until = 0.0
        self._lose_next = False
        self._lose_all = False

    def carry(self, lane: str, deliver: Callable[..., object], *args: object) -> None:
        """Rule 1: in order within a lane."""
        weather, rng = self._weather, self._rng
        delay = weather.delay_s * (0.5 + rng.random())
        if weather.slow and rng.random() < weather.slow:
            delay += rng.random() * weather.late_s
        at = max(self.timeline.now + delay, self._last.get(lane, 0.0))
        self._last[lane] = at
        self.timeline.at(at, self._deliver, deliver, args)

    def _deliver(self, deliver: Callable[..., object], args: tuple[object, ...]) -> None:
        if not self._lose_all:
            deliver(*args)

    def is_full(self) -> bool:
        now, weather = self.timeline.now, self._weather
        if now >= self._full_until and weather.full and self._rng.random() < weather.full:
            self._full_until = now + self._rng.random() * weather.full_s
            self.timeline.tell("net", f"the pipe to {self.name} is full for {self._full_until - now:.3f} s")
        return now < self._full_until

    def loses_broadcast(self) -> bool:
        lost = bool(self._weather.lost_broadcast) and self._rng.random() < self._weather.lost_broadcast
        if lost:
            self._lose_next = self._weather.lossy
            self.timeline.tell("net", f"a broadcast to {self.name} is lost")
        return lost

    def loses_addressed(self) -> bool:
        lost, self._lose_next = self._lose_next, False
        if lost:
            self.timeline.tell("net", f"addressed mail to {self.name} is lost")
        return lost

    def cut(self) -> None:
        """The peer was killed: what was under way arrives, or does not."""
        self.open = False
        self._lose_all = self._rng.random() < 0.5


class Network:
    """The sockets that are bound, by address."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.bound: dict[str, Socket] = {}
        self._fd = 1_000

    def context(self, process: Process, line: Line | None = None) -> "zmq.Context[zmq.Socket[bytes]]":
        """Of `process`; `line` is its way to the supervisor, None for the supervisor itself."""
        return cast("zmq.Context[zmq.Socket[bytes]]", Context(self, process, line))

    def next_fd(self) -> int:
        self._fd += 1
        return self._fd


class Context:
    def __init__(self, network: Network, process: Process, line: Line | None) -> None:
        self._network = network
        self._process = process
        self._line = line

    def socket(self, kind: int) -> "Socket":
        return Socket(self._network, self._process, kind, self._line)


class Socket:
    """ROUTER and XPUB on the supervisor's side, DEALER and SUB on the other."""

    def __init__(self, network: Network, process: Process, kind: int, line: Line | None) -> None:
        self._network = network
        self._process = process
        self._kind = kind
        self._line = line
        self._fd = network.next_fd()
        self._inbox: deque[list[bytes]] = deque()
        self._edge = False
        self._asleep = True
        """The reader has seen it empty: the next arrival is an edge (rule 2)."""
        self._closed = False
        self._identity = b""
        self._topic = b""
        self._peers: dict[bytes, tuple[Line, Socket]] = {}
        self._server: Socket | None = None
        self.on_mail: Callable[[list[bytes]], None] | None = None
        """Set by a peer that has no loop: it is called with each message."""

    # What a program calls

    def setsockopt(self, option: int, value: int | bytes) -> None:
        if option == zmq.ROUTING_ID:
            assert isinstance(value, bytes)
            self._identity = value

    def getsockopt(self, option: int) -> int:
        if option == zmq.FD:
            return self._fd
        assert option == zmq.EVENTS
        self._edge = False
        return zmq.POLLIN if self._inbox else 0

    def bind(self, address: str) -> None:
        self._network.bound[address] = self

    def subscribe(self, topic: bytes) -> None:
        self._topic = topic

    def connect(self, address: str) -> None:
        self._server = server = self._network.bound[address]
        line = self._own_line()
        if self._kind == zmq.DEALER:
            server._peers[self._identity] = (line, self)
        else:
            line.carry("subscription", server._subscribed, line, self)  # rule 4

    def send_multipart(self, frames: Sequence[bytes], flags: int) -> None:
        assert flags == zmq.NOBLOCK
        self._edge = False
        to, data = frames
        found = self._peers.get(to)
        if found is None:
            if self._kind == zmq.ROUTER:
                raise UNREACHABLE
            return
        line, peer = found
        if self._kind == zmq.XPUB:
            if not line.loses_broadcast():
                line.carry("broadcast", peer._arrived, [to, data])
            return
        if line.is_full():
            raise AGAIN
        line.sent(data)
        if line.open and not (CANCEL in data[:CANCEL_AT] and line.loses_addressed()):
            line.carry("down", peer._arrived, [data])

    def send(self, data: bytes, flags: int) -> None:
        assert flags == zmq.NOBLOCK
        assert self._server is not None
        self._edge = False
        self._own_line().carry("up", self._server._arrived, [self._identity, data])

    def recv_multipart(self, flags: int) -> list[bytes]:
        assert flags == zmq.NOBLOCK
        self._edge = False
        if not self._inbox:
            self._asleep = True
            raise AGAIN
        return self._inbox.popleft()

    def close(self, linger: int | None = None) -> None:  # noqa: ARG002 nothing is lost here by closing
        self._closed = True
        self._inbox.clear()

    # What happens to it

    def vanish(self) -> None:
        """Its process is dead; the peer learns it in a moment (rule 3)."""
        self._closed = True
        server = self._server
        if server is not None:
            self._network.timeline.after(GONE_S, server._lost, self._topic or self._identity, self._kind == zmq.SUB)

    def _own_line(self) -> Line:
        assert self._line is not None
        return self._line

    def _subscribed(self, line: Line, peer: "Socket") -> None:
        self._peers[peer._topic] = (line, peer)
        line.subscribed = True
        self._arrived([b"\x01" + peer._topic])

    def _lost(self, name: bytes, subscriber: bool) -> None:
        self._peers.pop(name, None)
        if subscriber:
            self._arrived([b"\x00" + name])

    def _arrived(self, frames: list[bytes]) -> None:
        if self._closed:
            return
        if self.on_mail is not None:
            self.on_mail(frames)
            return
        self._inbox.append(frames)
        if self._asleep:
            self._asleep = False
            self._edge = True
            self._process.readable(self._fd, self._has_edge)

    def _has_edge(self) -> bool:
        return self._edge
