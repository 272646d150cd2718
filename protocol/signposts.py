"""Links to supervisors whose runtime folder the environment has put where nobody would look for it (M1).

1. A terminal looks where its own environment and the user's number point. A supervisor that was started with another
   TMPDIR or XDG_RUNTIME_DIR has its sockets elsewhere, and closes its environment and descriptors to everybody. So a
   link of its name, which is random, stands in a folder that the user's number alone names (Places.usual).
2. Such a folder is used only if it is the user's own and closed to others: then no other user has put anything there.
   A tool, which has the same user id, may have: what a link leads to is looked at as carefully as any folder beside it.
3. A link goes with its folder, by whoever removes that; one that leads nowhere was left by processes which were all
   killed at once, and is removed by whoever meets it.
4. The first folder that takes a link has it. None does (a disk without inodes): such a supervisor is found only by a
   terminal with its environment, and runs all the same.

Standard library only: the launcher imports it before anything else.
"""

from __future__ import annotations

import contextlib
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def put_up(folder: str, usual: Iterable[str]) -> None:
    """Lead from the first of the `usual` folders that can have a link (rule 4) to `folder`, an absolute path."""
    for place in usual:
        with contextlib.suppress(OSError):
            if not os.path.lexists(place):
                os.mkdir(place, 0o700)
            if is_private(place, os.getuid()):
                os.symlink(folder, _link(place, folder))
                return


def take_down(folder: str, usual: Iterable[str]) -> None:
    """Rule 3: `folder` is gone, or going."""
    for place in usual:
        with contextlib.suppress(OSError):
            if os.readlink(_link(place, folder)) == folder:
                os.unlink(_link(place, folder))


def target(link: str, uid: int) -> str | None:
    """The folder that `link` leads to, if it is one of `uid`. One that leads nowhere is removed (rule 3)."""
    try:
        facts = os.stat(link)
        folder = os.readlink(link)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            os.unlink(link)
        return None
    except OSError:  # a link to itself, or into what may not be looked at
        return None
    return folder if stat.S_ISDIR(facts.st_mode) and facts.st_uid == uid and os.path.isabs(folder) else None


def is_private(folder: str, uid: int) -> bool:
    """Rule 2. Raises OSError where it cannot be looked at."""
    facts = os.lstat(folder)
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == uid and not facts.st_mode & 0o077


def _link(place: str, folder: str) -> str:
    return f"{place}/{os.path.basename(folder)}"
