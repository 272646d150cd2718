"""Messages of the client lane: ROUTER of a supervisor, DEALER of a terminal (`run`, `ps`, `cancel`, ...).

A client proves itself with its first message, ClientHello; everything before it is dropped. The client that
started the supervisor inherited its token; any other gets one over the door (see supervisor/door.py).
"""

from typing import Literal

import msgspec

from haltline.protocol.conversation import Item
from haltline.protocol.events import CancelReceipt
from haltline.protocol.ids import PROTOCOL_VERSION, CallId, Role, SessionId, WorkerId
from haltline.protocol.kinds import ApprovalAnswer, CancelBy
from haltline.protocol.lines import Line
from haltline.protocol.settings import SessionSettings


class ClientMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    v: int = PROTOCOL_VERSION


class ClientHello(ClientMessage, tag="client_hello", frozen=True, kw_only=True):
    """Client -> supervisor. Answered by Welcome or Refused."""

    token: bytes


class Welcome(ClientMessage, tag="welcome", frozen=True, kw_only=True):
    """Supervisor -> client."""

    supervisor_pid: int


class OpenSession(ClientMessage, tag="open_session", frozen=True, kw_only=True):
    """Client -> supervisor; the client becomes the session's owner: its loss is a cancel (by lost_client).
    Answered by SessionOpened, or Refused; workers start at once."""

    settings: SessionSettings
    journal: str
    """Path of the journal; not opened where the settings say ephemeral."""
    items: tuple[Item, ...] = ()
    """History of a resumed session."""
    prompt: str | None = None
    """The session's first prompt, where it is known already: the run begins with the session, so nobody finds one that
    waits for nothing but its only prompt idle, and stops nothing."""
    embedded_gateway: bool = False
    """True: the supervisor runs the scripted gateway beside the session; `settings.base_url` is then its own."""


class SessionOpened(ClientMessage, tag="session_opened", frozen=True, kw_only=True):
    session_id: SessionId


class Prompt(ClientMessage, tag="prompt", frozen=True, kw_only=True):
    """Client -> supervisor: starts a run. Refused while one is going on."""

    session_id: SessionId
    text: str


class Shown(ClientMessage, tag="shown", frozen=True, kw_only=True):
    """Supervisor -> owner of the session: one recorded event. For a slow client deltas merge; events never drop."""

    line: Line


class CancelRequest(ClientMessage, tag="cancel_request", frozen=True, kw_only=True):
    """Client -> supervisor. session_id None: all sessions of this supervisor. Repeated by the owner during the
    stop: no grace left (F10, a key that is pressed again). A client that is not the owner asks politely, however often:
    it joins a stop that goes on, shortens nothing, and gets a Receipt when that is done."""

    session_id: SessionId | None
    by: CancelBy
    exit_code: int = 130
    """143 where the cause was SIGTERM."""


class KillRequest(ClientMessage, tag="kill_request", frozen=True, kw_only=True):
    """Client -> supervisor: the hard stop of a session (worker None), which takes no prompt after it, or of one worker
    of it, in whose place there will be a new one. session_id None: all sessions. Answered by Receipt, also to the owner
    of a session."""

    session_id: SessionId | None
    worker: Role | None = None
    worker_id: WorkerId | None = None
    """With `worker`: this one alone, not another that has taken its place. None: whichever there is."""


class Receipt(ClientMessage, tag="receipt", frozen=True, kw_only=True):
    """Supervisor -> client that asked for a stop, once that was seen (F1): one per session concerned, in the order in
    which they end, `last` on the final one. Where no session is concerned, one that names none: with `cancel`, the
    supervisor was about to open its first and ends instead."""

    session_id: SessionId | None
    worker: Role | None = None
    """The kill was of this worker alone."""
    already_stopped: bool = False
    """Nothing was running (a cancel), or that worker was gone before (a kill). `cancel` is null."""
    cancel: CancelReceipt | None = None
    last: bool = True


class Answer(ClientMessage, tag="answer", frozen=True, kw_only=True):
    """Client -> supervisor: a person answered an approval question."""

    session_id: SessionId
    call_id: CallId
    answer: ApprovalAnswer
    words: str = ""


class ListRequest(ClientMessage, tag="list_request", frozen=True, kw_only=True):
    """Client -> supervisor. Answered by Listing at once, whatever the sessions do."""


class PsRow(msgspec.Struct, frozen=True, kw_only=True):
    """One session or one worker, as `ps` shows it."""

    id: str
    role: Literal["session", "llm", "tool"]
    session_id: str = ""
    """Its own, or that of the session whose worker it is."""
    pid: int
    """Of a session: its supervisor's."""
    state: Literal["starting", "running", "waiting", "stalled", "backoff", "cancelling", "idle", "exited"]
    turn: int
    age_s: float
    cpu_ms: int
    memory_kib: int
    heartbeat_age_s: float | None
    tool: str | None
    """The call that runs, `name head-of-arguments`."""
    model: str = ""
    cwd: str = ""
    """Both of a session alone."""


class Listing(ClientMessage, tag="listing", frozen=True, kw_only=True):
    rows: tuple[PsRow, ...]


class CloseSession(ClientMessage, tag="close_session", frozen=True, kw_only=True):
    """Client -> supervisor: no further prompt will come; what still runs is cancelled, workers leave.
    When the last session of a supervisor that `run` or `chat` started is closed, the supervisor ends."""

    session_id: SessionId


class SessionClosed(ClientMessage, tag="session_closed", frozen=True, kw_only=True):
    session_id: SessionId


class Refused(ClientMessage, tag="refused", frozen=True, kw_only=True):
    """Supervisor -> client: the request was not carried out, and why, in words for the user."""

    words: str
    known: tuple[SessionId, ...] = ()


ToSupervisor = ClientHello | OpenSession | Prompt | CancelRequest | KillRequest | Answer | ListRequest | CloseSession
ToClient = Welcome | SessionOpened | Shown | Receipt | Listing | SessionClosed | Refused
