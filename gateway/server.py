"""The gateway's server: finds the scenario of each request and has it performed.

Every response is a pure script (scenarios.py) performed by a thin shell (performance.py, wire.py) in real time.
"""

import asyncio
import itertools
import os
import socket
import time
from collections.abc import Callable

import msgspec

from haltline.gateway.connection import Connection, Incoming, Refused
from haltline.gateway.formats import FORMATS, format_for
from haltline.gateway.formats.interface import BadRequest, WireFormat
from haltline.gateway.log import Log, Origin
from haltline.gateway.performance import JSON, Performance
from haltline.gateway.scenarios import SCENARIOS
from haltline.gateway.selection import UnknownScenario, select
from haltline.gateway.sessions import Sessions, session_of
from haltline.gateway.steps import Fault
from haltline.gateway.wire import Wire

HOST = "127.0.0.1"
BACKLOG = 1024
"""Hundreds of clients may connect at once."""

MODELS_PATHS = ("/v1/models", "/models")
STATE_PATH = "/_haltline/state"


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of GET /_haltline/state."""

    open_connections: int
    """Without the one that asks."""
    open_streams: int
    """Responses that have begun and not ended."""
    requests: int
    """Requests for a model response so far."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "haltline"


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of GET /v1/models."""

    data: tuple[Model, ...]
    object: str = "list"


class Gateway:
    """All connections and sessions of one server."""

    def __init__(self, scenario: str | None, log: Log) -> None:
        self._scenario = scenario
        self._log = log
        self._sessions = Sessions()
        self._name = os.urandom(4).hex()
        self._connections: set[Connection] = set()
        self._connection_numbers = itertools.count(1)
        self._requests = 0
        self._streams = 0

    def connect(self) -> Connection:
        """Protocol factory."""
        connection = Connection(next(self._connection_numbers), self._answer, self._refuse, self._connections.discard)
        self._connections.add(connection)
        return connection

    async def close(self) -> None:
        """End all connections at once, in the middle of what they carry."""
        await asyncio.gather(*(connection.stop() for connection in tuple(self._connections)))

    async def _answer(self, connection: Connection, incoming: Incoming) -> bool:
        path = incoming.target.partition("?")[0]
        spoken = format_for(path)
        if spoken is not None and incoming.method == "POST":
            return await self._give_response(connection, incoming, spoken, path)
        wire = _wire(connection, incoming, cut_at=None)
        if incoming.method == "GET" and path == STATE_PATH:
            wire.whole(200, JSON, msgspec.json.encode(self._state()))
        elif incoming.method == "GET" and path in MODELS_PATHS:
            wire.whole(200, JSON, msgspec.json.encode(Models(data=tuple(Model(id=name) for name in SCENARIOS))))
        else:
            fault = Fault(
                kind="bad_request",
                message=f"There is no {incoming.method} {path} here; there are "
                f"{', '.join(f'POST {known}' for each in FORMATS for known in each.paths)} and GET {MODELS_PATHS[0]}.",
                code="not_found",
            )
            wire.whole(405 if spoken is not None else 404, JSON, (spoken or FORMATS[0]).error(fault, self._reply_id()))
        return wire.keep_alive

    def _refuse(self, connection: Connection, refused: Refused) -> None:
        wire = Wire(connection.transport, connection.writable, cut_at=None, keep_alive=False, chunked=True)
        fault = Fault(kind="bad_request", message=str(refused))
        wire.whole(refused.status, JSON, FORMATS[0].error(fault, self._reply_id()))

    def _reply_id(self) -> str:
        """Unique beyond this server: a conversation may go on at another one, and ids of its calls must differ."""
        return f"{self._name}{self._requests:06d}"

    def _state(self) -> State:
        return State(open_connections=len(self._connections) - 1, open_streams=self._streams, requests=self._requests)

    async def _give_response(self, connection: Connection, incoming: Incoming, spoken: WireFormat, path: str) -> bool:
        self._requests += 1
        request_id = f"{self._requests:06d}"
        try:
            request = spoken.read(incoming.body, dict(incoming.headers))
        except BadRequest as error:
            origin = _origin(connection, request_id)
            return self._turn_away(connection, incoming, spoken, path, origin, 400, error.fault)
        session = session_of(request, dict(incoming.headers))
        try:
            selection = select(request.model, self._scenario)
        except UnknownScenario as error:
            fault = Fault(kind="not_found", message=str(error))
            origin = _origin(connection, request_id, session=session, scenario=request.model)
            return self._turn_away(connection, incoming, spoken, path, origin, 404, fault)
        turn = self._sessions.next_turn(session, selection.name, request)
        origin = _origin(connection, request_id, session=session, scenario=selection.name, n=turn.n)
        self._log.write("request", origin, path=path, headers=incoming.headers, body=incoming.body)
        wire = _wire(connection, incoming, cut_at=selection.cut_at)
        reply_id = self._reply_id()
        reply = spoken.reply(request, reply_id, int(time.time()))
        performance = Performance(wire, spoken, reply, reply_id, request, self._log, origin)
        self._streams += 1
        try:
            await performance.run(SCENARIOS[selection.name].script(turn))
        except asyncio.CancelledError as left:
            how = str(left.args[0]) if left.args else "closed"
            self._log.write("disconnect", origin, status=performance.status, reason=how, pieces=performance.pieces)
            raise
        finally:
            self._streams -= 1
        return wire.keep_alive

    def _turn_away(
        self,
        connection: Connection,
        incoming: Incoming,
        spoken: WireFormat,
        path: str,
        origin: Origin,
        status: int,
        fault: Fault,
    ) -> bool:
        self._log.write("request", origin, path=path, headers=incoming.headers, body=incoming.body)
        wire = _wire(connection, incoming, cut_at=None)
        self._log.write("response", origin, status=status)
        reply_id = self._reply_id()
        wire.whole(status, JSON + spoken.headers(reply_id), spoken.error(fault, reply_id))
        self._log.write("end", origin, status=status, reason="finished", pieces=0)
        return wire.keep_alive


def bind(port: int) -> socket.socket:
    """A listening socket on the loopback; port 0 lets the kernel choose. Raises OSError when the port is taken."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


async def serve(
    sock: socket.socket | None,
    *,
    port: int = 0,
    scenario: str | None = None,
    log: str | None = None,
    ready: Callable[[int], None] | None = None,
) -> None:
    """Serve until cancelled. `sock`: a bound and listening socket, or None to bind `port` here. `scenario`: for models
    that name none. `log`: a file that is begun anew. `ready` is told the port once connections are accepted.

    Raises UnknownScenario before it serves, OSError where the port or the log file cannot be had."""
    if scenario is not None:
        select(scenario, None)
    listening = bind(port) if sock is None else sock
    listening.setblocking(False)
    lines = Log(log)
    gateway = Gateway(scenario, lines)
    server = await asyncio.get_running_loop().create_server(gateway.connect, sock=listening, backlog=BACKLOG)
    try:
        if ready is not None:
            ready(listening.getsockname()[1])
        await asyncio.get_running_loop().create_future()
    finally:
        server.close()
        await gateway.close()
        lines.close()


def _wire(connection: Connection, incoming: Incoming, *, cut_at: int | None) -> Wire:
    return Wire(
        connection.transport,
        connection.writable,
        cut_at=cut_at,
        keep_alive=incoming.keep_alive,
        chunked=incoming.chunked,
    )


def _origin(connection: Connection, request_id: str, *, session: str = "", scenario: str = "", n: int = 0) -> Origin:
    return Origin(id=request_id, connection=connection.number, session=session, scenario=scenario, n=n)
