"""How one command of ours starts another: the same interpreter, the same files, whatever folder it runs in."""

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
