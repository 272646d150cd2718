"""All supervisors of this user, spoken to at once: how `ps`, `cancel` and `kill` in a second terminal reach them.

1. Each supervisor listens at its door, a plain Unix stream socket beside its ZeroMQ endpoints. Whoever connects is
   looked at by the kernel's word (SO_PEERCRED) and gets one answer (protocol/door.py): a token, or why not.
2. All are knocked at together, and the first request goes out with the hello. Each has a deadline of its own, so one
   that is stopped or overloaded holds up nobody.
3. One that has just been started holds no door yet; its pid file says that it is there, and it is knocked at again.
   So is one before whose door too many wait.
4. A supervisor's death is seen through its pidfd. What it sent before counts: its lane is read empty first. One that
   had ended before, whose guard is still there, has ended too: something of it may be left for a moment.
5. A folder without a pid file that was made a moment ago is of a supervisor that is just being forked: it is knocked at
   again as well.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Final, Self

import msgspec
import zmq

from haltline.cli.lane import LAST_WORDS_S, Context, Lane, new_context
from haltline.protocol import pidfile, processes, signposts
from haltline.protocol.client_messages import Listing, Receipt, Refused, ToSupervisor, Welcome
from haltline.protocol.door import LONGEST_BYTES, Granted, TurnedAway, decode
from haltline.protocol.endpoints import Endpoints, Places
from haltline.protocol.errors import ConfigurationProblem

ANSWER_S: Final = 2.0
"""From the knock to Welcome: 150 ms are aimed at, an overloaded machine may take ten times that."""
KNOCK_AGAIN_S: Final = 0.01
"""Rules 3 and 5."""
FORKED_S: Final = 0.5
"""Rule 5: from the folder to the pid file, which takes some milliseconds."""


class Silent(msgspec.Struct, frozen=True):
    """It did not answer in time."""

    within_s: float


class Ended(msgspec.Struct, frozen=True):
    """It is gone, or going, and has said all that it will say."""

    sessions: tuple[str, ...] = ()
    """Not closed by it: they end, or have ended, with it."""


Happening = Listing | Receipt | Refused | TurnedAway | Silent | Ended


class Peer:
    """One supervisor, as seen from here."""

    def __init__(self, endpoints: Endpoints, deadline: float) -> None:
        self.endpoints = endpoints
        self.folder = endpoints.folder
        self.waiting = True
        """An answer of it is due."""
        self.within_s = ANSWER_S
        self.deadline = deadline
        self.door: socket.socket | None = None
        self.answer = bytearray()
        self.lane: Lane | None = None
        self.pidfd: int | None = None
        self._chain: pidfile.Chain | None = None
        self.dying = False
        self.identify()

    def identify(self) -> None:
        """Once its pid file is there."""
        if self._chain is None and (chain := pidfile.read(self.folder)) is not None:
            self._chain = chain
            self.pidfd = processes.open_pidfd(chain.supervisor)

    @property
    def is_alive(self) -> bool:
        return self._chain is not None and processes.is_alive(self._chain.supervisor)

    @property
    def is_guarded(self) -> bool:
        return self._chain is not None and processes.is_alive(self._chain.guard)

    @property
    def is_being_forked(self) -> bool:
        """Rule 5."""
        try:
            made_s = os.stat(self.folder).st_mtime
        except OSError:
            return False
        return self._chain is None and abs(time.time() - made_s) < FORKED_S

    def expect(self, within_s: float) -> None:
        self.waiting = True
        self.within_s = within_s
        self.deadline = time.monotonic() + within_s

    def leave_door(self) -> None:
        if self.door is not None:
            self.door.close()
            self.door = None

    def close(self) -> None:
        self.waiting = False
        self.leave_door()
        if self.lane is not None:
            self.lane.close()
            self.lane = None
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class Supervisors:
    """`first` is asked of each; its answers may take `within_s` once the supervisor has said Welcome. Raises
    ConfigurationProblem if the runtime folder cannot be read."""

    def __init__(self, places: Places, first: ToSupervisor, *, within_s: float) -> None:
        self._first = first
        self._within_s = within_s
        self._context: Context | None = None
        knocked_at = time.monotonic()
        self.peers = tuple(Peer(endpoints, knocked_at + ANSWER_S) for endpoints in _endpoints(places))
        for peer in self.peers:
            self._knock(peer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers:
            peer.close()
        if self._context is not None:
            self._context.term()

    def ask(self, peer: Peer, request: ToSupervisor, *, within_s: float) -> None:
        """A further request to one that has answered; the others are waited for no more."""
        assert peer.lane is not None, "it has answered"
        for other in self.peers:
            other.waiting = False
        peer.lane.send(request)
        peer.expect(within_s)

    def happenings(self) -> Iterator[tuple[Peer, Happening]]:
        """What happens, until nothing is due any more. Whoever has heard enough of a peer ends its `waiting`; one that
        was turned away, is silent or has ended is waited for no more."""
        while waiting := [peer for peer in self.peers if peer.waiting]:
            ready = _poll(waiting)
            now = time.monotonic()
            for peer in waiting:
                for happening in self._look(peer, ready, now):
                    if not isinstance(happening, Listing | Receipt | Refused):
                        peer.waiting = False
                    yield peer, happening
                    if not peer.waiting:
                        break

    def _look(self, peer: Peer, ready: frozenset[object], now: float) -> Iterator[Happening]:
        heard = False
        if peer.door is not None and peer.door.fileno() in ready:
            heard = True
            yield from self._listen_at_door(peer)
        elif peer.lane is not None and peer.lane.socket in ready:
            heard = True
            yield from self._listen(peer, peer.lane)
        elif peer.door is None and peer.lane is None:
            self._knock(peer)
        if heard or not peer.waiting:
            return
        if peer.pidfd is not None and peer.pidfd in ready and not peer.dying:
            peer.dying = True
            peer.deadline = min(peer.deadline, now + LAST_WORDS_S)  # rule 4
        if now >= peer.deadline:
            yield Ended(pidfile.sessions(peer.folder)) if peer.dying else Silent(peer.within_s)

    def _listen_at_door(self, peer: Peer) -> Iterator[Happening]:
        assert peer.door is not None, "it is ready"
        over = _read(peer.door, peer.answer)
        match decode(bytes(peer.answer)):
            case Granted(token=token):
                peer.leave_door()
                if self._context is None:
                    self._context = new_context()
                peer.lane = Lane(peer.endpoints, token, context=self._context)
                peer.lane.send(self._first)
            case TurnedAway() as refusal:
                peer.leave_door()
                yield refusal
            case None if over:
                yield Ended(pidfile.sessions(peer.folder))
            case None:
                return

    def _listen(self, peer: Peer, lane: Lane) -> Iterator[Happening]:
        while (message := lane.receive()) is not None:
            match message:
                case Welcome():
                    peer.expect(self._within_s)
                case Listing() | Receipt() | Refused():
                    yield message
                case _:
                    continue

    def _knock(self, peer: Peer) -> None:
        """Rules 3 to 5: one without a door is waited for if it lives."""
        if peer.dying:
            return
        peer.identify()
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        door.setblocking(False)
        try:
            door.connect(peer.endpoints.door)
        except BlockingIOError:  # its backlog is full: it lives, and there may be room in time
            door.close()
        except OSError:  # there is none; or a tool, which may write here too, has made what cannot be one
            door.close()
            if peer.is_alive or peer.is_being_forked:
                return
            if peer.is_guarded:
                peer.dying = True
                peer.deadline = time.monotonic()
            else:
                peer.waiting = False
        else:
            peer.door = door


def _poll(peers: list[Peer]) -> frozenset[object]:
    """The descriptors and sockets of these that are ready, by the time that the first of them is due."""
    poller = zmq.Poller()
    until = min(peer.deadline for peer in peers)
    for peer in peers:
        if peer.lane is not None:
            poller.register(peer.lane.socket, zmq.POLLIN)
        elif peer.door is not None:
            poller.register(peer.door.fileno(), zmq.POLLIN)
        else:
            until = min(until, time.monotonic() + KNOCK_AGAIN_S)
        if peer.pidfd is not None and not peer.dying:
            poller.register(peer.pidfd, zmq.POLLIN)
    left_ms = max(0, round((until - time.monotonic()) * 1000) + 1)
    return frozenset(ready for ready, _ in poller.poll(left_ms))


def looked_in(places: Places) -> str:
    """For people: where supervisors were looked for."""
    return ", ".join(places.runtimes())


def _endpoints(places: Places) -> list[Endpoints]:
    """One for each folder, by however many ways it is found."""
    found: dict[tuple[int, int], Endpoints] = {}
    for runtime in places.runtimes():
        for folder in _folders(places, runtime):
            # What may be raised: it has gone meanwhile; or no socket can have such a path.
            with contextlib.suppress(OSError, ConfigurationProblem, UnicodeEncodeError):
                facts = os.stat(folder)
                found.setdefault((facts.st_dev, facts.st_ino), Endpoints(folder))
    return list(found.values())


def _folders(places: Places, runtime: str) -> list[str]:
    """Anybody may have made a folder of that name in a temporary directory: only the user's own is looked into, or the
    one that HALTLINE_HOME names."""
    try:
        uid = os.getuid()
        if places.runtime_by != "HALTLINE_HOME" and os.stat(runtime).st_uid != uid:
            return []
        with os.scandir(runtime) as entries:
            return sorted(folder for entry in entries if (folder := _folder(entry, uid)) is not None)
    except FileNotFoundError:
        return []
    except OSError as error:
        if runtime != places.runtime:
            return []
        raise ConfigurationProblem(f"cannot look for supervisors in {runtime}: {error.strerror}") from error


def _folder(entry: os.DirEntry[str], uid: int) -> str | None:
    """A supervisor's, or what a link of a supervisor elsewhere leads to."""
    if entry.is_symlink():
        return signposts.target(entry.path, uid)
    return entry.path if entry.is_dir(follow_symlinks=False) else None


def _read(door: socket.socket, answer: bytearray) -> bool:
    """True: nothing more will come."""
    try:
        piece = door.recv(LONGEST_BYTES)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True
    answer += piece
    return not piece or len(answer) > LONGEST_BYTES
