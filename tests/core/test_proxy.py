"""Which proxy a request goes through."""

from __future__ import annotations

import httpx
import pytest

from haltline.supervisor import failure_transport
from haltline.worker.llm import facts
from haltline.worker.llm.proxy import Proxy, proxy_for

URL = httpx.URL("https://api.example.com/v1")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p:1"}, Proxy("http://p:1", "HTTPS_PROXY")),
        ({"https_proxy": "p:1", "HTTPS_PROXY": "http://q:1"}, Proxy("http://p:1", "https_proxy")),
        ({"https_proxy": "", "HTTPS_PROXY": "http://q:1"}, None),
        ({"ALL_PROXY": "http://p:1"}, Proxy("http://p:1", "ALL_PROXY")),
        ({"ALL_PROXY": "foo://bar", "HTTPS_PROXY": "https://u:w@p:1"}, Proxy("https://u:w@p:1", "HTTPS_PROXY")),
        ({"HTTP_PROXY": "foo://bar"}, None),
    ],
)
def test_the_variable_that_concerns_the_url_decides(environment: dict[str, str], expected: Proxy | None) -> None:
    assert proxy_for(URL, environment) == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/v1",
        "http://127.8.8.8/",
        "http://localhost:1",
        "https://LOCALHOST",
        "http://a.localhost",
        "http://[::1]:1/",
    ],
)
def test_no_proxy_lies_between_us_and_this_machine(url: str) -> None:
    assert proxy_for(httpx.URL(url), {"ALL_PROXY": "socks5://127.0.0.1:1080", "HTTP_PROXY": "foo://bar"}) is None


@pytest.mark.parametrize(
    ("entries", "url", "exempt"),
    [
        ("*", URL, True),
        ("a, api.example.com", URL, True),
        (".example.com", URL, True),
        ("EXAMPLE.com", URL, True),
        ("example.com:443", URL, True),
        ("example.com:80", URL, False),
        ("ple.com", URL, False),
        ("[::1]:*,,:", URL, False),
        ("10.0.0.7", httpx.URL("http://10.0.0.7:8080/v1"), True),
        ("fd00::7", httpx.URL("http://[fd00::7]:8080/v1"), True),
        ("[fd00::7]:8080", httpx.URL("http://[fd00::7]:8080/v1"), True),
        ("[fd00::7]:80", httpx.URL("http://[fd00::7]:8080/v1"), False),
    ],
)
def test_no_proxy_names_hosts_with_their_subdomains(entries: str, url: httpx.URL, exempt: bool) -> None:
    assert (proxy_for(url, {"NO_PROXY": entries, "ALL_PROXY": "http://p:1"}) is None) == exempt


@pytest.mark.parametrize("value", ["socks5://user:secret@p:1080", "foo://secret", "http://[::secret", "http://"])
def test_a_proxy_that_cannot_be_used_is_told_by_its_variable_and_never_tried_again(value: str) -> None:
    """J4 for the value: it may hold a password."""
    with pytest.raises(httpx.UnsupportedProtocol) as raised:
        proxy_for(URL, {"ALL_PROXY": value})
    said = facts.exception_text(raised.value)
    assert said.startswith("UnsupportedProtocol: ALL_PROXY ")
    assert said.endswith("; set ALL_PROXY to http://HOST:PORT, or unset it")
    assert "secret" not in said
    rule = failure_transport.find(said, "connect")
    assert (rule.kind, rule.again) == ("bad_request", "no")
