"""The environment of tools: what the user has, without keys, and with nobody there to answer a prompt (J4, R07).

What a key is, and how a process forgets it, is in protocol/secrets.py.
"""

import os
from collections.abc import Collection, Mapping

from haltline.protocol import secrets

NOBODY_ANSWERS: Mapping[str, str] = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "TERM": "dumb",
}
"""Programs that would ask a person, page, or draw on a terminal, and what stops them. `CI` is not among them: it
changes what build tools do, not only how they ask."""

LOCALE_NAMES = ("LC_ALL", "LC_CTYPE", "LANG")


def forget_keys(also: Collection[str] = ()) -> None:
    """This process and all that it starts have no key any more, nor does what the kernel shows of it: a tool that runs
    as root reads that. `also`: names that are keys by configuration."""
    secrets.blank_block(also)
    secrets.forget(os.environ, also)


def of_tools(environment: Mapping[str, str]) -> dict[str, str]:
    """What a tool gets, from what the worker has."""
    result = {name: value for name, value in environment.items() if not secrets.is_key(name)}
    result.update(NOBODY_ANSWERS)
    if not any(result.get(name) for name in LOCALE_NAMES):
        result["LANG"] = "C.UTF-8"
    return result
