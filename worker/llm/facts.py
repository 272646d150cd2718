"""The facts of a failure, as text that may leave the worker. The supervisor judges (design 5)."""

from collections.abc import Iterable, Iterator, Mapping

MAX_BODY_BYTES = 16 * 1024
"""Of an error's text; messages.AttemptFailed."""

HEADERS = frozenset({"content-type", "date", "x-amzn-errortype", "x-ms-error-code", "x-should-retry"})
HEADER_STARTS = ("retry-after",)
HEADER_PARTS = ("ratelimit",)

LONGEST_CHAIN = 6
"""Causes told of one exception; httpx, httpcore, anyio, asyncio and the system make five."""

HIDDEN_KEY = "[API key]"


def headers_that_matter(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Those of messages.AttemptFailed.headers, lower case."""
    return {name.lower(): value for name, value in headers if _matters(name.lower())}


def _matters(name: str) -> bool:
    return name in HEADERS or name.startswith(HEADER_STARTS) or any(part in name for part in HEADER_PARTS)


def exception_text(error: BaseException) -> str:
    """`ClassName: message`, causes after ` <- `. A cause that only repeats what it caused is left out."""
    texts: list[str] = []
    for link in _chain(error):
        text = f"{type(link).__name__}: {link}"
        if not texts or texts[-1] != text:
            texts.append(text)
    return " <- ".join(texts[:LONGEST_CHAIN])


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(2 * LONGEST_CHAIN):
        if link is None:
            return
        yield link
        if isinstance(link, BaseExceptionGroup):  # several addresses were tried
            yield from link.exceptions
            return
        link = link.__cause__ or link.__context__  # also a suppressed one: httpcore's pool raises `from None`


def cut(text: str) -> str:
    """At most MAX_BODY_BYTES of it, whole characters."""
    return text.encode()[:MAX_BODY_BYTES].decode("utf-8", "ignore") if len(text) * 4 > MAX_BODY_BYTES else text


def without_key(text: str, key: str | None) -> str:
    """Providers, and our own HTTP layer, repeat the key in some of their complaints (J4)."""
    return text.replace(key, HIDDEN_KEY) if key else text
