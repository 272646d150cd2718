"""Tries every way to the supervisor that a second terminal or a worker has, and tells what came of it.

usage: knocks.py TELL_FILE RUNTIME_FOLDER plain|daemon COMMAND...

COMMAND is `haltline ps --json`. `daemon`: all is done by a grandchild in a session of its own whose parent has ended;
the caller waits for it. TELL_FILE gets one JSON object, `Told` of tests/process/test_door.py.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import zmq

from haltline.protocol import codec
from haltline.protocol.client_messages import ClientHello, ListRequest
from haltline.protocol.endpoints import Endpoints, ipc
from haltline.protocol.ids import SessionId
from haltline.protocol.messages import Hello

MADE_UP = b"made-up-token-16"
SILENT_MS = 300
"""How long an answer that must not come is waited for; a proven peer has its answer within some milliseconds."""
WITHIN_S = 10.0
CHILDREN = 50
"""One of them came through at the first attempts when the door took a dead peer for a stranger."""


def main() -> None:
    told, runtime, mode, *command = sys.argv[1:]
    if mode == "plain":
        Path(told).write_text(json.dumps(attempts(runtime, command)))
        return
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, json.dumps(attempts(runtime, command)).encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    with open(reading, "rb") as said:
        Path(told).write_bytes(said.read())


def attempts(runtime: str, command: list[str]) -> dict[str, object]:
    (folder,) = os.listdir(runtime)
    endpoints = Endpoints(f"{runtime}/{folder}")
    ps = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    return {
        "exit_code": ps.returncode,
        "stdout": ps.stdout,
        "stderr": ps.stderr,
        "door": door(endpoints.door),
        "after_death": after_death(endpoints.door),
        "clients": clients(endpoints.clients),
        "mailbox": mailbox(endpoints.mailbox),
    }


def door(path: str) -> str:
    """The answer's first word, and the words of a refusal; a token itself is told to nobody."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(WITHIN_S)
        peer.connect(path)
        answer = peer.recv(1024)
    return "a token" if answer.startswith(b"token ") else answer.decode()


def after_death(path: str) -> list[str]:
    """The answers to children that knock and die; whoever holds the socket with them reads it."""
    answers: set[str] = set()
    for _ in range(CHILDREN):
        with socket.socket(socket.AF_UNIX) as peer:
            child = os.fork()
            if child == 0:
                try:
                    peer.connect(path)
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            peer.settimeout(WITHIN_S)
            answers.add(peer.recv(1024)[:6].decode())
    return sorted(answers)


def clients(path: str) -> list[str]:
    """What a hello with a made-up token and a request behind it are answered with."""
    hello = codec.to_supervisor.encode(ClientHello(token=MADE_UP))
    return [repr(codec.to_client.decode(data)) for data in said(path, hello, codec.to_supervisor.encode(ListRequest()))]


def mailbox(path: str) -> list[str]:
    """The same as a worker."""
    hello = Hello(role="llm", session_id=SessionId("00000000"), token=MADE_UP)
    return [repr(codec.to_worker.decode(data)) for data in said(path, codec.from_worker.encode(hello))]


def said(path: str, *messages: bytes) -> list[bytes]:
    """Everything that comes back until nothing does."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    lane = context.socket(zmq.DEALER)
    lane.setsockopt(zmq.LINGER, 0)
    lane.connect(ipc(path))
    for message in messages:
        lane.send(message)
    answers: list[bytes] = []
    while lane.poll(SILENT_MS):
        answers.append(lane.recv_multipart()[-1])
    lane.close()
    context.term()
    return answers


if __name__ == "__main__":
    main()
