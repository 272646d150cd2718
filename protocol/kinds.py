"""The closed lists of failures and of what is done about them (requirements A1, A2)."""

from typing import Literal

Kind = Literal[
    "aborted",
    "auth",
    "quota_exhausted",
    "rate_limited",
    "server",
    "network",
    "stream_truncated",
    "stream_idle",
    "context_overflow",
    "output_truncated",
    "content_filtered",
    "bad_request",
    "malformed_response",
]

Subkind = Literal[
    "overloaded",  # server
    "dns",  # network
    "connect",
    "reset",
    "tls",
    "timeout",
    "first_event",  # stream_idle
    "silence",
    "no_progress",
    "whole_request",
    "refusal",  # content_filtered
    "invalid_generation",  # bad_request: the provider rejects what its own model wrote
    "empty",  # malformed_response
]

Again = Literal["yes", "no", "unknown"]
"""What normalisation found out about sending the same request again."""

Phase = Literal["connect", "headers", "first_event", "body", "tool"]
"""What the attempt was waiting for when it failed: a connection, the response's headers, its first event,
more of its body; `tool` for failures that are no attempt's."""

Purpose = Literal["turn", "summary"]
"""What an attempt is for: a turn's response, or a summary of older turns (E1)."""

Trigger = Literal["overflow", "window"]
"""Why a conversation is made shorter: the provider refused it (reactive), or its window is nearly full (proactive)."""

Handling = Literal["feedback", "retry", "compact", "continue", "surface"]

StreamTimer = Literal["connect", "first_event", "silence", "no_progress", "whole_request"]
"""Which limit of D4 ended an attempt."""

Finish = Literal["stop", "tool_calls", "length", "content_filter"]
"""Positive end signals, normalised. A response without one never ended (D2)."""

CallStatus = Literal[
    "done",
    "failed",
    "timed_out",
    "refused_loop",
    "refused_unknown",
    "refused_arguments",
    "refused_schema",
    "refused_incomplete",
    "denied",
    "cancelled_not_started",
    "cancelled_killed",
    "outcome_unknown",
]

Changed = Literal["nothing", "maybe", "yes"]
"""What a call did to the workspace."""

Rung = Literal["ack", "worker_kill", "term", "kill", "sweep", "pidns"]
"""How far an escalation went."""

RUNG_MEANINGS: dict[Rung, str] = {
    "ack": "the worker stopped by itself, and no tool had anything running",
    "term": "what the tool had started went on SIGTERM, within its grace",
    "kill": "some of it had to get SIGKILL",
    "sweep": "processes had to be found that had left the tool's process group",
    "pidns": "the tool worker was killed, and its PID namespace took everything in it along",
    "worker_kill": "a worker was killed, since it did not answer or `kill` was asked for, and what was under it swept",
}
"""From mild to hard."""
RUNG_ORDER: tuple[Rung, ...] = tuple(RUNG_MEANINGS)
"""A receipt names the hardest."""

CancelBy = Literal["key", "signal", "client", "limit", "lost_client"]

Reason = Literal["killed", "cancelled", "limit", "loop", "context_overflow", "worker_failed", "failed", "completed"]

LimitName = Literal["turns", "seconds", "tokens", "usd", "invalid_calls"]

Detector = Literal["same_call", "same_failure", "see_saw", "cycle", "no_progress", "drift"]

ApprovalMode = Literal["ask", "auto-edit", "yolo", "plan"]

ApprovalAnswer = Literal["yes", "always_tool", "no", "always_all"]

Api = Literal["chat", "responses", "messages"]

Isolation = Literal["pidns", "subreaper", "groups"]
"""How what a tool starts is held: strongest first."""

IsolationWish = Literal["auto", "pidns", "subreaper", "groups"]
"""What a user may ask for; `auto` is the strongest that is usable (supervisor/isolation.py)."""
