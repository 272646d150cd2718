"""Which model of which server a session talks to, in which wire format. Pure.

1. `demo` and `demo/SCENARIO` are the embedded gateway; the scenario is the model name that the gateway sees.
2. Where the user named a server (`--base-url`, or `base_url` in a file), the whole text is that server's model
   name: routers have models that are called `openai/...`. The format is chat unless `api` says otherwise.
3. Else `openai/NAME` and `anthropic/NAME` are NAME at that provider; any other name, with or without a slash, is
   taken as it is, at Anthropic where `api` is messages and at OpenAI otherwise.
4. A provider is reached at its own address, or at what its variable says (OPENAI_BASE_URL). It has its own format at
   its own address; what stands behind another one speaks chat, unless it is Anthropic's.
5. `--api` counts everywhere; `api` in a file says how the server speaks that no provider's prefix names.
6. A key goes to one server only: the one that the user, not the workspace, chose; or to this machine. It is the key
   of whose format is spoken.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from haltline.protocol.errors import ConfigurationProblem, UsageProblem
from haltline.protocol.kinds import Api
from haltline.protocol.utf8 import is_utf8

EMBEDDED_URL: Final = "http://127.0.0.1"
"""Stands for the embedded gateway until the supervisor knows its port."""
DEFAULT_SCENARIO: Final = "ok"


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str
    url_variable: str
    key_variable: str
    own_api: Api
    """At its own address."""
    api_elsewhere: Api
    """At the address of its variable (rule 4)."""
    apis: tuple[Api, ...]


OPENAI: Final = Provider(
    name="OpenAI",
    url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    own_api="responses",
    api_elsewhere="chat",
    apis=("responses", "chat"),
)
ANTHROPIC: Final = Provider(
    name="Anthropic",
    url="https://api.anthropic.com",
    url_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
    own_api="messages",
    api_elsewhere="messages",
    apis=("messages",),
)
PROVIDERS: Final[Mapping[str, Provider]] = {"openai": OPENAI, "anthropic": ANTHROPIC}


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    api: Api
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

    def problem(self, words: str) -> UsageProblem | ConfigurationProblem:
        """To be raised, for a mistake in it."""
        return (UsageProblem if self.of_user_line else ConfigurationProblem)(f"{self.by}: {words}")


class SaidApi(msgspec.Struct, frozen=True, kw_only=True):
    """The same of `api`, which is no mistake in itself."""

    value: Api
    of_user_line: bool = False


def choose(
    model: Said | None,
    api: SaidApi | None,
    base_url: Said | None,
    key_variable: str | None,
    inject: Said | None,
    env: Mapping[str, str],
) -> ModelChoice:
    """Raises UsageProblem or ConfigurationProblem. An `inject` of the environment counts for the embedded
    gateway only."""
    if model is None:
        raise UsageProblem(
            "no model: give -m [PROVIDER/]NAME, set HALTLINE_MODEL, or put `model` into a configuration file; "
            "-m demo needs no key and no network"
        )
    _check_text(model)
    prefix, slash, rest = model.value.partition("/")
    if key_variable is not None and prefix != "demo" and not env.get(key_variable):
        raise ConfigurationProblem(f"key_variable: the variable {key_variable} is not set or empty")
    asked = api.value if api is not None and api.of_user_line else None
    if prefix == "demo":
        return _embedded(rest if slash else None, asked or "chat", base_url, inject)
    if inject is not None and inject.of_user_line:
        raise UsageProblem("--inject works on the embedded gateway: give -m demo")
    if base_url is not None:  # rule 2
        spoken = api.value if api is not None else "chat"
        url = checked_url(base_url, spoken)
        key = _key(url, base_url, key_variable or _default_key(spoken), env)
        return ModelChoice(model=model.value, api=spoken, base_url=url, key_variable=key)
    named = PROVIDERS.get(prefix) if slash else None
    if named is None and api is not None:  # rule 5
        asked = api.value
    provider = named or (ANTHROPIC if asked == "messages" else OPENAI)
    return _at_provider(rest if named else model.value, provider, asked, model, key_variable, env)


def _at_provider(
    name: str, provider: Provider, asked: Api | None, model: Said, key_variable: str | None, env: Mapping[str, str]
) -> ModelChoice:
    """Rules 3 and 4."""
    if not name:
        raise UsageProblem(f"{model.by}: {model.value!r} names no model")
    if asked is not None and asked not in provider.apis:
        raise UsageProblem(
            f"--api {asked}: {provider.name} speaks {' and '.join(provider.apis)}; "
            f"leave --api out, or give --base-url of a server that speaks {asked}"
        )
    by_env = env.get(provider.url_variable)
    said = Said(value=by_env, by=provider.url_variable) if by_env else Said(value=provider.url, by="the default")
    spoken = asked or (provider.api_elsewhere if by_env else provider.own_api)
    url = checked_url(said, spoken)
    key = _key(url, said, key_variable or provider.key_variable, env)
    if key is None and not by_env:
        other = ", -m anthropic/NAME for Anthropic's" if provider is OPENAI else ""
        raise ConfigurationProblem(
            f"{name} at {url} needs a key: set {provider.key_variable}{other}, or give --base-url of another server, "
            "or -m demo"
        )
    return ModelChoice(model=name, api=spoken, base_url=url, key_variable=key)


def _embedded(scenario: str | None, api: Api, base_url: Said | None, inject: Said | None) -> ModelChoice:
    if base_url is not None and base_url.of_user_line:
        raise UsageProblem("--base-url does not go with -m demo, which brings a server of its own")
    if scenario == "":
        raise UsageProblem("-m demo/: no scenario after the slash; -m demo alone is `ok`")
    if inject is not None and inject.of_user_line and scenario not in (None, inject.value):
        raise UsageProblem(f"-m demo/{scenario} and --inject {inject.value} name two scenarios: give one")
    if inject is not None:
        _check_text(inject)
    name = scenario or (inject.value if inject is not None else DEFAULT_SCENARIO)
    return ModelChoice(model=name, api=api, base_url=EMBEDDED_URL, embedded_gateway=True)


def _check_text(said: Said) -> None:
    if not is_utf8(said.value):
        raise said.problem(f"{said.value!a} is not valid UTF-8")


def checked_url(said: Said, api: Api) -> str:
    """The URL without a slash at its end. Raises UsageProblem for an option, else ConfigurationProblem."""
    _check_text(said)
    parts = _parts(said.value)
    if parts is None or any(character.isspace() for character in said.value):
        raise said.problem(
            f"{said.value!r} is no URL such as http://127.0.0.1:8080{'' if api == 'messages' else '/v1'}"
        )
    if parts.username is not None or parts.password is not None:
        raise said.problem(f"the URL holds a password; put it into {_default_key(api)} instead")
    if parts.query or parts.fragment:
        raise said.problem(f"{said.value!r} has a query or a fragment; a path is expected at its end")
    url = said.value.rstrip("/")
    if api == "messages" and parts.path.rstrip("/").endswith("/v1"):
        raise said.problem(f"{said.value!r} ends in /v1, which messages append themselves; give it without")
    return url


def _default_key(api: Api) -> str:
    """Rule 6."""
    return (ANTHROPIC if api == "messages" else OPENAI).key_variable


def _parts(url: str) -> SplitResult | None:
    """None where it is no URL of a server."""
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 else None
    except ValueError:  # a port or an address that is none
        return None


def _key(url: str, said: Said, variable: str, env: Mapping[str, str]) -> str | None:
    """The variable whose value is sent along, None where it is not set (rule 6)."""
    if not env.get(variable):
        return None
    if said.of_project and not is_this_machine(url):
        raise ConfigurationProblem(
            f"{said.by}: base_url {url} was chosen by the workspace, and your key {variable} would be sent there; "
            f"give --base-url {url} yourself if you trust it"
        )
    return variable


def is_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
