"""What tests of the pure core get: a driver that checks the invariants after every step."""

import pytest
from support.drive import Drive


@pytest.fixture
def drive() -> Drive:
    """A session in mode yolo, retry policy `interactive`, not opened yet."""
    return Drive()
