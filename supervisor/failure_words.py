"""One clear line for the user about a failure, and the token numbers in an overflow's words. Pure.

The line: what failed (with the status), the provider's own words reduced to one line, what to do.
"""

import re

import msgspec

from haltline.protocol.kinds import Kind, StreamTimer, Subkind
from haltline.supervisor.failure_evidence import Evidence

MAX_WORDS = 240
"""Characters of the provider's words in a line."""

_WHAT: dict[tuple[Kind, Subkind | None], tuple[str, str]] = {
    ("aborted", None): ("the request was aborted", ""),
    ("auth", None): ("the provider refused the key", "check the key, its permissions and the base URL"),
    ("quota_exhausted", None): ("the account's quota is used up", "add credit, wait for the reset or use another key"),
    ("rate_limited", None): ("the provider limits the rate of requests", "wait, or send less per minute"),
    ("server", None): ("the provider failed", "try again later"),
    ("server", "overloaded"): ("the provider is overloaded", "try again later"),
    ("network", None): ("the connection failed", "check the network and the base URL"),
    ("network", "dns"): ("the host of the base URL was not found", "check the base URL and the name service"),
    ("network", "connect"): ("no connection to the provider", "check that the base URL is right and its server runs"),
    ("network", "reset"): ("the connection broke before an answer came", "try again"),
    ("network", "tls"): ("the encrypted connection could not be set up", "check the base URL and the certificates"),
    ("network", "timeout"): ("no connection in time", "check the network and the base URL"),
    ("stream_truncated", None): ("the answer ended before its end signal", "what came is kept; ask to continue"),
    ("stream_idle", None): ("the answer stopped coming", "try again"),
    ("stream_idle", "first_event"): ("no first event came in time", "try again, or raise --first-event-timeout"),
    ("stream_idle", "silence"): ("the connection fell silent", "try again, or raise --idle-timeout"),
    ("stream_idle", "no_progress"): ("the model made no progress in time", "try again, or raise --progress-timeout"),
    ("stream_idle", "whole_request"): ("the request took too long", "ask for less, or raise --request-timeout"),
    ("context_overflow", None): ("the request does not fit the model's context", "shorten the conversation"),
    ("output_truncated", None): ("the answer was cut by the output limit", "ask for smaller pieces"),
    ("content_filtered", None): ("the provider's content filter stopped the request", "reword the task"),
    ("content_filtered", "refusal"): ("the model refused", "reword the task"),
    ("bad_request", None): ("the provider refused the request", "check the model's name and the settings"),
    ("bad_request", "invalid_generation"): ("the provider rejected what its own model wrote", "the model is told"),
    ("malformed_response", None): ("the answer could not be read", "check that the base URL is an API of this format"),
    ("malformed_response", "empty"): ("the model's answer was empty", "ask again"),
}

_KEY = re.compile(r"\b((?:sk|pk|rk|gsk|xai|key|api|AIza|Bearer|ghp|hf)[-_ ]?)[A-Za-z0-9_\-]{12,}")
_JSON = re.compile(r"[{\[]\s*[\"'{\[].*", re.DOTALL)
_TAG = re.compile(r"<[^>]{0,300}>")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_SPACE = re.compile(r"\s+")


def line(
    kind: Kind,
    subkind: Subkind | None,
    *,
    status: int | None = None,
    evidence: Evidence | None = None,
    said: str = "",
    timer: StreamTimer | None = None,
) -> str:
    """What failed, what was said, what to do. `said`: an exception's or a refusal's words."""
    what, do = _WHAT.get((kind, subkind)) or _WHAT[(kind, None)]
    if timer is not None:
        said = ""
    words = one_line(said) or (_provider_words(evidence) if evidence is not None else "")
    head = what + (f" (HTTP {status})" if status is not None else "")
    return head + (f": {words}" if words else "") + (f"; {do}" if do else "")


def worker_lost(words: str) -> str:
    """The line for a worker that died with a request open."""
    return f"the worker that held the request ended: {one_line(words) or 'without a word'}; a new one is started"


def one_line(text: str) -> str:
    """A text as one short line: no markup, no JSON, no control characters, no key."""
    text = _CONTROL.sub(" ", text[:4_000])
    text = _TAG.sub(" ", _JSON.sub("", text))
    text = _KEY.sub(r"\1…", _SPACE.sub(" ", text)).strip(" -:;,")
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1].rstrip() + "…"


def _provider_words(evidence: Evidence) -> str:
    """The innermost text that says something: wrappers say `Provider returned error`."""
    lines = [words for words in map(one_line, evidence.texts) if words]
    return next((words for words in reversed(lines) if " " in words), lines[-1] if lines else "")


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    limit: int | None = None
    requested: int | None = None
    output: int | None = None


NO_TOKENS = Tokens()


def tokens(evidence: Evidence) -> Tokens:
    """The window, the request and the output part that an overflow names."""
    return Tokens(limit=evidence.limit_tokens, requested=evidence.requested_tokens)
