"""Which proxy a request goes through, by the variables that everybody reads. Pure.

Read here and not by the HTTP library, which makes a transport of every variable before it knows where a request goes:
one that it cannot use broke requests that no proxy concerns, and in words that name no variable.
"""

import ipaddress
import re
from collections.abc import Mapping

import httpx
import msgspec

SCHEMES = ("http", "https")
"""Of proxies that the client can use."""

PORTS = {"http": 80, "https": 443}

_ENTRY = re.compile(r"(?P<host>\*|\[[^]]+\]|[^:]+|[^:]*:.*:[^:]*)(?::(?P<port>\d+))?")
"""Of NO_PROXY: `*`, a name or an address, the last also in brackets; then a port."""


class Proxy(msgspec.Struct, frozen=True):
    url: str
    variable: str
    """Where it comes from."""


def proxy_for(url: httpx.URL, environment: Mapping[str, str]) -> Proxy | None:
    """None: straight to the server, as always to one on this machine. Raises httpx.UnsupportedProtocol for a
    value that cannot be used; its words name the variable and not the value, which may hold a password.

    The lower-case variable comes first; set to nothing it hides the other one. `NO_PROXY` holds hosts, each with its
    subdomains and perhaps a port, or `*`.
    """
    if is_here(url.host) or _is_exempt(url, _read("no_proxy", environment)[1]):
        return None
    for name in (f"{url.scheme}_proxy", "all_proxy"):
        variable, value = _read(name, environment)
        if value:
            return Proxy(_usable(value, variable), variable)
    return None


def is_here(host: str) -> bool:
    """This machine: no proxy of the environment can reach what it means by that."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The variable that counts, and its value."""
    variable = name if name in environment else name.upper()
    return variable, environment.get(variable, "").strip()


def _is_exempt(url: httpx.URL, no_proxy: str) -> bool:
    port = str(url.port or PORTS.get(url.scheme))
    for entry in no_proxy.lower().split(","):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None or match["port"] not in (None, port):
            continue
        host = match["host"].strip("[]").lstrip(".")
        if host == "*" or url.host == host or url.host.endswith(f".{host}"):
            return True
    return False


def _usable(value: str, variable: str) -> str:
    advice = f"set {variable} to http://HOST:PORT, or unset it"
    scheme, mark, _ = value.partition("://")
    if not mark:
        value = f"http://{value}"
    elif scheme.lower() not in SCHEMES:
        raise httpx.UnsupportedProtocol(
            f"{variable} names a proxy of a kind that cannot be used (only http and https can); {advice}"
        )
    try:
        usable = bool(httpx.URL(value).host)
    except httpx.InvalidURL:
        usable = False
    if not usable:
        raise httpx.UnsupportedProtocol(f"{variable} is no address of a proxy; {advice}")
    return value
