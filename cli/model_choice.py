"""Which model of which server a session talks to. Pure.

1. `demo` and `demo/SCENARIO` are the embedded gateway; the scenario is the model name that the gateway sees.
2. Where the user named a server (`--base-url`, or `base_url` in a file), the whole text is that server's model
   name: routers have models that are called `openai/...`.
3. Else `openai/NAME` is NAME at OPENAI_BASE_URL or OpenAI's own; `anthropic/NAME` needs the messages format;
   any other name, with or without a slash, is taken as it is.
4. A key goes to one server only: the one that the user, not the workspace, chose; or to this machine.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from haltline.protocol.errors import ConfigurationProblem, UsageProblem
from haltline.protocol.utf8 import is_utf8

OPENAI_URL: Final = "https://api.openai.com/v1"
OPENAI_KEY: Final = "OPENAI_API_KEY"
EMBEDDED_URL: Final = "http://127.0.0.1"
"""Stands for the embedded gateway until the supervisor knows its port."""
DEFAULT_SCENARIO: Final = "ok"


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    base_url: str
    key_variable: str | None = None
    embedded_gateway: bool = False


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A setting and who said it, in words for a message."""

    value: str
    by: str
    of_project: bool = False
    of_user_line: bool = False
    """True: an option; a mistake in it is a usage error, else a configuration error."""


def choose(
    model: Said | None, base_url: Said | None, key_variable: str | None, inject: Said | None, env: Mapping[str, str]
) -> ModelChoice:
    """Raises UsageProblem or ConfigurationProblem. An `inject` of the environment counts for the embedded
    gateway only."""
    if model is None:
        raise UsageProblem(
            "no model: give -m [PROVIDER/]NAME, set HALTLINE_MODEL, or put `model` into a configuration file; "
            "-m demo needs no key and no network"
        )
    _check_text(model)
    provider, slash, rest = model.value.partition("/")
    if provider == "demo":
        return _embedded(rest if slash else None, base_url, inject)
    if inject is not None and inject.of_user_line:
        raise UsageProblem("--inject works on the embedded gateway: give -m demo")
    if base_url is not None:
        url = checked_url(base_url)
        return ModelChoice(model=model.value, base_url=url, key_variable=_key(url, base_url, key_variable, env))
    if provider == "anthropic" and slash:
        raise UsageProblem(
            f"{model.by}: {model.value} needs the messages format, which is not available in this version; "
            "give --base-url of a server that speaks chat completions"
        )
    name = rest if provider == "openai" and slash else model.value
    if not name:
        raise UsageProblem(f"{model.by}: {model.value!r} names no model")
    by_env = env.get("OPENAI_BASE_URL")
    said = Said(value=by_env, by="OPENAI_BASE_URL") if by_env else Said(value=OPENAI_URL, by="the default")
    url = checked_url(said)
    key = _key(url, said, key_variable, env)
    if key is None and not by_env:
        raise ConfigurationProblem(
            f"{name} at {OPENAI_URL} needs a key: set {OPENAI_KEY}, or give --base-url of another server, or -m demo"
        )
    return ModelChoice(model=name, base_url=url, key_variable=key)


def _embedded(scenario: str | None, base_url: Said | None, inject: Said | None) -> ModelChoice:
    if base_url is not None and base_url.of_user_line:
        raise UsageProblem("--base-url does not go with -m demo, which brings a server of its own")
    if scenario == "":
        raise UsageProblem("-m demo/: no scenario after the slash; -m demo alone is `ok`")
    if inject is not None and inject.of_user_line and scenario not in (None, inject.value):
        raise UsageProblem(f"-m demo/{scenario} and --inject {inject.value} name two scenarios: give one")
    if inject is not None:
        _check_text(inject)
    name = scenario or (inject.value if inject is not None else DEFAULT_SCENARIO)
    return ModelChoice(model=name, base_url=EMBEDDED_URL, embedded_gateway=True)


def _check_text(said: Said) -> None:
    if not is_utf8(said.value):
        problem = UsageProblem if said.of_user_line else ConfigurationProblem
        raise problem(f"{said.by}: {said.value!a} is not valid UTF-8")


def checked_url(said: Said) -> str:
    """The URL without a slash at its end. Raises UsageProblem for an option, else ConfigurationProblem."""
    _check_text(said)
    problem = UsageProblem if said.of_user_line else ConfigurationProblem
    parts = _parts(said.value)
    if parts is None or any(character.isspace() for character in said.value):
        raise problem(f"{said.by}: {said.value!r} is no URL such as http://127.0.0.1:8080/v1")
    if parts.username is not None or parts.password is not None:
        raise problem(f"{said.by}: the URL holds a password; put it into {OPENAI_KEY} instead")
    if parts.query or parts.fragment:
        raise problem(f"{said.by}: {said.value!r} has a query or a fragment; a path is expected at its end")
    return said.value.rstrip("/")


def _parts(url: str) -> SplitResult | None:
    """None where it is no URL of a server."""
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 else None
    except ValueError:  # a port or an address that is none
        return None


def _key(url: str, said: Said, key_variable: str | None, env: Mapping[str, str]) -> str | None:
    """The variable whose value is sent along, None for none (rule 4)."""
    if key_variable is not None and not env.get(key_variable):
        raise ConfigurationProblem(f"key_variable: the variable {key_variable} is not set or empty")
    name = key_variable or (OPENAI_KEY if env.get(OPENAI_KEY) else None)
    if name is not None and said.of_project and not is_this_machine(url):
        raise ConfigurationProblem(
            f"{said.by}: base_url {url} was chosen by the workspace, and your key {name} would be sent there; "
            f"give --base-url {url} yourself if you trust it"
        )
    return name


def is_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
