"""A supervisor that the test plays towards a second terminal: a real door and a real lane, one session, one answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import zmq

from haltline.protocol import codec
from haltline.protocol.client_messages import ClientHello, Listing, ListRequest, PsRow, ToClient, ToSupervisor, Welcome
from haltline.protocol.door import Granted, encode
from haltline.protocol.endpoints import Endpoints, ipc

SESSION = "abcdef01"
ROW = PsRow(
    id=SESSION, session_id=SESSION, role="session", pid=1, state="running", turn=1, age_s=1.0, cpu_ms=0, memory_kib=0,
    heartbeat_age_s=None, tool=None,
)  # fmt: skip
LOOK_MS = 20


@contextmanager
def played(folder: Path, answer: ToClient | None) -> Generator[list[ToSupervisor]]:
    """Lists ROW; whatever else is asked gets `answer`, or none. Gives what was asked."""
    folder.mkdir(parents=True, mode=0o700)
    asked: list[ToSupervisor] = []
    over = threading.Event()
    endpoints = Endpoints(str(folder))
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(endpoints.door)
        door.listen()
        playing = threading.Thread(target=_play, args=(endpoints, door, answer, asked, over))
        playing.start()
        try:
            yield asked
        finally:
            over.set()
            playing.join()


def _play(
    endpoints: Endpoints, door: socket.socket, answer: ToClient | None, asked: list[ToSupervisor], over: threading.Event
) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    lane = context.socket(zmq.ROUTER)
    lane.setsockopt(zmq.LINGER, 0)
    lane.bind(ipc(endpoints.clients))
    poller = zmq.Poller()
    poller.register(lane, zmq.POLLIN)
    poller.register(door.fileno(), zmq.POLLIN)
    while not over.is_set():
        ready = dict(poller.poll(LOOK_MS))
        if door.fileno() in ready:
            peer, _ = door.accept()
            with peer:
                peer.sendall(encode(Granted(os.urandom(16))))
        if lane in ready:
            client, data = lane.recv_multipart()
            message = codec.to_supervisor.decode(data)
            reply: ToClient | None = answer
            match message:
                case ClientHello():
                    reply = Welcome(supervisor_pid=1)
                case ListRequest():
                    reply = Listing(rows=(ROW,))
                case _:
                    asked.append(message)
            if reply is not None:
                lane.send_multipart((client, codec.to_client.encode(reply)))
    lane.close()
    context.term()
