"""The written list of small mistakes: what `repair` undoes, and what a test uses to break a line.

The list is closed under inversion: if a line can be broken into another, the other can be mended into the first. So one
function serves both, and `repair` can find every break that `break_line` makes.

Mutations look at one line at a time, skip string literals and comments, and know no context; whether the result is
still Python is the caller's question (`is_python`). Kinds are listed from the likeliest to the rarest mistake, and
`mutations` returns them in that order.
"""

import ast
import itertools
import random
import re
from collections.abc import Collection, Iterator
from typing import Literal

import msgspec

Kind = Literal["boundary", "off by one", "equality", "logic", "sign", "negation", "constant", "direction"]


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """One token in place of another, in both directions."""

    kind: Kind
    one: str
    other: str


COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")

SWAPS: tuple[Swap, ...] = (
    Swap(kind="boundary", one="<", other="<="),
    Swap(kind="boundary", one=">", other=">="),
    Swap(kind="equality", one="==", other="!="),
    Swap(kind="logic", one="and", other="or"),
    Swap(kind="sign", one="+", other="-"),
    Swap(kind="sign", one="+=", other="-="),
    Swap(kind="constant", one="True", other="False"),
    *(Swap(kind="direction", one=one, other=other) for one, other in itertools.combinations(COMPARISONS, 2)),
)
"""Any comparison may become any other; the likely pairs have kinds of their own.

Beside these: an integer literal N becomes N + 1 or N - 1 (not below 0), and `not` comes or goes after the keywords of
NEGATABLE."""

NEGATABLE = ("if", "elif", "while")

KINDS: tuple[Kind, ...] = (
    "boundary",
    "off by one",
    "equality",
    "logic",
    "sign",
    "negation",
    "constant",
    "direction",
)

_TOKEN = re.compile(
    r"""(?P<comment>\#.*)
      | (?P<string>(?:\b[rbuf]{1,2})?(?:
            '{3}.*?(?:'{3}|$) | "{3}.*?(?:"{3}|$) | '(?:\\.|[^'\\])*(?:'|$) | "(?:\\.|[^"\\])*(?:"|$) ))
      | (?P<number>(?<![\w.])\d[\w.]*)
      | (?P<word>[^\W\d]\w*)
      | (?P<operator>\*\*=|//=|>>=|<<=|->|:=|==|!=|<=|>=|\+=|-=|\*=|/=|%=|&=|\|=|\^=|@=
            |\*\*|//|<<|>>|[-+*/%<>=&|^~@.,:;()\[\]{}])
    """,
    re.VERBOSE | re.IGNORECASE,
)


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """One line made into another."""

    kind: Kind
    description: str
    """What changed, such as "`<` to `<=`"."""
    line: str
    """The line after it."""


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a source text, broken."""

    line_no: int
    """From 1."""
    before: str
    after: str
    description: str
    text: str
    """The whole text with the broken line."""


def mutations(line: str) -> list[Mutation]:
    """Every mutation of one line of Python, likeliest kinds first. Lines keep their indentation and their end."""
    found = sorted(_all(line), key=lambda mutation: KINDS.index(mutation.kind))
    unique = {mutation.line: mutation for mutation in reversed(found)}
    return [mutation for mutation in found if unique.get(mutation.line) is mutation]


def break_line(source: str, seed: int, wanted_lines: Collection[int] | None = None) -> Break:
    """One mutation of one line of a module, chosen by the seed, such that the text is still Python.

    `wanted_lines`: line numbers from 1 to choose from; None: all. The inside of strings that span lines is left alone.
    Raises ValueError when there is nothing to break."""
    lines = source.split("\n")
    choices = [
        (number, mutation)
        for number in sorted(code_lines(source))
        if wanted_lines is None or number in wanted_lines
        for mutation in mutations(lines[number - 1])
        if is_python(_with_line(lines, number, mutation.line))
    ]
    if not choices:
        raise ValueError("no line here can be broken by a mutation of the list")
    number, chosen = random.Random(seed).choice(choices)
    return Break(
        line_no=number,
        before=lines[number - 1],
        after=chosen.line,
        description=chosen.description,
        text=_with_line(lines, number, chosen.line),
    )


def code_lines(source: str) -> frozenset[int]:
    """Numbers, from 1, of the lines that are not inside a string that spans lines. Raises SyntaxError."""
    inside: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        spans = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        )
        if spans and isinstance(node, ast.expr) and node.end_lineno is not None and node.end_lineno > node.lineno:
            inside.update(range(node.lineno, node.end_lineno + 1))
    return frozenset(range(1, source.count("\n") + 2)) - inside


def is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _with_line(lines: list[str], number: int, line: str) -> str:
    return "\n".join([*lines[: number - 1], line, *lines[number:]])


def _all(line: str) -> Iterator[Mutation]:
    tokens = list(_TOKEN.finditer(line))
    for position, token in enumerate(tokens):
        text = token[0]
        match token.lastgroup:
            case "number" if text.isascii() and text.isdigit():
                yield from _off_by_one(line, token)
            case "word" | "operator":
                for swap in SWAPS:
                    if text in (swap.one, swap.other):
                        other = swap.other if text == swap.one else swap.one
                        yield _replaced(line, token.start(), token.end(), other, swap.kind)
                if text in NEGATABLE:
                    following = tokens[position + 1] if position + 1 < len(tokens) else None
                    yield _negated(line, token, following)
            case _:
                pass


def _off_by_one(line: str, number: re.Match[str]) -> Iterator[Mutation]:
    value = int(number[0])
    if str(value) != number[0]:
        return
    for other in (value - 1, value + 1):
        if other >= 0:
            yield _replaced(line, number.start(), number.end(), str(other), "off by one")


def _negated(line: str, keyword: re.Match[str], following: re.Match[str] | None) -> Mutation:
    if following is not None and following[0] == "not":
        rest = line[following.end() :].lstrip(" ")
        return Mutation(
            kind="negation",
            description=f"`{keyword[0]} not` to `{keyword[0]}`",
            line=f"{line[: keyword.end()]} {rest}",
        )
    rest = line[keyword.end() :].lstrip(" ")
    return Mutation(
        kind="negation",
        description=f"`{keyword[0]}` to `{keyword[0]} not`",
        line=f"{line[: keyword.end()]} not {rest}",
    )


def _replaced(line: str, start: int, end: int, text: str, kind: Kind) -> Mutation:
    return Mutation(kind=kind, description=f"`{line[start:end]}` to `{text}`", line=line[:start] + text + line[end:])
