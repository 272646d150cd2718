"""The receipt: every figure of the demo, the bound that it is held to, and whether it holds. Pure."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

LATENESS: Final = 3
"""A busy machine lets a process wait: a time fails at this many times its bound. Over the bound it is marked."""

Mark = Literal["ok", "late", "FAIL"]


class Check(msgspec.Struct, frozen=True):
    """One line of the receipt. `mark`: ok and late hold."""

    what: str
    figure: str
    mark: Mark
    bound: str = ""

    @property
    def holds(self) -> bool:
        return self.mark != "FAIL"


class Part(msgspec.Struct, frozen=True):
    """What belongs to one thing that the demo did."""

    name: str
    checks: tuple[Check, ...]


def fact(what: str, figure: object, holds: bool) -> Check:
    """Something that is so or not."""
    return Check(what, str(figure), "ok" if holds else "FAIL")


def within(what: str, ms: float | None, bound_ms: float) -> Check:
    """A time. None: what was waited for never came."""
    bound = f"at most {bound_ms:g} ms"
    if ms is None:
        return Check(what, "never", "FAIL", bound)
    mark: Mark = "ok" if ms <= bound_ms else "late" if ms <= LATENESS * bound_ms else "FAIL"
    return Check(what, f"{ms:.1f} ms", mark, bound)


def receipt(parts: Sequence[Part]) -> str:
    """The last thing that is printed."""
    checks = [check for part in parts for check in part.checks]
    held = sum(check.holds for check in checks)
    what = max(len(check.what) for check in checks)
    figure = max(len(check.figure) for check in checks)
    lines = [f"receipt: {held}/{len(checks)} hold"]
    for part in parts:
        lines.append(part.name)
        lines += [
            f"  {check.mark:4}  {check.what:{what}}  {check.figure:{figure}}  {check.bound}".rstrip()
            for check in part.checks
        ]
    if any(check.bound for check in checks):
        lines.append(
            "Times are from the signal on, seen from outside: in the server's log, in /proc, in what the run prints.\n"
            f"One over its bound is late, and holds up to {LATENESS} times that: a busy machine lets a process wait."
        )
    return "\n".join(lines)
