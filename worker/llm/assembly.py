"""Tool calls, put together from the pieces of a chat stream, whatever index and id the server made up.

Theory of operation. Each piece may have an index, an id, a name and some argument text, and servers get each of them
wrong. A piece belongs to, first match:

1. the call with its id (R37: a known id wins over the index);
2. a new call, if its id is new and the call at its place already has an id (R37, "all index 0");
3. the last call opened at its index, or without an index (or with an unknown one) the call opened last (R36).

A piece with a name that falls on a call whose arguments are whole already, or that has another name, opens a new
call instead: servers without ids, and ids used twice. Servers that repeat the name in every piece, or once more in an
empty last one, are understood.

At the end a call with the same id, name and arguments as an earlier one is dropped: it is the same call, sent twice
(R43). One with the same id and other arguments is another call and loses the id. Argument texts are never split or
repaired (R38): what is no JSON object is refused later, with its raw text.
"""

import msgspec

from haltline.protocol.messages import CallDraft
from haltline.worker.llm.surrogates import mend


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One element of a delta's `tool_calls`. Absent, null and empty are the same: None or ""."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""


class _Draft:
    def __init__(self, piece: Piece) -> None:
        self.index = piece.index
        self.id = piece.id
        self.name = piece.name
        self.pieces = [piece.arguments]

    def add(self, piece: Piece) -> None:
        self.id = self.id or piece.id
        self.name = self.name or piece.name
        self.pieces.append(piece.arguments)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def is_closed_to(self, piece: Piece) -> bool:
        """True: a piece with this name begins a call of its own."""
        if not piece.name or not self.name:
            return False
        if piece.name != self.name:
            return True
        an_echo = bool(piece.id) and piece.index == self.index and not piece.arguments.strip()
        return not an_echo and is_whole(self.arguments)


def is_whole(arguments: str) -> bool:
    """True: a JSON object, from its first brace to its last."""
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        return isinstance(msgspec.json.decode(mend(arguments)), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


class Assembly:
    def __init__(self) -> None:
        self._drafts: list[_Draft] = []

    def __bool__(self) -> bool:
        return bool(self._drafts)

    def add(self, piece: Piece) -> None:
        draft = self._owner(piece)
        if draft is None or draft.is_closed_to(piece):
            self._drafts.append(_Draft(piece))
        else:
            draft.add(piece)

    def _owner(self, piece: Piece) -> _Draft | None:
        latest_first = self._drafts[::-1]
        if piece.id:
            for draft in latest_first:
                if draft.id == piece.id:
                    return draft
        place = next((draft for draft in latest_first if draft.index == piece.index), None)
        if place is None and not piece.name and not piece.id:
            place = next(iter(latest_first), None)
        if place is not None and piece.id and place.id:
            return None
        return place

    def calls(self, *, ended: bool, cut: bool) -> tuple[CallDraft, ...]:
        """In the order in which they were opened. `ended`: a positive end signal came, else no call is complete.
        `cut`: it ended by a limit or a filter, inside the last call."""
        calls: list[CallDraft] = []
        seen: dict[str, set[tuple[str, str]]] = {}
        for number, draft in enumerate(self._drafts, 1):
            arguments = mend(draft.arguments)
            none: set[tuple[str, str]] = set()
            twins = seen.setdefault(draft.id, none) if draft.id else none
            if (draft.name, arguments) in twins:
                continue
            calls.append(
                CallDraft(
                    name=draft.name,
                    arguments_raw=arguments,
                    provider_id=(draft.id or None) if not twins else None,
                    complete=ended and not (cut and number == len(self._drafts)),
                )
            )
            twins.add((draft.name, arguments))
        return tuple(calls)
