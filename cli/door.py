"""The door of a supervisor, from outside: how `ps`, `cancel` and `kill` in a second terminal get a token.

Each supervisor listens on a plain Unix stream socket beside its ZeroMQ endpoints. Whoever connects is looked at
by the kernel's word (SO_PEERCRED) and gets one answer (protocol/door.py).
All doors are knocked on together, under one deadline: a supervisor that is stopped or overloaded holds up nobody.
"""

import os
import select
import socket
import time

import msgspec

from haltline.protocol.door import LONGEST_BYTES, Granted, TurnedAway, decode
from haltline.protocol.endpoints import Endpoints, Places
from haltline.protocol.errors import ConfigurationProblem

ANSWER_S = 2.0
"""Longest wait for all doors together: 150 ms are aimed at, an overloaded machine may take ten times that."""


class Admitted(msgspec.Struct, frozen=True):
    endpoints: Endpoints
    token: bytes


class Doors(msgspec.Struct, frozen=True, kw_only=True):
    """What came of knocking at every door of this user. Folders of supervisors that are gone are not listed."""

    admitted: tuple[Admitted, ...] = ()
    refused: tuple[str, ...] = ()
    """Their words."""
    silent: tuple[str, ...] = ()
    """Folders of supervisors that did not answer in time."""


def knock(places: Places, *, within_s: float = ANSWER_S) -> Doors:
    """Ask every supervisor of this user for a token. Raises ConfigurationProblem if the folder cannot be read."""
    knocked: dict[int, tuple[Endpoints, socket.socket, bytearray]] = {}
    admitted: list[Admitted] = []
    refused: list[str] = []
    poll = select.poll()
    for endpoints in _endpoints(places):
        door = _connect(endpoints)
        if door is not None:
            knocked[door.fileno()] = (endpoints, door, bytearray())
            poll.register(door, select.POLLIN)
    deadline = time.monotonic() + within_s
    while knocked and (left_s := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(left_s * 1000):
            endpoints, door, answer = knocked[fd]
            ended = _read(door, answer)
            match decode(bytes(answer)):
                case Granted(token=token):
                    admitted.append(Admitted(endpoints, token))
                case TurnedAway(words=words):
                    refused.append(words)
                case None if not ended:
                    continue
                case None:
                    pass  # it ended without a word
            poll.unregister(fd)
            del knocked[fd]
            door.close()
    for _, door, _ in knocked.values():
        door.close()
    silent = tuple(endpoints.folder for endpoints, _, _ in knocked.values())
    return Doors(admitted=tuple(admitted), refused=tuple(refused), silent=silent)


def _endpoints(places: Places) -> list[Endpoints]:
    try:
        with os.scandir(places.runtime) as entries:
            folders = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigurationProblem(f"cannot look for supervisors in {places.runtime}: {error.strerror}") from error
    return [Endpoints(folder) for folder in folders]


def _connect(endpoints: Endpoints) -> socket.socket | None:
    """None: no supervisor there any more."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        door.connect(endpoints.door)
    except (FileNotFoundError, ConnectionRefusedError):
        door.close()
        return None
    except BlockingIOError:  # its backlog is full: it lives, and will not answer in time
        return door
    return door


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
