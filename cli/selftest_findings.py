"""What a check of the self-test finds, and how it is said. Pure.

A line of a check that holds says what was expected, which is the same in every run: what was measured stays out of
it. One that does not hold says both, the expectation and what came.
"""

from collections.abc import Sequence
from itertools import groupby

import msgspec

Word = str | float | None
Value = Word | Sequence[Word | tuple[Word, ...]]
"""What two of are compared; int and bool are among the floats."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One expectation and whether it held."""

    what: str
    expected: str
    holds: bool
    came: str | None = None
    """Only where it does not hold."""
    shown: bool = True
    """False: too long, or too plain, for the line of a check that holds."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One of the eleven. Passed: it found something, and all of it held."""

    name: str
    passed: bool
    findings: tuple[Finding, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    v: int = 1
    passed: int
    of: int
    checks: tuple[Check, ...]


def same(what: str, expected: Value, came: Value, *, shown: bool = True) -> Finding:
    """`came` has to be what was expected, also in its type: 1 is not True."""
    holds = type(expected) is type(came) and expected == came
    return Finding(what=what, expected=_words(expected), holds=holds, came=None if holds else _words(came), shown=shown)


def within(what: str, least: float, most: float, came: float | None, unit: str) -> Finding:
    """`came` has to lie between the two, both included; None: there was no such thing."""
    holds = came is not None and least <= came <= most
    said = None if holds else "nothing" if came is None else f"{came:g}{unit}"
    return Finding(what=what, expected=f"{least:g}..{most:g}{unit}", holds=holds, came=said)


def at_least(what: str, least: float, came: float | None, unit: str) -> Finding:
    """As `within`, without an upper bound."""
    holds = came is not None and came >= least
    said = None if holds else "nothing" if came is None else f"{came:g}{unit}"
    return Finding(what=what, expected=f">= {least:g}{unit}", holds=holds, came=said)


def pieces(what: str, expected: Sequence[str], came: str | None) -> Finding:
    """The text has to be these pieces, each once and nothing else; said as their number."""
    holds = came == "".join(expected)
    return Finding(what=what, expected=str(len(expected)), holds=holds, came=None if holds else repr(came))


def says(what: str, words: Sequence[str], came: str | None) -> Finding:
    """The text has to hold all of these words."""
    missing = [word for word in words if came is None or word not in came]
    return Finding(
        what=what,
        expected=" and ".join(map(repr, words)),
        holds=not missing,
        came=repr(came) if missing else None,
        shown=False,
    )


def trouble(words: str) -> Finding:
    """The run could not be looked at."""
    return Finding(what="a run that ends by itself", expected="a result", holds=False, came=words)


def check(name: str, findings: Sequence[Finding]) -> Check:
    return Check(
        name=name, passed=bool(findings) and all(finding.holds for finding in findings), findings=tuple(findings)
    )


def report(checks: Sequence[Check]) -> Report:
    return Report(passed=sum(one.passed for one in checks), of=len(checks), checks=tuple(checks))


def line(one: Check, width: int) -> str:
    """The line of one check; `width`: of the longest name."""
    if one.passed:
        found = ", ".join(f"{finding.what} {finding.expected}" for finding in one.findings if finding.shown)
        return f"ok  {one.name:{width}}  {found}"
    broken = "; ".join(
        f"{finding.what}: expected {finding.expected}, came {finding.came}"
        for finding in one.findings
        if not finding.holds
    )
    return f"FAIL  {one.name:{width}}  {_on_one_line(broken) or 'nothing was found'}"


def _on_one_line(text: str) -> str:
    return text.replace("\n", "\\n")


def last_line(said: Report) -> str:
    return f"{said.passed}/{said.of} passed"


def _words(value: Value) -> str:
    """Words that stand several times in a row are counted; numbers are not, which would be numbers in numbers."""
    match value:
        case None:
            return "none"
        case str() | int():
            return str(value)
        case float():
            return f"{value:g}"
        case _:
            said: list[str] = []
            for one, same_ones in groupby(value):
                count = sum(1 for _ in same_ones)
                said += [f"{count}x {one}"] if count > 1 and isinstance(one, str) else [_words(one)] * count
            return " ".join(said) or "none"
