"""The demo repository: a small library with one failing test, shipped as data of this package."""

import shutil
from pathlib import Path

REPOSITORY = Path(__file__).parent / "demo_repo"
PROMPT = "A test of this repository fails. Find out why and mend it."
BROKEN_FILE = "rooms/interval.py"


def copy_to(folder: Path | str) -> Path:
    """Write the demo repository into a folder, which is made if it is not there; returns its path.

    Raises FileExistsError where a file of the repository would be overwritten."""
    target = Path(folder)
    for source in sorted(REPOSITORY.rglob("*")):
        if source.is_dir() or "__pycache__" in source.parts:
            continue
        copied = target / source.relative_to(REPOSITORY)
        if copied.exists():
            raise FileExistsError(f"{copied} is there already; the demo repository needs an empty folder")
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copied)
    return target
