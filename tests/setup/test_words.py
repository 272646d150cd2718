"""What a failed step of the set-up said becomes one line that tells the user what to do."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Explain = Callable[[str, int, str], str]


@pytest.fixture
def explain(root: Path, monkeypatch: pytest.MonkeyPatch) -> Explain:
    """From bin/setup.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("haltline_setup", root / "bin/setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    monkeypatch.setattr("signal.signal", leave_alone)  # it sets Ctrl+C for a process of its own
    spec.loader.exec_module(module)
    found: Explain = module.explain
    return found


def leave_alone(_number: int, _handler: object) -> None:
    """In place of signal.signal."""


NEVER_REACHED = """\
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by \
'NewConnectionError: Failed to establish a new connection: [Errno 111] Connection refused': /simple/pyzmq/
ERROR: Could not find a version that satisfies the requirement pyzmq==27.3.0 (from versions: none)
ERROR: No matching distribution found for pyzmq==27.3.0
"""

PIN_NOT_THERE = """\
ERROR: Cannot install pyzmq>=26 because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit a page
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (NEVER_REACHED, "pip could not get pyzmq==27.3.0; is the package index reachable? "),
        (PIN_NOT_THERE, "pip could not get pyzmq>=26; is the package index reachable? "),
        ("ERROR: Could not install packages: [Errno 28] No space left on device\n", "the disk is full; "),
        ("OSError: [Errno 122] Disk quota exceeded: 'x'\n", "the disk is full; "),
        ("  ERROR: Invalid requirement: 'a b'\nmore\n", "pip: Invalid requirement: 'a b' (all of it: "),
        ("one\nlast words\n\n", "pip: last words (all of it: "),
        ("", "pip: ended with status 9 (all of it: "),
    ],
)
def test_a_failed_step_is_one_line_with_its_cause(explain: Explain, output: str, line: str) -> None:
    said = explain("pip", 9, output)
    assert said.startswith(line)
    assert "\n" not in said


def test_a_password_in_an_address_is_not_repeated(explain: Explain) -> None:
    said = explain("pip", 1, "ERROR: no answer from https://me:secret@index.example/simple\n")
    assert "https://index.example/simple" in said
    assert "secret" not in said


def test_an_endless_message_is_cut(explain: Explain) -> None:
    assert len(explain("pip", 1, "ERROR: " + "x" * 10_000)) < 500
