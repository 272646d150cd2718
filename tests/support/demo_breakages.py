"""The smallest changes that break a stop: what the demo's receipt has to notice. `check`: a part of the receipt;
`says`: a line of it that has to fail."""

from __future__ import annotations

from typing import Final

from support.breakages import Breakage

DEAF_TO_STOPS: Final = Breakage(
    "a live stream, stopped",
    "the LLM worker does nothing about a stop",
    "            self._spawn(self._stop(attempt, cancel))",
    "            return",
    "rung",
)
TREE_FORGOTTEN: Final = Breakage(
    "a tree of processes that does not want to die, stopped",
    "the tool worker says that it has ended the tree and has not",
    "ending = self._tree.end(cancel.grace_s, spare=lambda: self._background.not_before(cancel.generation))",
    'ending = asyncio.sleep(0, SweepResult(killed=0, survivors=(), rung="ack"))',
    "rung",
)
PATIENT: Final = Breakage(
    "a worker that does not answer, stopped",
    "a worker that does not answer is waited for too long",
    "ACK_S = 2.0",
    "ACK_S = 8.0",
    "nothing of the run was alive",
)
HASTY: Final = Breakage(
    "a tree of processes that does not want to die, stopped",
    "the client leaves at the first press, and waits for nothing",
    "meaning = _MEANINGS[min(self._count, len(_MEANINGS) - 1)]",
    'meaning: Meaning = "leave"',
    "survivors",
)
