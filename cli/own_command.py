"""How one command of ours starts another: the same interpreter, the same files, whatever folder it runs in. And what a
person types for it."""

import os
import shutil
import sys

import haltline


def own_command(*arguments: str) -> list[str]:
    """The argument vector of `haltline ARGUMENTS`. Works from a checkout, where the rooms are no installed package."""
    start = (
        "import sys, types; "
        f"sys.path[:] = {sys.path!r}; "
        "package = types.ModuleType('haltline'); "
        f"package.__path__ = {list(haltline.__path__)!r}; "
        "sys.modules['haltline'] = package; "
        "sys.argv[0] = 'haltline'; "
        "from haltline.cli.launcher import main; main()"
    )
    return [sys.executable, "-I", "-S", "-c", start, *arguments]


def as_typed() -> str:
    """What a person types for `haltline` in this folder: of a checkout that is not on the PATH, its bin/haltline."""
    program = os.path.join(haltline.__path__[0], "bin", "haltline")
    if not os.access(program, os.X_OK):
        return "haltline"
    found = shutil.which("haltline")
    if found is not None and os.path.samefile(found, program):
        return "haltline"
    here = os.path.relpath(program)
    return program if here.startswith(os.pardir) else here
