"""The folder that a session works in."""

import os

from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.utf8 import is_utf8


def resolve(directory: str | None) -> str:
    """The absolute, real path of `directory` (None: the current folder). Raises ConfigurationProblem."""
    try:
        path = os.path.realpath(os.path.expanduser(directory) if directory is not None else os.getcwd(), strict=True)
    except OSError as error:
        shown = directory if directory is not None else "the current folder"
        raise ConfigurationProblem(f"workspace {shown}: {error.strerror}; give a folder with -C") from error
    if not is_utf8(path):
        raise ConfigurationProblem(f"workspace {path!a}: not valid UTF-8; rename it or give another with -C")
    if not os.path.isdir(path):
        raise ConfigurationProblem(f"workspace {path}: not a folder; give one with -C")
    if not os.access(path, os.R_OK | os.X_OK):
        raise ConfigurationProblem(f"workspace {path}: not readable for you; give another with -C")
    return path
