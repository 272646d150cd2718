"""The core decides and touches nothing: its files, and all of ours that they import, use no clock, socket, process,
file or chance (design 5, style)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = (
    "active_time",
    "approval",
    "arguments",
    "attempt_ends",
    "budget",
    "calls",
    "cancelling",
    "compaction",
    "deadlines",
    "effects",
    "ends",
    "estimate",
    "failure_lines",
    "failures",
    "feedback",
    "folding",
    "history",
    "last_words",
    "overdue",
    "repeat",
    "requests",
    "response_calls",
    "retry",
    "seats",
    "sending",
    "session",
    "state",
    "stimuli",
    "stopping",
    "ways_back",
    "window",
)

FORBIDDEN_MODULES = frozenset(
    {
        "asyncio",
        "concurrent",
        "httpx",
        "multiprocessing",
        "os",
        "pathlib",
        "psutil",
        "random",
        "secrets",
        "select",
        "selectors",
        "signal",
        "socket",
        "sqlite3",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uuid",
        "zmq",
    }
)
FORBIDDEN_CALLS = frozenset({"now", "utcnow", "today", "open", "print", "input"})
"""`datetime.now` and its like, and what reaches the outside without an import."""


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported anywhere in the file, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def file_of(root: Path, module: str) -> Path | None:
    """The file of one of our modules, None for a package or a name inside a module."""
    parts = module.split(".")
    if parts[0] != "haltline" or len(parts) < 3:
        return None
    path = root.joinpath(*parts[1:]).with_suffix(".py")
    return path if path.exists() else None


def reached(root: Path) -> dict[str, ast.Module]:
    """The core and everything of ours that it imports, by module name."""
    found: dict[str, ast.Module] = {}
    waiting = [f"haltline.supervisor.{name}" for name in CORE]
    while waiting:
        module = waiting.pop()
        path = file_of(root, module)
        if path is None or module in found:
            continue
        found[module] = ast.parse(path.read_text())
        waiting += imports(found[module])
    return found


def test_no_file_of_the_core_or_below_imports_a_way_out(root: Path) -> None:
    ways_out = [
        (module, name)
        for module, tree in reached(root).items()
        for name in imports(tree)
        if name.split(".")[0] in FORBIDDEN_MODULES
    ]
    assert ways_out == []


def test_no_file_of_the_core_or_below_reads_a_clock_or_a_file(root: Path) -> None:
    calls = [
        (module, ast.unparse(node))
        for module, tree in reached(root).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS)
            or (isinstance(node.func, ast.Attribute) and node.func.attr in {"now", "utcnow", "today"})
        )
    ]
    assert calls == []


def test_the_core_never_imports_its_shell(root: Path) -> None:
    """The direction is one way: the shell imports the core."""
    below = {name for name in reached(root) if name.startswith("haltline.supervisor.")}
    helpers = {f"haltline.supervisor.{name}" for name in CORE}
    assert {name for name in below - helpers if not name.startswith("haltline.supervisor.failure_")} <= {
        "haltline.supervisor.retry_after"
    }


@pytest.mark.parametrize("name", CORE)
def test_every_file_of_the_core_is_there(root: Path, name: str) -> None:
    assert (root / "supervisor" / f"{name}.py").exists()
