"""The supervisor's loop: sessions, workers, terminals, and its own end. The only reader of the clock.

It is put together by main.py, which hands in what touches the world: sockets, the spawner, clock and chance.

1. One supervisor serves any number of sessions; nothing that happens to one reaches another.
2. The client that started the supervisor owns its sessions: its loss is a cancel of each of them. When it is gone,
   or its last session is closed, the supervisor ends: workers first, then the zygote, then its sockets.
3. Who ends a supervisor before its client has opened a session, or by a signal, leaves word for that client
   (protocol/ending.py): nothing that was about to begin begins after it.
4. Time in which this process did not run (suspend, SIGSTOP) is told to every session: it counts against nobody.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
import zmq

from haltline.protocol.client_messages import (
    Answer,
    CancelRequest,
    ClientHello,
    CloseSession,
    KillRequest,
    Listing,
    ListRequest,
    OpenSession,
    Prompt,
    Receipt,
    Refused,
    SessionOpened,
    ToSupervisor,
)
from haltline.protocol.endpoints import Endpoints
from haltline.protocol.errors import ConfigurationProblem, HaltlineError, JournalFailed
from haltline.protocol.events import CancelReceipt
from haltline.protocol.exits import TERMINATED
from haltline.protocol.ids import SessionId, WorkerId
from haltline.protocol.kinds import Isolation, IsolationWish
from haltline.protocol.messages import FromWorker
from haltline.protocol.settings import SessionSettings
from haltline.protocol.times import ZYGOTE_LEAVE_S
from haltline.supervisor.clients import ClientId, ClientLane
from haltline.supervisor.host import SessionHost
from haltline.supervisor.isolation import without_namespaces
from haltline.supervisor.journal import NoJournal, Writable
from haltline.supervisor.mailbox import Mailbox
from haltline.supervisor.receipts import Request
from haltline.supervisor.sources import Sources
from haltline.supervisor.stimuli import Answered, CancelAsked, Suspended
from haltline.supervisor.workers import Starter, WorkerHandle, Workers

if TYPE_CHECKING:
    from haltline.protocol.ending import EndedBy

LOOK_S = 0.5
"""How often the supervisor checks that it has been running."""
GAP_S = 0.5
"""A longer gap between two looks counts as time in which it did not run; less is a busy machine. With LOOK_S at most
half of the shortest deadline (ACK_S), so that no worker is killed for what nobody noticed."""
LINGER_MS = 200
"""For the last words to a client, which waits for them."""
GATEWAY = WorkerId("gateway")


class Spawning(Starter, Protocol):
    """The Spawner, as the supervisor knows it."""

    @property
    def zygote_ended(self) -> asyncio.Event: ...

    def listen(
        self,
        *,
        on_spawned: Callable[[WorkerId, int], None],
        on_exited: Callable[[WorkerId, str], None],
        on_swept: Callable[[WorkerId, int, int], None],
    ) -> None: ...

    def quit(self) -> None: ...
    def kill_zygote(self) -> None: ...


class Supervisor:
    """`token`: proves the client that started it. `supervisor_pidfd`: what its workers inherit to see its end.

    `isolation_of(wish)`: what a session gets; raises ConfigurationProblem where that cannot be.
    `client_left` is to be called when that client is gone, `grant` for a token that was given out at the door.
    `note_session(session_id, live)` is told of each session, for those whom we may not answer one day; `note_end` why
    this supervisor ends, where its client cannot be told (rule 3). `one_run`: see Chain.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoints: Endpoints,
        spawner: Spawning,
        *,
        token: bytes,
        supervisor_pidfd: int,
        open_journal: Callable[[str], Writable],
        sources: Sources,
        isolation_of: Callable[[IsolationWish], Isolation] = without_namespaces,
        note_session: Callable[[SessionId, bool], None] = lambda _session_id, _live: None,
        note_end: Callable[["EndedBy"], None] = lambda _word: None,
        one_run: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._endpoints = endpoints
        self._spawner = spawner
        self._supervisor_pidfd = supervisor_pidfd
        self._open_journal = open_journal
        self._sources = sources
        self._isolation_of = isolation_of
        self._note_session = note_session
        self._note_end = note_end
        self._one_run = one_run
        self._hosts: dict[SessionId, SessionHost] = {}
        self._by_worker: dict[WorkerId, tuple[SessionHost, WorkerHandle]] = {}
        self._journals: dict[str, Writable] = {}
        self._gateway_url: str | None = None
        self._client_lost = False
        self._last_look_s = self._loop.time()
        spawner.listen(on_spawned=self._on_spawned, on_exited=self._on_exited, on_swept=self._on_swept)
        self._mailbox = Mailbox(
            context,
            self._endpoints,
            on_ready=self._on_ready,
            on_message=self._on_worker_message,
            call_later=self._loop.call_later,
        )
        self._clients = ClientLane(
            context,
            self._endpoints,
            supervisor_pid=os.getpid(),
            on_message=self._on_client_message,
            on_stuck=self._client_stuck,
        )
        self.grant = self._clients.grant
        self.grant(token)
        self._looking = self._loop.call_later(LOOK_S, self._look)

    async def ended(self) -> None:
        """Returns at the end of rule 2; `leave` is next."""
        await self._ended.wait()

    # Workers

    def _on_spawned(self, worker_id: WorkerId, pid: int) -> None:
        found = self._by_worker.get(worker_id)
        if found is not None:
            host, handle = found
            host.worker_spawned(handle, pid)

    def _on_ready(self, worker_id: WorkerId) -> None:
        host, handle = self._by_worker[worker_id]
        host.worker_proven(handle)

    def _on_worker_message(self, worker_id: WorkerId, message: FromWorker) -> None:
        host, handle = self._by_worker[worker_id]
        host.worker_said(handle, message)

    def _on_exited(self, worker_id: WorkerId, words: str) -> None:
        self._mailbox.forget(worker_id)
        found = self._by_worker.get(worker_id)
        if found is not None:
            host, handle = found
            host.worker_exited(handle, words)

    def _on_swept(self, worker_id: WorkerId, killed: int, survivors: int) -> None:
        found = self._by_worker.pop(worker_id, None)
        if found is not None:
            host, handle = found
            host.worker_swept(handle, killed, survivors)

    # Terminals

    def _on_client_message(self, client: ClientId, message: ToSupervisor) -> None:
        try:
            self._serve(client, message)
        except HaltlineError as problem:
            self._refuse(client, str(problem))

    def _serve(self, client: ClientId, message: ToSupervisor) -> None:
        match message:
            case ClientHello():
                return
            case OpenSession():
                self._open(client, message)
            case ListRequest():
                rows = tuple(row for host in self._hosts.values() for row in host.ps_rows())
                self._clients.send(client, Listing(rows=rows))
            case CancelRequest():
                self._cancel(client, message)
            case KillRequest():
                self._kill(client, message)
            case Prompt() | Answer() | CloseSession():
                self._serve_owner(client, message)

    def _serve_owner(self, client: ClientId, message: Prompt | Answer | CloseSession) -> None:
        host = self._hosts.get(message.session_id)
        if host is None or host.owner != client:
            self._refuse(client, f"no session {message.session_id} of this terminal here")
            return
        match message:
            case Prompt(text=text):
                if host.closing:
                    return  # killed meanwhile: SessionClosed follows, and says it
                if host.running:
                    self._refuse(client, "a run is going on; stop it first")
                else:
                    host.prompt(text)
            case Answer():
                host.feed(Answered(call_id=message.call_id, answer=message.answer, words=message.words))
            case CloseSession():
                host.close(CancelAsked(by="client"))

    def _open(self, client: ClientId, message: OpenSession) -> None:
        if self._client_lost or self._ended.is_set():
            self._refuse(client, "this supervisor is ending and takes no new session")
            return
        settings = message.settings
        isolation = self._isolation_of(settings.isolation)
        settings = msgspec.structs.replace(settings, isolation=isolation)
        if message.embedded_gateway:
            address = self._embedded_gateway()
            base_url = address if settings.api == "messages" else f"{address}/v1"
            settings = msgspec.structs.replace(settings, base_url=base_url)
        session_id = SessionId(self._sources.random_bytes(4).hex())
        host = SessionHost(
            session_id,
            settings,
            owner=client,
            workers=self._workers(session_id, isolation),
            mailbox=self._mailbox,
            clients=self._clients,
            journal=self._journal(settings, message.journal),
            sources=self._sources,
            notice_gap=self._notice_gap,
            on_closed=self._on_closed,
        )
        self._hosts[session_id] = host
        self._note_session(session_id, True)
        self._clients.send(client, SessionOpened(session_id=session_id))
        host.open()
        if message.prompt is not None:
            host.prompt(message.prompt)

    def _workers(self, session_id: SessionId, isolation: Isolation) -> Workers:
        def started(handle: WorkerHandle) -> None:
            self._by_worker[handle.worker_id] = (self._hosts[session_id], handle)

        return Workers(
            session_id,
            isolation,
            mailbox=self._mailbox,
            spawner=self._spawner,
            endpoints=self._endpoints,
            supervisor_pidfd=self._supervisor_pidfd,
            now=self._loop.time,
            random_bytes=self._sources.random_bytes,
            on_started=started,
        )

    def _journal(self, settings: SessionSettings, path: str) -> Writable:
        """Opened once per file. Raises ConfigurationProblem where it cannot be."""
        if settings.ephemeral:
            return NoJournal()
        if path not in self._journals:
            self._journals[path] = self._open_journal(path)
        return self._journals[path]

    def _embedded_gateway(self) -> str:
        """Address of the scripted gateway, which runs as one more child of the zygote."""
        if self._gateway_url is None:
            try:
                listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
            except OSError as error:
                raise ConfigurationProblem(f"cannot listen on 127.0.0.1: {error.strerror}") from error
            self._gateway_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self._spawner.spawn(GATEWAY, "gateway", b"%d" % self._supervisor_pidfd, listener)
            listener.close()
        return self._gateway_url

    def _chosen(self, client: ClientId, session_id: SessionId | None) -> dict[SessionId, SessionHost] | None:
        """None: there is no such session, which has been said."""
        if session_id is None:
            return dict(self._hosts)
        host = self._hosts.get(session_id)
        if host is None:
            self._clients.send(client, Refused(words=f"no session {session_id}", known=tuple(self._hosts)))
            return None
        return {session_id: host}

    def _cancel(self, client: ClientId, message: CancelRequest) -> None:
        chosen = self._chosen(client, message.session_id)
        if chosen is None:
            return
        others = {session_id: host for session_id, host in chosen.items() if host.owner != client}
        for host in chosen.values():
            if host.owner == client:
                host.feed(CancelAsked(by=message.by, terminated=message.exit_code == TERMINATED))
        of_another = message.by == "client"
        if not chosen and self._one_run and of_another and self._end_unbegun(client, "cancelled"):
            return
        if others or not chosen:
            request = Request(client, self._clients, others)
            for session_id, host in others.items():
                host.cancel_for(request.answer_for(session_id))

    def _kill(self, client: ClientId, message: KillRequest) -> None:
        chosen = self._chosen(client, message.session_id)
        if chosen is None:
            return
        if not chosen and self._end_unbegun(client, "killed"):
            return
        request = Request(client, self._clients, chosen, worker=message.worker)
        for session_id, host in chosen.items():
            answer = request.answer_for(session_id)
            if message.worker is None:
                host.kill_for(answer)
            else:
                host.kill_worker_for(answer, message.worker, message.worker_id)

    def _end_unbegun(self, client: ClientId, word: "EndedBy") -> bool:
        """Rule 3, of a supervisor without a session: what was about to begin does not. False: it ends already."""
        if self._client_lost or self._ended.is_set():
            return False
        self._note_end(word)
        self._ended.set()
        ended = CancelReceipt(
            stream_ms=None,
            tools_ms=None,
            total_ms=0.0,
            rung="ack" if word == "cancelled" else "worker_kill",
            killed=0,
            survivors=0,
        )
        self._clients.send(client, Receipt(session_id=None, cancel=ended))
        return True

    def _refuse(self, client: ClientId, words: str) -> None:
        self._clients.send(client, Refused(words=words))

    # Time and ends

    def _look(self) -> None:
        self._notice_gap()
        self._looking = self._loop.call_later(LOOK_S, self._look)

    def _notice_gap(self) -> None:
        """Rule 4. Called by the timer and before any stimulus: after a gap the loop deals with messages first."""
        now = self._loop.time()
        gap_s = now - self._last_look_s - LOOK_S
        self._last_look_s = now
        if gap_s > GAP_S:
            for host in list(self._hosts.values()):
                host.feed(Suspended(gap_s=gap_s))

    def client_left(self) -> None:
        """Rule 2. In good order the sessions are closed already. What it had still asked for may be read after this."""
        self._client_lost = True
        for host in list(self._hosts.values()):
            host.close(CancelAsked(by="lost_client"))
        if not self._hosts:
            self._ended.set()

    def terminate(self) -> None:
        """SIGTERM (rule 3): the same as SIGTERM at the client, which hears of it as that run's end, or by the word."""
        if self._ended.is_set():
            return
        self._note_end("terminated")
        for host in list(self._hosts.values()):
            host.close(CancelAsked(by="signal", terminated=True))
        if not self._hosts:
            self._ended.set()

    def _client_stuck(self, client: ClientId) -> None:
        """It lives and takes nothing: as if it were gone."""
        for host in list(self._hosts.values()):
            if host.owner == client:
                host.close(CancelAsked(by="lost_client"))

    def _on_closed(self, host: SessionHost) -> None:
        del self._hosts[host.session_id]
        self._note_session(host.session_id, False)
        if not self._hosts:
            self._ended.set()

    async def leave(self) -> None:
        """Returns with nothing left below but the zygote on its way out."""
        self._looking.cancel()
        self._spawner.kill(GATEWAY)
        self._spawner.quit()
        self._mailbox.close()
        self._clients.close(LINGER_MS)
        for journal in self._journals.values():
            with contextlib.suppress(JournalFailed):  # whose sessions it failed have been told
                journal.close()
        try:
            await asyncio.wait_for(self._spawner.zygote_ended.wait(), ZYGOTE_LEAVE_S)
        except TimeoutError:
            self._spawner.kill_zygote()
