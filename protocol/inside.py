"""Whether a process was started by a session (L4): a tool, or whatever it forked.

A tool command has the same user id as the user's terminal. What tells them apart is where they hang: the subreapers
keep whatever a tool starts below a process of ours, also when it forked twice. Such a process is known by its name,
which nobody else can give it and it cannot lose.
"""

from __future__ import annotations

from haltline.protocol import linux, processes

WORDS = "a tool of a session may not control sessions; use a terminal of your own"
"""To whoever is."""


def is_inside(pid: int) -> bool:
    """Whether `pid` is a process of ours or below one, this supervisor's or another's. True also where its ancestors
    could not all be seen."""
    while pid > 1:
        process = processes.read_process(pid)
        if process is None or linux.is_process_of_ours(pid):
            return True
        pid = process.parent
    return False
