"""The lines that tell of a failed attempt and of the one that follows. Pure."""

from haltline.protocol import events
from haltline.protocol.kinds import Handling
from haltline.supervisor import failures
from haltline.supervisor.failures import Failure
from haltline.supervisor.state import Draft


def show_error(d: Draft, failure: Failure, handling: Handling, more: str = "") -> None:
    """Advice to the user belongs to what surfaces alone. `more`: why no more was tried."""
    d.show(
        events.Error(
            kind=failure.kind,
            subkind=failure.subkind,
            phase=failure.phase,
            emitted=failure.emitted,
            provider_status=failure.provider_status,
            message=failure.surfaced(more) if handling == "surface" else failure.message,
            retryable=failures.retryable(failure),
            handling=handling,
        )
    )


def show_retry(d: Draft, failure: Failure, *, attempt: int, of: int, wait_ms: int) -> None:
    d.show(events.Retry(attempt=attempt, of=of, wait_ms=wait_ms, kind=failure.kind, message=failure.message))
