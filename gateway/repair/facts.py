"""What a Python file defines and mentions, from its text."""

import ast
from collections.abc import Iterator
from functools import lru_cache

import msgspec


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A function, a class, or a name that is assigned at the top of a module or class."""

    name: str
    qualified: str
    """`Class.method`; equal to `name` at the top of the module."""
    first: int
    last: int
    """Lines, from 1, both inclusive. Of a class only the head."""
    mentions: frozenset[str]
    """Names and attributes that occur in it; of a class its special methods, qualified, and its bases."""

    @property
    def is_special(self) -> bool:
        return self.name.startswith("__") and self.name.endswith("__")


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """`from MODULE import NAME` (or `import MODULE`, name "")."""

    level: int
    """Number of leading dots."""
    module: str
    name: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    definitions: tuple[Definition, ...]
    imports: tuple[Import, ...]


@lru_cache(maxsize=256)
def facts(source: str) -> Facts | None:
    """None: the text is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    return Facts(definitions=tuple(_definitions(tree.body, "")), imports=tuple(_imports(tree)))


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[Definition]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield _definition(node.name, prefix, node, _mentions(node))
            case ast.ClassDef():
                yield from _class(node, prefix)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        yield _definition(target.id, prefix, node, _mentions(node) - {target.id})
            case ast.If() | ast.Try() | ast.With():
                yield from _definitions(
                    [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)], prefix
                )
            case _:
                pass


def _class(node: ast.ClassDef, prefix: str) -> Iterator[Definition]:
    inner = f"{prefix}{node.name}."
    members = list(_definitions(node.body, inner))
    heads = frozenset[str]().union(*(_mentions(base) for base in [*node.bases, *node.decorator_list]))
    special = frozenset(member.qualified for member in members if member.is_special)
    last = max(node.lineno, node.body[0].lineno - 1)
    yield Definition(
        name=node.name, qualified=prefix + node.name, first=node.lineno, last=last, mentions=heads | special
    )
    yield from members


def _definition(name: str, prefix: str, node: ast.stmt, mentions: frozenset[str]) -> Definition:
    return Definition(
        name=name,
        qualified=prefix + name,
        first=node.lineno,
        last=node.end_lineno if node.end_lineno is not None else node.lineno,
        mentions=mentions,
    )


def _mentions(node: ast.AST) -> frozenset[str]:
    found: set[str] = set()
    for child in ast.walk(node):
        match child:
            case ast.Name():
                found.add(child.id)
            case ast.Attribute():
                found.add(child.attr)
            case _:
                pass
    return frozenset(found)


def _imports(tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(level=0, module=alias.name, name="")
            case ast.ImportFrom():
                for alias in node.names:
                    yield Import(level=node.level, module=node.module or "", name=alias.name)
            case _:
                pass
