"""What a failed attempt says about itself: codes, statuses, texts and waits, in no provider's dialect. Pure.

Every endpoint nests its errors differently (an object, a list, JSON inside a string, a Python repr inside a
message, an SSE block, HTML, plain text), so nothing here knows a provider:
1. Each string that holds structure is opened, down to MAX_DEPTH; cut or foreign structure is scanned for pairs.
2. Values are gathered by the name of their field, whatever stands around it.
3. Text that somebody else wrote (quoted values, a failed generation, an answer's content) is no evidence.
Never raises, whatever the body holds.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

import msgspec

from haltline.supervisor.retry_after import MOMENT_FIELDS, WAIT_FIELDS, Hint

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

MAX_DEPTH = 12
"""Levels of nesting that are opened; a wrapped and re-wrapped error has about six."""
MAX_NODES = 600
"""Values looked at; an error body has below fifty. Bounds the time (a classification stays below 1 ms)."""
MAX_ITEMS = 40
"""Items of one list."""
LARGEST = 1e15
"""Larger numbers are no code, no wait and no count of tokens."""
MAX_TEXT = 2_000
"""Characters of one message that patterns look at."""

MAX_PAGE = 4_000
"""Characters of a page in which its title is looked for."""

CODE_FIELDS = frozenset(
    {"type", "code", "status", "reason", "reasons", "errortype", "errorcode", "errorname", "quotaid", "exception"}
)
STATUS_FIELDS = frozenset({"code", "status", "statuscode", "httpstatus", "httpcode", "errorcode"})
TEXT_FIELDS = frozenset(
    {
        "message",
        "msg",
        "error",
        "errors",
        "detail",
        "details",
        "errormessage",
        "errormsg",
        "statusmsg",
        "errordescription",
        "description",
        "title",
        "raw",
        "cause",
        "statustext",
    }
)
FINISH_FIELDS = frozenset({"finishreason", "stopreason", "nativefinishreason"})
FOREIGN_FIELDS = frozenset(
    {"failedgeneration", "content", "input", "prompt", "arguments", "flaggedinput", "partialjson", "loc", "usage"}
)
"""Fields whose values the model or the user wrote; only their presence is told, as a code."""
LIMIT_FIELDS = frozenset({"nctx", "maxcontextlength", "contextlength", "contextwindow", "maxmodellen"})
REQUESTED_FIELDS = frozenset({"nprompttokens"})

_IDENTIFIER = re.compile(r"[A-Za-z][\w.:/#-]{1,99}", re.ASCII)
_STATUS = re.compile(r"[45]\d\d", re.ASCII)
_NOT_ALNUM = re.compile(r"[^a-z0-9]+")
_PAIR = re.compile(
    r"""\\?["'](?P<key>@?[A-Za-z_][\w-]{0,40})\\?["'] \s{0,9}:\s{0,9}
    (?: \\?"(?P<double>(?:[^"\\]|\\.){0,4000})
      | '(?P<single>(?:[^'\\]|\\.){0,4000})
      | (?P<bare>-?\d{1,18}(?:\.\d{1,9})?) )""",
    re.VERBOSE,
)
"""`key: value` in JSON or a Python repr, closed or cut off, also inside an escaped string."""
_DATA_LINE = re.compile(r"^data:[ ]?(.*)$", re.MULTILINE)
_TEXT_STATUS = re.compile(
    r"(?:^|[|] |\b(?:http(?:/\d(?:\.\d)?)?|status(?:[ _]code)?|error[ _]code|code|error|returned|received|got)"
    r"[ :=\"']{0,3})[\[(<]?([45]\d\d)(?![\d.,]|\s{0,3}(?:tokens|ms|s\b))",
    re.IGNORECASE,
)
_CLASS_NAME = re.compile(r"(?:^|[\s(.:'\"])((?:[A-Z][a-z0-9]+|[A-Z]+(?=[A-Z][a-z]))+(?:Error|Exception))\b")
_QUOTED = re.compile(r"""(?<![\w'"])(?:"[^"\n]{0,120}"|'[^'\n]{0,120}'(?!\w)|“[^”\n]{0,120}”)(?!\w)""")
_HTML = re.compile(r"<(?:!doctype html|html|head|body|h1|center|title)\b", re.IGNORECASE)
_ELEMENT = re.compile(r"<(code|message)>([^<]{0,400})<", re.IGNORECASE)
_TITLE = re.compile(r"<(?:title|h1)(?:\s[^>]{0,200})?>([^\0]{1,300}?)(?:</(?:title|h1)|\Z)", re.IGNORECASE)
_UNSEEN = re.compile(r"<(script|style|head)\b[^\0]*?(?:</\1|\Z)", re.IGNORECASE)
_TAG = re.compile(r"<[^>]{0,300}>")
_SPACE = re.compile(r"\s+")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. Codes are canonical (see `canonical`); texts run from the outermost to the innermost."""

    status: int | None
    """Of the answer as a whole: HTTP's if it is an error's, else the outermost of the body or its words."""
    statuses: frozenset[int] = frozenset()
    """All of them, those of wrapped errors included."""
    codes: frozenset[str] = frozenset()
    finishes: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    limit_tokens: int | None = None
    requested_tokens: int | None = None
    html: bool = False
    structured: bool = False
    """The body was JSON (or an SSE block of JSON), whole."""
    empty: bool = False

    @property
    def text(self) -> str:
        """All texts without the values that they quote."""
        return "\n".join(_QUOTED.sub("''", text) for text in self.texts).replace("`", "")

    @property
    def full_text(self) -> str:
        return "\n".join(self.texts).replace("`", "")


def canonical(code: str) -> str:
    """One spelling of `rate_limit_exceeded`, `RateLimitExceeded`, `rate-limit.exceeded`: `ratelimitexceeded`."""
    return _NOT_ALNUM.sub("", code.lower())


def read(status: int | None, headers: Mapping[str, str], body: str) -> Evidence:
    """The evidence in an answer; `body` may also be the data of one stream event."""
    gathering = _Gathering()
    for name in ("x-amzn-errortype", "x-ms-error-code", "x-error-code"):
        if headers.get(name):
            gathering.code(headers[name].split(":")[0])
    stripped = body.strip()
    html = _HTML.match(stripped) is not None or (
        stripped.startswith("<") and "text/html" in headers.get("content-type", "").lower()
    )
    _open(stripped, gathering, 0, whole=True)
    return gathering.evidence(status, html=html, empty=not stripped)


def html_line(page: str) -> str:
    """The one line of a page that says what happened: its title, its first heading, or its first visible words."""
    page = page[:MAX_PAGE]
    for inner in (*_TITLE.findall(page), _UNSEEN.sub(" ", page)):
        line = _SPACE.sub(" ", _TAG.sub(" ", inner)).strip()
        if line:
            return line[:200]
    return ""


class _Gathering:
    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.codes: set[str] = set()
        self.finishes: set[str] = set()
        self.texts: list[str] = []
        self.aside: list[str] = []
        self.hints: list[Hint] = []
        self.limit: int | None = None
        self.requested: int | None = None
        self.nodes = 0
        self.structured = False

    def more(self) -> bool:
        """Count one value; False: enough were looked at."""
        self.nodes += 1
        return self.nodes <= MAX_NODES

    def code(self, value: str) -> None:
        value = value.strip()
        if _IDENTIFIER.fullmatch(value) or value.isdecimal():
            self.codes.add(canonical(value))
        elif value:
            self.aside.append(value[:MAX_TEXT])

    def text(self, value: str) -> None:
        value = value.strip()
        if not value:
            return
        if _IDENTIFIER.fullmatch(value):
            self.codes.add(canonical(value))
        if value not in self.texts:
            self.texts.append(value[:MAX_TEXT])
        for found in _CLASS_NAME.finditer(_QUOTED.sub("", value[:400])):
            self.codes.add(canonical(found[1]))

    def evidence(self, status: int | None, *, html: bool, empty: bool) -> Evidence:
        texts = (*self.aside, *self.texts)
        own = [status] if status is not None and status >= 300 else []
        spoken = [int(found[1]) for text in texts for found in _TEXT_STATUS.finditer(_QUOTED.sub("", text[:400]))]
        # Words count as a status only where nothing firmer does: they may speak of anything.
        statuses = [*own, *self.statuses] or spoken
        return Evidence(
            status=statuses[0] if statuses else None,
            statuses=frozenset(statuses),
            codes=frozenset(self.codes),
            finishes=frozenset(self.finishes),
            texts=texts,
            hints=tuple(self.hints),
            limit_tokens=self.limit,
            requested_tokens=self.requested,
            html=html,
            structured=self.structured,
            empty=empty,
        )


def _open(text: str, into: _Gathering, depth: int, *, whole: bool = False) -> None:
    """Gather from a string that is, or holds, structure; plain text is gathered as text. `whole`: it is the body."""
    if not text:
        return
    if whole and (lines := _DATA_LINE.findall(text)):
        text = "\n".join(lines).strip()
    if whole and _HTML.match(text):
        into.text(html_line(text))
    elif whole and (elements := _ELEMENT.findall(text[:MAX_PAGE]) if text[0] == "<" else []):
        for name, inner in elements:
            _string(canonical(name), inner, into, depth)
    elif depth < MAX_DEPTH and (found := _structure(text)) is not None:
        before, value = found
        into.structured = into.structured or (whole and not before)
        into.text(before)
        if isinstance(value, str):
            into.text(value)
        else:
            _walk(value, into, depth + 1)
    elif depth >= MAX_DEPTH or not (("{" in text or whole) and _scan_pairs(text, into, depth)):
        page = _HTML.search(text)
        into.text(text if page is None else f"{text[: page.start()]} {html_line(text[page.start() :])}")


def _structure(text: str) -> tuple[str, str | list[Json] | dict[str, Json]] | None:
    """What stands before the first JSON value of a text, and that value; None: it holds none."""
    if text[0] == '"':
        starts = [0]
    else:
        starts = sorted(at for at in (text.find("{"), text.find("[{"), 0 if text[0] == "[" else -1) if at >= 0)
    for start in starts:
        try:
            value = cast(Json, _decoder.raw_decode(text, start)[0])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list | str):
            return text[:start].strip(" -:,b'\"\\"), value
    return None


_decoder = json.JSONDecoder(strict=False)


def _scan_pairs(text: str, into: _Gathering, depth: int) -> bool:
    """Gather `key: value` pairs of structure that does not decode: cut off, or a Python repr. False: no pair."""
    pairs = _PAIR.finditer(text)
    first = next(pairs, None)
    if first is None:
        return False
    into.text(text[: first.start()].strip(" -:,{[b'\"\\"))
    for found in itertools.chain((first,), pairs):
        if not into.more():
            break
        name = canonical(found["key"])
        if found["bare"]:
            _number(name, float(found["bare"]), into)
        else:
            value = found["double"] if found["double"] is not None else found["single"]
            _string(name, value.replace('\\"', '"').replace("\\'", "'").replace("\\n", "\n"), into, depth + 1)
    return True


def _walk(value: Json, into: _Gathering, depth: int) -> None:
    if depth > MAX_DEPTH or not into.more():
        return
    if isinstance(value, dict):
        for key, inner in _ordered(value):
            _field(canonical(key[:60]), inner, into, depth)
    elif isinstance(value, list):
        for inner in value[:MAX_ITEMS]:
            _walk(inner, into, depth + 1)


def _ordered(value: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """Plain fields before nested ones: texts then run from the outermost to the innermost."""
    for nested in (False, True):
        for key, inner in value.items():
            if isinstance(inner, dict | list) is nested:
                yield key, inner


def _field(name: str, value: Json, into: _Gathering, depth: int) -> None:
    if name in FOREIGN_FIELDS:
        if value:
            into.codes.add(name)
        return
    match value:
        case str():
            _string(name, value, into, depth)
        case bool() | None:
            pass
        case int() | float():
            _number(name, value, into)
        case list():
            for inner in value[:MAX_ITEMS]:
                _field(name, inner, into, depth + 1) if isinstance(inner, str) else _walk(inner, into, depth + 1)
        case _:
            _walk(value, into, depth + 1)


def _string(name: str, value: str, into: _Gathering, depth: int) -> None:
    value = value.strip()
    if name in FOREIGN_FIELDS:
        into.codes.add(name)
    elif name in FINISH_FIELDS:
        into.finishes.update(canonical(part) for part in value.split(":"))
    elif name in STATUS_FIELDS and _STATUS.fullmatch(value):
        into.statuses.append(int(value))
    elif name in CODE_FIELDS:
        into.code(value)
        if name == "reason":
            into.finishes.add(canonical(value))
    elif name in TEXT_FIELDS:
        _open(value, into, depth + 1)
    elif name in WAIT_FIELDS or name in MOMENT_FIELDS:
        into.hints.append(Hint(field=name, value=value[:64]))


def _number(name: str, value: float, into: _Gathering) -> None:
    if not abs(value) < LARGEST:
        return
    if name in STATUS_FIELDS:
        _string(name, str(int(value)), into, MAX_DEPTH)
    elif name in WAIT_FIELDS or name in MOMENT_FIELDS:
        into.hints.append(Hint(field=name, value=str(value)))
    elif name in LIMIT_FIELDS:
        into.limit = int(value)
    elif name in REQUESTED_FIELDS:
        into.requested = int(value)
