"""Numbers of tokens as servers report them: once, in every event, or never, growing or not.

Each field is kept at its largest value within the attempt (D6, R61). A count that is no whole number of 0..MAX_COUNT is
none: it is ignored, and the others of its report hold.
"""

import msgspec

from haltline.worker.llm.json_text import whole_number

MAX_COUNT = 10**12
"""Tokens. Far above any window and any budget, and sums of it fit every number that they are sent in."""


class Largest:
    """Of one field, over all reports."""

    def __init__(self) -> None:
        self.value = 0
        self.seen = False

    def take(self, *reported: msgspec.Raw) -> None:
        """One report; several values are several names for the same."""
        for raw in reported:
            count = whole_number(raw)
            if count is not None and 0 <= count <= MAX_COUNT:
                self.seen = True
                self.value = max(self.value, count)
