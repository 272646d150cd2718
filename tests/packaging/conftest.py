"""The wheel, and an empty venv with it, both made once for all tests here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import checkout
from support.packages import pip


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build in: a build leaves folders in its source."""
    return checkout.copy(tmp_path_factory.mktemp("source") / "haltline")


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the setuptools of this venv; nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    pip("wheel", *options, "--wheel-dir", str(folder), str(source))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bin/ of an empty venv with the wheel in it, which sees the dependencies of this one but not its checkout."""
    venv = empty_venv(tmp_path_factory.mktemp("installed") / "venv")
    pip("--python", str(venv / "bin/python"), "install", "--no-deps", "--no-index", "--quiet", str(wheel))
    (site_packages,) = venv.glob("lib/python3*/site-packages")
    # A plain path in a .pth: the .pth files over there, ours among them, are not read.
    (site_packages / "dependencies.pth").write_text(f"{Path(pytest.__file__).parent.parent}\n")
    return venv / "bin"


@pytest.fixture(scope="session")
def installed_whole(
    wheel: Path, root: Path, environment_before: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """bin/ of an empty venv into which the wheel and all that it asks for were installed, as pipx and uv do it."""
    venv = empty_venv(tmp_path_factory.mktemp("whole") / "venv")
    pinned = ["--constraint", str(root / "constraints.txt")]
    command = ["--python", str(venv / "bin/python"), "install", "--quiet", *pinned, str(wheel)]
    pip(*command, environment=environment_before)
    return venv / "bin"


def empty_venv(folder: Path) -> Path:
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder
