"""Pages that follow from the code are what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest


def test_generated_pages_are_current(root: Path) -> None:
    spec = importlib.util.spec_from_file_location("generate", root / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for name, page in generate.PAGES.items():
        assert (root / "docs" / name).read_text() == page(), f"run .venv/bin/python docs/generate.py ({name})"


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_what_a_page_names_exists(root: Path, page: str) -> None:
    text = (root / page).read_text()
    folder = (root / page).parent
    named = set(re.findall(r"`((?:protocol|supervisor|worker|gateway|cli|bin|tests|docs)/[\w./]*)`", text))
    linked = set(re.findall(r"\]\(([\w./-]+)\)", text))
    assert named or linked
    missing = {name for name in named if not (root / name).exists()} | {
        name for name in linked if not (folder / name).exists()
    }
    assert missing == set()
