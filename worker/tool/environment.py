"""The environment of tools: what the user has, without keys, and with nobody there to answer a prompt (J4, R07).

1. Keys leave os.environ in the first lines of the worker, so that neither it nor anything it starts has them.
2. The kernel shows a process's environment as it was at its exec, from the process's own memory; a fork keeps it.
   The values of keys are overwritten there too, or a tool that runs as root reads them in /proc.
"""

import ctypes
import os
from collections.abc import Iterable, Mapping

KEY_NAMES = frozenset({"OPENAI_API_KEY", "ANTHROPIC_API_KEY"})
KEY_SUFFIXES = ("_API_KEY",)

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


def is_key(name: str, more: Iterable[str] = ()) -> bool:
    """Whether the variable `name` holds a key of a model's provider."""
    return name in KEY_NAMES or name.endswith(KEY_SUFFIXES) or name in more


def forget_keys(more: Iterable[str] = ()) -> None:
    """Rules 1 and 2. `more`: names that are keys by configuration."""
    names = [name for name in os.environ if is_key(name, more)]
    for name in names:
        del os.environ[name]
    if names:
        _overwrite(names)


def of_tools(environment: Mapping[str, str]) -> dict[str, str]:
    """What a tool gets, from what the worker has."""
    result = {name: value for name, value in environment.items() if not is_key(name)}
    result.update(NOBODY_ANSWERS)
    if not any(result.get(name) for name in LOCALE_NAMES):
        result["LANG"] = "C.UTF-8"
    return result


def _overwrite(names: Iterable[str]) -> None:
    """Rule 2, where the kernel tells where the block lies; elsewhere others cannot read it either.

    Read from memory: the file that shows it is closed even to ourselves once we are not dumpable.
    """
    try:
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        start, end = int(fields[47]), int(fields[48])
    except (OSError, IndexError):
        return
    if not 0 < start < end:
        return
    prefixes = tuple(os.fsencode(name) + b"=" for name in names)
    offset = 0
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        if entry.startswith(prefixes):
            value = offset + entry.index(b"=") + 1
            ctypes.memset(start + value, ord("x"), offset + len(entry) - value)
        offset += len(entry) + 1
