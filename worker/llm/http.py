"""The HTTP client of one worker: made once, thrown away when it can no longer be trusted.

httpx with everything of its own turned off that would decide in our place: timeouts (ours are in timers.py), retries
(the supervisor owns them, C2), redirects, the environment's proxies (proxy.py). HTTP/1.1 with keep-alive.
"""

import os
import ssl
import time

import httpx

from haltline.worker.llm import preload
from haltline.worker.llm.proxy import Proxy, proxy_for

SUSPENDED_S = 5.0
"""A gap in the life of the loop after which pooled connections are taken for dead (R34)."""

KEEP_ALIVE_S = 60.0
"""How long an idle connection is kept: tools run between two requests. A server that closes it earlier is noticed
before it is used again."""

CONNECTIONS = 4
"""One attempt at a time, and the one before it may still be closing."""


def clock() -> float:
    """Seconds that also pass while the machine is suspended, where the system has such a clock."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time()


class Http:
    """Hands out the client. `alive` is called at least every second by a loop that runs."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._route: tuple[str, Proxy | None] = ("", None)
        """What the client was made for: the scheme, and the way there."""
        self._seen = clock()
        self._old: list[httpx.AsyncClient] = []

    def alive(self) -> None:
        now = clock()
        if now - self._seen > SUSPENDED_S:
            self.distrust()
        self._seen = now

    def distrust(self) -> None:
        """The next request gets new connections. The old client is only put aside: closing it could wait."""
        if self._client is not None:
            self._old.append(self._client)
            self._client = None

    async def client(self, url: httpx.URL) -> httpx.AsyncClient:
        """Raises httpx.UnsupportedProtocol where the proxy that concerns this URL cannot be used."""
        self.alive()
        route = (url.scheme, proxy_for(url, os.environ))
        if self._client is not None and route != self._route:
            self.distrust()
        old, self._old = self._old, []
        for client in old:
            await client.aclose()
        if self._client is None:
            self._route = route
            self._client = _make_client(*route)
        return self._client


def _make_client(scheme: str, proxy: Proxy | None) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        verify=preload.tls_context() if scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        timeout=None,
        follow_redirects=False,
        limits=httpx.Limits(
            max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=KEEP_ALIVE_S
        ),
        proxy=None if proxy is None else proxy.url,
        trust_env=False,
    )
