"""Clear words for the user about a failure. Pure.

What failed (with the HTTP status, or the host and port that were not reached) and the provider's own words reduced to
one line; and apart from it what the user can do, which is said only where the failure surfaces: to one that is retried
the user need do nothing.
No HTML, no JSON, no key and no control character passes.
"""

import re
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec

from haltline.protocol.kinds import Api, Kind, Subkind
from haltline.supervisor.failure_evidence import Evidence

MAX_WORDS = 240
"""Characters of the provider's words in a line: three lines of a terminal."""
READ = 2_000
"""Characters of a text that are looked at for that."""


class Saying(msgspec.Struct, frozen=True):
    """What failed, and what the user can do; "": nothing."""

    what: str
    do: str = ""


SAYINGS: dict[tuple[Kind, Subkind | None], Saying] = {
    ("aborted", None): Saying("the request was aborted"),
    ("auth", None): Saying("the API key was refused", "check the key, what it may do, and the base URL"),
    ("quota_exhausted", None): Saying("the account's quota is used up", "add credit or wait for the reset"),
    ("rate_limited", None): Saying("the provider limits the rate of requests", "wait, or send less per minute"),
    ("server", None): Saying("the provider failed", "try again later"),
    ("server", "overloaded"): Saying("the provider is overloaded", "try again later"),
    ("network", None): Saying("the connection failed", "check the network and the base URL"),
    ("network", "dns"): Saying("the base URL's host was not found", "check the base URL and the name service"),
    ("network", "connect"): Saying("no connection to the base URL", "check the base URL and that its server runs"),
    ("network", "reset"): Saying("the connection broke before an answer came", "try again"),
    ("network", "tls"): Saying("no encrypted connection to the base URL", "check the base URL and the certificates"),
    ("network", "timeout"): Saying("no connection in time", "check the network and the base URL"),
    ("stream_truncated", None): Saying("the answer broke off before its end signal", "what came is kept; ask again"),
    ("stream_idle", None): Saying("the answer stopped coming", "try again"),
    ("stream_idle", "first_event"): Saying("no first event in time", "try again, or raise --first-event-timeout"),
    ("stream_idle", "silence"): Saying("the connection fell silent", "try again, or raise --idle-timeout"),
    ("stream_idle", "no_progress"): Saying(
        "no progress of the model in time", "try again, or raise --progress-timeout"
    ),
    ("stream_idle", "whole_request"): Saying("the request took too long", "ask for less, or raise --request-timeout"),
    ("context_overflow", None): Saying("the request does not fit the model's context", "shorten the conversation"),
    ("output_truncated", None): Saying("the answer was cut by the output limit", "ask for smaller pieces"),
    ("content_filtered", None): Saying("a content filter stopped the request", "reword the task"),
    ("content_filtered", "refusal"): Saying("the model refused", "reword the task"),
    ("bad_request", None): Saying("the provider refused the request", "check the model's name and the settings"),
    ("bad_request", "invalid_generation"): Saying("the provider rejected what its model wrote"),
    ("malformed_response", None): Saying(
        "the answer could not be read", "check that the base URL is an API of this format"
    ),
    ("malformed_response", "empty"): Saying("the model's answer was empty", "ask again"),
}

UNSENT = Saying("the request could not be sent", "check the base URL and the settings")
"""A bad request that no provider saw."""

NOTHING_THERE = frozenset({301, 302, 303, 307, 308, 404, 405})
"""Statuses of a server that has no API at the URL that was asked."""

_PORTS = {"http": 80, "https": 443}
_KEY = re.compile(r"\b((?:sk|pk|rk|gsk|xai|key|api|AIza|ghp|hf|Bearer)[-_ ]?)[A-Za-z0-9_\-]{12,}")
_JSON = re.compile(r"[{\[]\s*[\"'{\[].*", re.DOTALL)
_TAG = re.compile(r"<[^>]{0,300}>")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ud800-\udfff]+")
_SPACE = re.compile(r"\s+")
_CLASS = re.compile(r"^[\w.]*(?:Error|Timeout|Exception|Protocol|gaierror|Cancelled\w*)\b:?\s*")
_ERRNO = re.compile(r"\[Errno -?\d+\]\s*|\s*\(_ssl\.c:\d+\)")


