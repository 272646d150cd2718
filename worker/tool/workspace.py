"""Where files may be touched without asking: below the workspace, symbolic links resolved (J1)."""

import os

import msgspec


class Outside(Exception):
    """The path leads out of the workspace and that was not approved."""

    def __init__(self, real: str) -> None:
        super().__init__(real)
        self.real = real
        """Where it leads, absolute, links resolved."""


class Nowhere(Exception):
    """The path names no place at all: it holds a NUL."""


class Place(msgspec.Struct, frozen=True):
    """One file or folder that a call may touch."""

    real: str
    """Absolute, links resolved; what is opened."""
    shown: str
    """As the model is told of it: relative to the workspace where it lies inside."""


class Workspace:
    """The folder in which a session works."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    def place(self, path: str, *, outside_allowed: bool) -> Place:
        """Raises Outside and Nowhere."""
        if "\0" in path:
            raise Nowhere
        real = os.path.realpath(os.path.join(self.root, _home(path)))
        inside = real == self.root or real.startswith(self.root.rstrip("/") + "/")
        if not inside and not outside_allowed:
            raise Outside(real)
        return Place(real=real, shown=os.path.relpath(real, self.root) if inside else real)


def _home(path: str) -> str:
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path
