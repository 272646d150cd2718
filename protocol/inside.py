"""Whether a process was started by a session (L4): a tool, or whatever it forked.

A tool command has the same user id as the user's terminal. What tells them apart is where they hang: the subreapers
keep whatever a tool starts below a process of ours, also when it forked twice. Such a process is known by its name,
which nobody else can give it and it cannot lose. Where there are neither subreapers nor names, a tool is known by its
cookie (marks.py) or hangs below the one who asks; one that has lost both passes for a stranger.
"""

from __future__ import annotations

import os

from haltline.protocol import linux, processes
from haltline.protocol.marks import COOKIE
from haltline.protocol.platforms import PORTABLE

WORDS = "a tool of a session may not control sessions; use a terminal of your own"
"""To whoever is."""


def is_inside(pid: int) -> bool:
    """Whether `pid` is a process of ours or below one, this supervisor's or another's. True also where its ancestors
    could not all be seen."""
    while pid > 1:
        process = processes.read_process(pid)
        if process is None or _is_ours(pid):
            return True
        pid = process.parent
    return pid == 1 and _is_ours(pid)  # whoever asks may be in the namespace of a tool worker


def _is_ours(pid: int) -> bool:
    if PORTABLE:
        return pid == os.getpid() or bool(processes.variable(pid, COOKIE))
    return linux.is_process_of_ours(pid)