def words_of(
    kind: Kind,
    subkind: Subkind | None,
    *,
    status: int | None = None,
    evidence: Evidence | None = None,
    said: str = "",
    resets_at_s: float | None = None,
    base_url: str = "",
    api: Api = "chat",
    unsent: bool = False,
) -> Saying:
    """What failed with what was said about it, and what to do.

    `said`: the words of an exception, an adapter or a refusal. `resets_at_s`: Unix seconds of a quota's reset.
    `base_url`: where the request went; named where the network failed, doubted where there was no API. `api`: in which
    format; the URL of messages has no /v1 at its end.
    `unsent`: it went nowhere.
    """
    saying = SAYINGS.get((kind, subkind)) or SAYINGS[(kind, None)]
    if unsent and kind == "bad_request":
        saying = UNSENT
    words = one_line(said) or (provider_words(evidence) if evidence is not None else "")
    when = f" (resets {clock_time(resets_at_s)})" if resets_at_s is not None else ""
    where = server(base_url) if kind == "network" else ""
    told = ", ".join(part for part in (where, f"HTTP {status}" if status is not None else "") if part)
    head = f"{saying.what} ({told})" if told else saying.what
    do = saying.do
    if status in NOTHING_THERE and kind in ("bad_request", "malformed_response"):
        doubt = "" if api == "messages" or base_url.rstrip("/").endswith("/v1") else " (does it end in /v1?)"
        do = f"check the base URL{doubt} and the model's name"
    return Saying(what=head + (f": {words}" if words else ""), do=f"{do}{when}" if do else "")


def worker_lost(words: str, base_url: str) -> Saying:
    """A worker died with a request open."""
    where = server(base_url)
    request = f"the request to {where}" if where else "the request"
    how = one_line(words)
    return Saying(
        what=f"the worker that held {request} ended{f': {how}' if how else ' without a word'}",
        do="what came is kept; ask again",
    )


def server(base_url: str) -> str:
    """`host:port` of a URL, an IPv6 address in brackets, without the user and password that it may hold.

    "" where it names no host; the host alone where its port is no number."""
    try:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
    except ValueError:  # a bracket that is not closed
        return ""
    if ":" in host:
        host = f"[{host}]"
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return host
    return f"{host}:{port}" if host and port else host


def exception_words(exception: str) -> str:
    """The first words of an exception and its causes that say something; the deepest for `All attempts failed`."""
    said = [words for part in exception.split(" <- ") if (words := _ERRNO.sub("", _CLASS.sub("", part)).strip())]
    if not said:
        return ""
    return said[-1] if "attempts failed" in said[0] else said[0]


def one_line(text: str) -> str:
    """A text as one short line: no markup, no JSON, no control characters, no key."""
    text = _TAG.sub(" ", _JSON.sub("", _CONTROL.sub(" ", text[:READ])))
    text = _KEY.sub(r"\1…", _SPACE.sub(" ", text)).strip(" -:;,.")
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1].rstrip() + "…"


def provider_words(evidence: Evidence) -> str:
    """The innermost text that says something: wrappers say `Provider returned error`."""
    if evidence.html:
        return (
            f"a web page came{_titled(evidence.texts)}"
            if evidence.status is None
            else one_line(" ".join(evidence.texts))
        )
    lines = [words for words in map(one_line, evidence.texts) if words]
    return next((words for words in reversed(lines) if " " in words), lines[-1] if lines else "")


def _titled(texts: tuple[str, ...]) -> str:
    return f" ({one_line(texts[0])})" if texts else ""


def clock_time(wall_s: float) -> str:
    """`at 2026-11-30 14:05 UTC`."""
    return f"at {datetime.fromtimestamp(wall_s, tz=UTC):%Y-%m-%d %H:%M} UTC"
