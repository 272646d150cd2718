"""What supervisor and zygote say to each other, over the socket pair that both have by birth. Rules are zygote.py's."""

import os

import msgspec

from haltline.protocol.ids import WorkerId


class Spawn(msgspec.Struct, frozen=True, kw_only=True, tag="spawn"):
    """Supervisor -> zygote. Answered by Spawned, later by Exited and Swept."""

    worker_id: WorkerId
    role: str
    boot: bytes
    """Handed to the role's entry as it is."""
    with_socket: bool = False
    """True: a listening socket comes with the request (the embedded gateway's)."""
    namespaced: bool = False
    """True: as process 1 of a PID namespace (namespaced.py)."""
    watches: bool = True
    """False: it does not know the supervisor and has to be ended when that dies (rule 4)."""


class Kill(msgspec.Struct, frozen=True, kw_only=True, tag="kill"):
    """Supervisor -> zygote: SIGKILL to the worker, no grace for its tree (rule 2)."""

    worker_id: WorkerId


class Quit(msgspec.Struct, frozen=True, kw_only=True, tag="quit"):
    """Supervisor -> zygote: the workers have been told to leave; as the supervisor's death, but without words."""


class Serve(msgspec.Struct, frozen=True, kw_only=True, tag="serve"):
    """Supervisor -> spare, before anything else: the zygote is dead, you are the zygote now (rule 7)."""


class Spawned(msgspec.Struct, frozen=True, kw_only=True, tag="spawned"):
    """Zygote -> supervisor, with the worker's pidfd and the pipe that lets it begin (rule 8)."""

    worker_id: WorkerId
    pid: int


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag="exited"):
    worker_id: WorkerId
    pid: int
    status: int
    """Exit code, or minus the signal's number."""
    words: str


class Swept(msgspec.Struct, frozen=True, kw_only=True, tag="swept"):
    """Zygote -> supervisor, after Exited: the tree of that worker was seen empty, or who is left."""

    worker_id: WorkerId
    killed: int
    survivors: int


class SpareReady(msgspec.Struct, frozen=True, kw_only=True, tag="spare_ready"):
    """Zygote -> supervisor, with the spare's pidfd, the pipe that lets it begin (rule 8), and the socket for requests.
    The one before it is dead."""

    pid: int


Request = Spawn | Kill | Quit | Serve
Report = Spawned | Exited | Swept | SpareReady

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder[Request](Request).decode
decode_report = msgspec.msgpack.Decoder[Report](Report).decode
REQUEST_BYTES = 65_536
REPORT_FDS = 3


def let_begin(go_w: int) -> None:
    """The supervisor's word to a fork that was reported (rule 8). Closes the pipe."""
    try:
        os.write(go_w, b"\n")
    except BrokenPipeError:  # it is dead already, which will be seen
        pass
    finally:
        os.close(go_w)


def may_begin(go_r: int) -> bool:
    """Waits for the supervisor's word (rule 8); False: nobody is left who could give it."""
    begin = os.read(go_r, 1) != b""
    os.close(go_r)
    return begin
