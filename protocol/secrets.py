"""Which environment variables hold keys, and how they are taken out of a process's memory.

A key may be where the user put it (the client's environment), in the zygote, which forks the LLM workers, and in
the LLM workers. Nowhere else: in no message, no file, no other process of ours, no tool (J4).
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, MutableMapping

KEY_SUFFIX = "_API_KEY"
"""OPENAI_API_KEY, ANTHROPIC_API_KEY and all that follow their custom."""

_ENV_START, _ENV_END = 47, 48
"""Fields 50 and 51 of /proc/PID/stat, counted from the one after the name."""


def is_key(name: str) -> bool:
    return name.endswith(KEY_SUFFIX)


def forget(environ: MutableMapping[str, str], also: Collection[str] = ()) -> None:
    """Remove every key from `environ`, which may be os.environ; `also` names further variables."""
    for name in [name for name in environ if is_key(name) or name in also]:
        del environ[name]


def blank_block(also: Collection[str] = ()) -> None:
    """Zero the values of keys in the block that the kernel shows as /proc/PID/environ, for this process and its forks.

    os.environ, a copy made at the start, keeps them until `forget`. Does nothing where there is no /proc."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            line = stat.read()
    except FileNotFoundError:
        return
    fields = line[line.rfind(b")") + 2 :].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, equals, value = entry.partition(b"=")
        text = os.fsdecode(name)
        if equals and value and (is_key(text) or text in also):
            ctypes.memset(start + len(name) + 1, 0, len(value))
        start += len(entry) + 1
