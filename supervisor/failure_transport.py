"""What an exception of the HTTP client means, as data. Pure.

The worker reports `ClassName: message`, causes after ` <- `. The class decides first: many messages are empty.
Before the response's headers a broken connection is `network`, after them `stream_truncated` (D2), whatever the
exception is called. The first rule that fits wins; what fits none broke the connection.
"""

import re

import msgspec

from haltline.protocol.kinds import Again, Kind, Phase, Subkind


class TransportRule(msgspec.Struct, frozen=True, kw_only=True):
    """`named` is matched at the start of the class name, `words` searched in all of the text, both lower-case."""

    kind: Kind
    subkind: Subkind | None = None
    again: Again = "unknown"
    named: re.Pattern[str] | None = None
    words: re.Pattern[str] | None = None
    phases: frozenset[Phase] | None = None
    """None: in any."""
    local: bool = False
    note: str


AFTER_HEADERS: frozenset[Phase] = frozenset({"first_event", "body"})

_TIMEOUT = re.compile(r"\w*timeout|\w*deadline")

RULES: tuple[TransportRule, ...] = (
    TransportRule(
        kind="bad_request",
        again="no",
        named=re.compile(r"unsupportedprotocol|invalidurl|localprotocolerror|toomanyredirects|unicode\w*error"),
        note="a request that cannot be sent: URL, header value, redirects",
    ),
    TransportRule(kind="aborted", named=re.compile(r"cancelled|\w*abort"), note="our own cancel"),
    TransportRule(
        kind="auth", words=re.compile(r"\b407\b|proxy authentication"), note="a proxy that wants to know who asks"
    ),
    TransportRule(kind="malformed_response", named=re.compile(r"decodingerror"), note="a body that does not unpack"),
    TransportRule(
        kind="stream_idle",
        subkind="first_event",
        named=_TIMEOUT,
        phases=frozenset({"first_event"}),
        note="a read limit before the first event",
    ),
    TransportRule(
        kind="stream_idle", subkind="silence", named=_TIMEOUT, phases=AFTER_HEADERS, note="a read limit in the body"
    ),
    TransportRule(kind="stream_truncated", phases=AFTER_HEADERS, note="the connection ended after the headers"),
    TransportRule(kind="network", subkind="timeout", named=_TIMEOUT, note="a limit of the HTTP client"),
    TransportRule(
        kind="network",
        subkind="dns",
        local=True,
        words=re.compile(
            r"name or service not known|nodename nor servname|no such host|no address associated|"
            r"name does not resolve|host not found|unknown host|errno -[25]\b|errno 11001\b|enotfound"
        ),
        note="no such host",
    ),
    TransportRule(
        kind="network",
        subkind="dns",
        words=re.compile(r"gaierror|name resolution|getaddrinfo|errno -[34]\b|eai_again|idna"),
        note="the name service did not answer",
    ),
    TransportRule(
        kind="network",
        subkind="tls",
        again="no",
        words=re.compile(
            r"certificate[ _]verify|hostname mismatch|self[- ]signed|certificate has expired|unknown[ _]ca\b|"
            r"certificate is not|doesn't match|wrong[ _]version[ _]number"
        ),
        note="a certificate that does not verify, or no TLS on that port",
    ),
    TransportRule(
        kind="network",
        subkind="tls",
        words=re.compile(r"\bssl\b|\btls|_ssl\.c|ssl\w*error|certificate|handshake"),
        note="the TLS handshake failed",
    ),
    TransportRule(
        kind="network", subkind="timeout", words=re.compile(r"timed out|etimedout|errno 110\b"), note="timed out"
    ),
    TransportRule(
        kind="network",
        subkind="connect",
        local=True,
        words=re.compile(
            r"(?:refused|errno (?:111|61)\b|connect call failed).*(?:127\.\d|localhost|::1\b)|"
            r"(?:127\.\d|localhost|::1\b).*(?:refused|errno (?:111|61)\b)",
            re.DOTALL,
        ),
        note="refused on this machine",
    ),
    TransportRule(
        kind="network",
        subkind="reset",
        words=re.compile(r"reset by peer|econnreset|errno (?:104|54)\b|broken pipe"),
        note="reset while connecting",
    ),
    TransportRule(
        kind="network",
        subkind="connect",
        named=re.compile(r"connecterror|proxyerror|connectionrefused"),
        note="no connection",
    ),
    TransportRule(
        kind="network",
        subkind="connect",
        words=re.compile(r"refused|unreachable|no route|connection attempts failed|errno (?:101|111|113|51|61|65)\b"),
        note="no connection, in words",
    ),
    TransportRule(kind="network", subkind="reset", note="the connection broke before the headers"),
)


def find(exception: str, phase: Phase) -> TransportRule:
    """The first rule that fits; the last one fits everything."""
    text = exception.lower()
    name = text.split(":", 1)[0].strip().rsplit(".", 1)[-1]
    return next(rule for rule in RULES if _fits(rule, name, text, phase))


def _fits(rule: TransportRule, name: str, text: str, phase: Phase) -> bool:
    return (
        (rule.phases is None or phase in rule.phases)
        and (rule.named is None or rule.named.match(name) is not None)
        and (rule.words is None or rule.words.search(text) is not None)
    )
