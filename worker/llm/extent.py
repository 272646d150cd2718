"""How large one answer may be, whatever it is made of."""

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Text, reasoning, refusal and calls of one answer, in UTF-8: as much as one event (D5, L5). Each process that it
passes through holds it, some more than once, and none may grow beyond 200 MiB (G6). Real answers are below 1 MiB."""

MAX_CALLS = 512
"""In one answer. Real ones have a few; each becomes an event, a task and a message of the next request."""

BLOCK_BYTES = 256
"""What a block of reasoning costs beside its text, so that empty ones without number are too much, too."""


class Extent:
    """Of one answer, as it grows."""

    def __init__(self) -> None:
        self._bytes = 0
        self._calls = 0

    def add(self, text: str) -> None:
        self._bytes += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))

    def block(self) -> None:
        """One more block is kept."""
        self._bytes += BLOCK_BYTES

    def calls(self, number: int) -> None:
        """So many are open by now."""
        self._calls = number

    @property
    def excess(self) -> str | None:
        """What is too much, in words."""
        if self._bytes > MAX_ANSWER_BYTES:
            return f"the answer is longer than {MAX_ANSWER_BYTES // 1024**2} MiB"
        if self._calls > MAX_CALLS:
            return f"the answer has more than {MAX_CALLS} calls"
        return None
