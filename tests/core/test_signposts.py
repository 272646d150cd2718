"""Links to supervisors elsewhere: where they may stand, what they may lead to, when they go (M1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from haltline.protocol import signposts
from haltline.protocol.endpoints import Places, usual

UID = os.getuid()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a supervisor, somewhere."""
    made = tmp_path / "elsewhere" / "00000001"
    made.mkdir(parents=True)
    return made


def test_a_link_stands_while_its_folder_does(tmp_path: Path, folder: Path) -> None:
    place = str(tmp_path / "haltline")
    signposts.put_up(str(folder), [place])
    link = f"{place}/00000001"
    assert (os.lstat(place).st_mode & 0o777, signposts.target(link, UID)) == (0o700, str(folder))
    signposts.take_down(str(folder), [place])
    assert os.listdir(place) == []


def test_a_place_that_is_open_to_others_or_leads_on_or_cannot_be_made_is_passed_over(
    tmp_path: Path, folder: Path
) -> None:
    opened, loop, good = tmp_path / "open", tmp_path / "loop", tmp_path / "good"
    opened.mkdir(mode=0o700)
    opened.chmod(0o777)
    good.mkdir(mode=0o700)
    loop.symlink_to(good)
    signposts.put_up(str(folder), [str(opened), str(loop), "/proc/none/haltline", str(good)])
    assert (os.listdir(opened), os.listdir(good)) == ([], ["00000001"])


def test_a_place_or_a_folder_of_somebody_else_is_none(tmp_path: Path, folder: Path) -> None:
    tmp_path.chmod(0o700)
    assert (signposts.is_private(str(tmp_path), UID), signposts.is_private(str(tmp_path), UID + 1)) == (True, False)
    link = tmp_path / "00000001"
    link.symlink_to(folder)
    assert signposts.target(str(link), UID + 1) is None


def test_a_link_that_leads_nowhere_is_removed_and_any_other_stays(tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    targets = {"gone": "/nowhere/at/all", "loop": str(tmp_path / "links" / "loop"), "file": str(file)}
    links = tmp_path / "links"
    links.mkdir()
    for name, leads_to in {**targets, "other": str(folder)}.items():
        (links / name).symlink_to(leads_to)
        assert signposts.target(str(links / name), UID) == (str(folder) if name == "other" else None)
    signposts.take_down(str(tmp_path / "another" / "other"), [str(links)])  # of that name, and not that folder
    assert sorted(os.listdir(links)) == ["file", "loop", "other"]


@pytest.mark.parametrize(
    ("environment", "needs"),
    [
        ({}, False),
        ({"TMPDIR": "/tmp"}, False),
        ({"XDG_RUNTIME_DIR": "/run/user/7"}, False),
        ({"TMPDIR": "/var/tmp"}, True),
        ({"XDG_RUNTIME_DIR": "/elsewhere"}, True),
        ({"HALTLINE_HOME": "/elsewhere"}, False),
    ],
)
def test_a_link_is_needed_where_the_users_number_does_not_say_enough(environment: dict[str, str], needs: bool) -> None:
    places = Places(environment, 7)
    assert places.needs_signpost() == needs
    assert needs or "HALTLINE_HOME" in environment or places.runtime in usual(7)
