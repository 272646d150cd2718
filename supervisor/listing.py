"""What `ps` is told of a session: its own row, then one for each living worker."""

from collections.abc import Sequence

from haltline.protocol.client_messages import PsRow
from haltline.protocol.ids import SessionId
from haltline.protocol.settings import SessionSettings
from haltline.supervisor import session
from haltline.supervisor.state import SessionState
from haltline.supervisor.workers import WorkerHandle


def rows(
    state: SessionState,
    settings: SessionSettings,
    workers: Sequence[WorkerHandle],
    *,
    supervisor_pid: int,
    opened_s: float,
    now: float,
) -> tuple[PsRow, ...]:
    """`workers`: those that live. Cpu and memory of the session are its workers'."""
    tool = session.current_tool(state)
    of_workers = [_of_worker(handle, state.session_id, tool, now) for handle in workers]
    ages = [row.heartbeat_age_s for row in of_workers if row.heartbeat_age_s is not None]
    own = PsRow(
        id=state.session_id,
        session_id=state.session_id,
        role="session",
        pid=supervisor_pid,
        state=session.ps_state(state),
        turn=session.turn(state),
        age_s=now - opened_s,
        cpu_ms=sum(row.cpu_ms for row in of_workers),
        memory_kib=sum(row.memory_kib for row in of_workers),
        heartbeat_age_s=max(ages, default=None),
        tool=tool,
        model=settings.model,
        cwd=settings.cwd,
    )
    return (own, *of_workers)


def _of_worker(handle: WorkerHandle, session_id: SessionId, tool: str | None, now: float) -> PsRow:
    return PsRow(
        id=handle.worker_id,
        session_id=session_id,
        role=handle.role,
        pid=handle.pid,
        state="running" if handle.ready else "starting",
        turn=0,
        age_s=now - handle.started_s,
        cpu_ms=0 if handle.heartbeat is None else handle.heartbeat.cpu_ms,
        memory_kib=0 if handle.heartbeat is None else handle.heartbeat.pss_kib,
        heartbeat_age_s=None if handle.heartbeat_s is None else now - handle.heartbeat_s,
        tool=tool if handle.role == "tool" else None,
    )
