"""constraints.txt says exactly what a checkout runs with, by name and version and nothing else."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

LINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+")


def test_each_line_is_one_name_and_one_version(root: Path) -> None:
    assert [line for line in pin_lines(root) if not LINE.fullmatch(line)] == []


def test_nothing_is_pinned_twice(root: Path) -> None:
    names = [canonical(line.partition("==")[0]) for line in pin_lines(root)]
    assert sorted(names) == sorted(set(names))


def test_what_this_venv_holds_is_what_is_pinned(root: Path) -> None:
    pins = {canonical(name): version for name, _, version in (line.partition("==") for line in pin_lines(root))}
    held = {canonical(one.metadata["Name"]): one.version for one in metadata.distributions()}
    held.pop("pip")  # it comes with Python and is only used to install
    assert {name: (version, pins.get(name)) for name, version in held.items() if pins.get(name) != version} == {}


def test_every_requirement_is_pinned_to_a_version_it_allows(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    asked = [Requirement(one) for one in (*project["dependencies"], *project["optional-dependencies"]["dev"])]
    pins = {canonical(name): version for name, _, version in (line.partition("==") for line in pin_lines(root))}
    assert [str(one) for one in asked if not one.specifier.contains(pins.get(canonical(one.name), "none"))] == []


def pin_lines(root: Path) -> list[str]:
    lines = (root / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def canonical(name: str) -> str:
    """Names are the same whatever their case and separators."""
    return re.sub(r"[-_.]+", "-", name).lower()
