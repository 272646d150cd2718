"""Exit codes, and the one rule from the end of a run to its code (interface: first match)."""

from typing import Final

from haltline.protocol.kinds import Kind, LimitName, Reason

COMPLETED: Final = 0
BUG: Final = 1
USAGE: Final = 2
LIMIT: Final = 53
LOOP: Final = 54
CONTEXT_OVERFLOW: Final = 55
UNAVAILABLE: Final = 75
PROTOCOL: Final = 76
NO_PERMISSION: Final = 77
CONFIGURATION: Final = 78
WORKER_FAILED: Final = 79
OBJECTIVE_MISSED: Final = 99
TIME_LIMIT: Final = 124
INTERRUPTED: Final = 130
KILLED: Final = 137
TERMINATED: Final = 143

_BY_KIND: Final[dict[Kind, int]] = {
    "auth": NO_PERMISSION,
    "quota_exhausted": NO_PERMISSION,
    "rate_limited": UNAVAILABLE,
    "server": UNAVAILABLE,
    "network": UNAVAILABLE,
    "stream_idle": UNAVAILABLE,
    "stream_truncated": PROTOCOL,
    "malformed_response": PROTOCOL,
    "bad_request": PROTOCOL,
    "content_filtered": PROTOCOL,
    "output_truncated": PROTOCOL,
    "context_overflow": CONTEXT_OVERFLOW,
    "aborted": INTERRUPTED,
}


def exit_code(
    reason: Reason, *, kind: Kind | None = None, limit: LimitName | None = None, terminated: bool = False
) -> int:
    """The exit code of a run that ended for `reason`. `terminated`: the cancel came by SIGTERM."""
    match reason:
        case "completed":
            return COMPLETED
        case "killed":
            return KILLED
        case "cancelled":
            return TERMINATED if terminated else INTERRUPTED
        case "limit":
            return TIME_LIMIT if limit == "seconds" else LIMIT
        case "loop":
            return LOOP
        case "context_overflow":
            return CONTEXT_OVERFLOW
        case "worker_failed":
            return WORKER_FAILED
        case "failed":
            return BUG if kind is None else _BY_KIND[kind]
