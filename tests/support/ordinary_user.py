"""Runs a command as an ordinary user: `python ordinary_user.py COMMAND...`. The process becomes the command.

A test run of an ordinary user's is one already. One of root's becomes USER here. What that user has to read, the
checkout and its Python, may lie in a folder that is closed to it: in a mount namespace of its own, such a folder is
covered by an open one that holds the one thing it needs.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

USER = 1
"""`daemon`, which every system has. Not nobody: as his own files a user namespace shows those of all strangers."""
COMMAND = (sys.executable, "-I", "-B", __file__)
"""To be put before a command."""

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_OPEN_TO_ALL = 0o001


def main() -> None:
    if os.geteuid() == 0:
        become_user()
    os.execvp(sys.argv[1], sys.argv[1:])


def become_user() -> None:
    """Of root only, and for good."""
    needed = {Path(sys.base_prefix), Path(__file__).resolve().parent.parent.parent}
    closed = {path: folder for path in needed if (folder := _closed_folder(path)) is not None}
    if closed:
        _open(closed)
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)


def _closed_folder(path: Path) -> Path | None:
    """The first folder on the way to `path` that does not let everybody through."""
    on_the_way = [*reversed(path.parents), path]
    return next((folder for folder in on_the_way if not folder.stat().st_mode & _OPEN_TO_ALL), None)


def _open(closed: dict[Path, Path]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mount.argtypes = (*(ctypes.c_char_p,) * 3, ctypes.c_ulong, ctypes.c_char_p)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise SystemExit(f"an ordinary user may not read {', '.join(map(str, closed))}, and root may not mount")
    held = {path: os.open(path, os.O_PATH) for path in closed}
    _mount(libc, "none", "/", "", _MS_REC | _MS_PRIVATE, "")
    for folder in set(closed.values()):
        _mount(libc, "tmpfs", str(folder), "tmpfs", 0, "mode=0755")
    for path, descriptor in held.items():
        path.mkdir(parents=True, exist_ok=True)
        _mount(libc, f"/proc/self/fd/{descriptor}", str(path), "", _MS_BIND | _MS_REC, "")


def _mount(libc: ctypes.CDLL, source: str, target: str, kind: str, flags: int, options: str) -> None:
    if libc.mount(source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None) != 0:
        raise SystemExit(f"mounting {target}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
