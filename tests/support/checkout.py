"""A copy of this checkout as a fresh clone would be: no .venv, no caches."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

ROOMS = ("cli", "gateway", "protocol", "supervisor", "worker")
"""Folders at the top that are installed as haltline.NAME."""

PRODUCT = (".types", "bin", *ROOMS, "constraints.txt", "pyproject.toml", "README.md")
"""All that is needed to set up, to run, and to build."""

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")


def copy(to: Path) -> Path:
    """Copies what the product needs; `to` must not exist. Returns it."""
    to.mkdir(parents=True)
    for name in PRODUCT:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, symlinks=True, ignore=_LEFT_OUT)
        else:
            shutil.copy2(source, to / name)
    return to


def room_files(root: Path) -> set[str]:
    """Every file of the rooms, relative to `root`, without what Python leaves behind."""
    return {
        str(path.relative_to(root))
        for room in ROOMS
        for path in (root / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
