"""The folder that a session works in."""

import os

from haltline.protocol.errors import ConfigurationProblem, UsageProblem
from haltline.protocol.utf8 import is_utf8


def resolve(directory: str | None) -> str:
    """The absolute, real path of `directory` (None: the current folder). Raises ConfigurationProblem, or
    UsageProblem where it is empty: a variable that was not set, in most cases."""
    if directory == "":
        raise UsageProblem("-C: the name of a folder is expected, got an empty text")
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
