"""What a worker is born with: handed to the fork as bytes, never by variable, argument or file."""

import os

import msgspec

from haltline.protocol.ids import Role, SessionId, WorkerId
from haltline.protocol.kinds import Isolation


class WorkerBoot(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    session_id: SessionId
    worker_id: WorkerId
    token: bytes
    """One-time proof, 16 bytes (messages.Hello)."""
    mailbox: str
    """Path of the supervisor's ROUTER socket."""
    broadcast: str
    """Path of the supervisor's XPUB socket."""
    supervisor_pidfd: int | None
    """Inherited; readable once the supervisor is dead. A pipe whose write end it alone holds serves as well."""
    isolation: Isolation = "subreaper"
    """How a tool worker is to hold what its tools start."""

    @property
    def chain(self) -> str:
        """Name of the supervisor's runtime folder."""
        return os.path.basename(os.path.dirname(self.mailbox))

    @property
    def outputs(self) -> str:
        """Folder for what background commands of the session print, in the runtime folder: made by the tool worker when
        it is needed, removed by it in order, by the guard in any case."""
        return f"{os.path.dirname(self.mailbox)}/{self.session_id}.out"
