"""A journal in memory that knows what is durable: an intent before its effect, a row before its line is shown."""

from collections import Counter

from haltline.protocol.errors import JournalFailed


class MemoryJournal:
    """supervisor/journal.py's Writable. It can be told to fail from some commit on, as a full disk does."""

    def __init__(self) -> None:
        self.durable_seq: dict[str, int] = {}
        """By session: the last row that is durable."""
        self.intents: Counter[tuple[str, str]] = Counter()
        """By session and name (`start_attempt`): those that are durable."""
        self.out_of_order: str | None = None
        self._gathered: list[tuple[str, int, str]] = []
        self.full_disk = False

    def append(self, session: str, seq: int, ts: str, kind: str, body: bytes) -> None:  # noqa: ARG002 as Writable
        self._gathered.append((session, seq, kind))

    def commit(self) -> None:
        if not self._gathered:
            return
        if self.full_disk:
            raise JournalFailed("the disk is full")
        for session, seq, kind in self._gathered:
            if seq <= self.durable_seq.get(session, 0):
                self.out_of_order = f"row {seq} of {session} follows row {self.durable_seq[session]}"
            self.durable_seq[session] = seq
            if kind.startswith("intent."):
                self.intents[session, kind.removeprefix("intent.")] += 1
        self._gathered.clear()

    def close(self) -> None:
        self.commit()
