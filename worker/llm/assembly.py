"""Tool calls, put together from the pieces of a chat stream, whatever index and id the server made up.

Theory of operation. Each piece may have an index, an id, a name and some argument text, and servers get each of them
wrong. A piece belongs to, first match:

1. the call with its id (R37: a known id wins over the index);
2. a new call, if its id is new and the call at its place already has an id (R37, "all index 0");
3. the last call opened at its index, or without an index (or with an unknown one) the call opened last (R36).

A piece with a name that falls on a call whose arguments are whole already, or that has another name, opens a new
call instead: servers without ids, and ids used twice. Servers that repeat the name in every piece, or once more in an
empty last one, are understood.

At the end ids that were used twice are sorted out (drafts.py). Argument texts are never split or repaired (R38): what
is no JSON object is refused later, with its raw text.

The work is linear in the pieces: no piece looks at all calls or at all text that came before it (L5).
"""

import msgspec

from haltline.protocol.messages import CallDraft
from haltline.worker.llm.argument_text import ArgumentText
from haltline.worker.llm.drafts import Assembled, drafts


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One element of a delta's `tool_calls`. Absent, null and empty are the same: None or ""."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""


class _Draft:
    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments = ArgumentText()

    def add(self, piece: Piece) -> tuple[str, ...]:
        """What is kept of it."""
        id_ = "" if self.id else piece.id
        name = "" if self.name else piece.name
        self.id += id_
        self.name += name
        self.arguments.add(piece.arguments)
        return id_, name, piece.arguments

    def is_closed_to(self, piece: Piece) -> bool:
        """True: a piece with this name begins a call of its own."""
        if not piece.name or not self.name:
            return False
        if piece.name != self.name:
            return True
        an_echo = bool(piece.id) and piece.index == self.index and not piece.arguments.strip()
        return not an_echo and self.arguments.is_whole()


class Assembly:
    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._with_id: dict[str, _Draft] = {}
        """The last one opened, of each id; so is the next, of each index."""
        self._at: dict[int | None, _Draft] = {}

    def __len__(self) -> int:
        return len(self._drafts)

    def add(self, piece: Piece) -> tuple[str, ...]:
        """The texts that are kept of it: servers repeat ids and names, which are held once."""
        draft = self._owner(piece)
        if draft is None or draft.is_closed_to(piece):
            draft = self._at[piece.index] = _Draft(piece.index)
            self._drafts.append(draft)
        if piece.id and not draft.id:
            self._with_id[piece.id] = draft
        return draft.add(piece)

    def _owner(self, piece: Piece) -> _Draft | None:
        if piece.id and (draft := self._with_id.get(piece.id)) is not None:
            return draft
        place = self._at.get(piece.index)
        if place is None and not piece.name and not piece.id and self._drafts:
            place = self._drafts[-1]
        if place is not None and piece.id and place.id:
            return None
        return place

    def calls(self, *, ended: bool, cut: bool) -> tuple[CallDraft, ...]:
        """In the order in which they were opened. `ended`: a positive end signal came, else no call is complete.
        `cut`: it ended by a limit or a filter, inside the last call."""
        last = len(self._drafts)
        return drafts(
            Assembled(
                id=draft.id,
                name=draft.name,
                arguments=str(draft.arguments),
                complete=ended and not (cut and number == last),
            )
            for number, draft in enumerate(self._drafts, 1)
        )
