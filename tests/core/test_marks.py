"""What is decided of marks and platforms without looking at any process (docs/decisions/0005)."""

from __future__ import annotations

import pytest

from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.kinds import Isolation
from haltline.protocol.marks import carries, cookie, with_cookie
from haltline.protocol.platforms import is_portable
from haltline.protocol.processes import Identity
from haltline.supervisor import isolation


def test_a_cookie_names_its_chain_and_its_worker() -> None:
    mine = cookie("3f2a9c01", "tool-5e551040-1-00")
    assert carries(mine, mine)
    assert carries(mine, "3f2a9c01")
    assert carries(f"{cookie('b0b0b0b0', 'tool-1')} {mine}", "3f2a9c01")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("", "3f2a9c01"),
        ("3f2a9c0", "3f2a9c01"),
        ("3f2a9c012.tool-1", "3f2a9c01"),
        ("x3f2a9c01.tool-1", "3f2a9c01"),
        ("3f2a9c01.tool-10", "3f2a9c01.tool-1"),
        ("3f2a9c01.tool-2", "3f2a9c01.tool-1"),
    ],
)
def test_what_merely_looks_like_a_cookie_is_none_of_ours(value: str, wanted: str) -> None:
    assert not carries(value, wanted)


def test_a_chain_below_a_chain_adds_its_word_and_takes_none_away() -> None:
    outer, inner = cookie("aaaa", "tool-1"), cookie("bbbb", "tool-2")
    both = with_cookie(with_cookie("", outer), inner)
    assert both == "aaaa.tool-1 bbbb.tool-2"
    assert with_cookie(both, inner) == both
    assert all(carries(both, wanted) for wanted in ("aaaa", "bbbb", outer, inner))


def test_a_process_is_its_number_and_its_start() -> None:
    """G3."""
    assert Identity(7, 100) == Identity(7, 100)
    assert len({Identity(7, 100), Identity(7, 100), Identity(7, 101), Identity(8, 100)}) == 3
    assert Identity(7, 100) != (7, 100)


@pytest.mark.parametrize(
    ("platform", "forced", "portable"),
    [
        ("linux", None, False),
        ("linux", "", False),
        ("linux", "0", False),
        ("linux", "1", True),
        ("darwin", None, True),
        ("darwin", "0", True),
        ("freebsd14", None, True),
    ],
)
def test_what_a_platform_gets_is_decided_by_its_name_or_by_force(
    platform: str, forced: str | None, portable: bool
) -> None:
    assert is_portable(platform, forced) is portable


def test_without_linux_tools_are_held_by_marks_and_by_nothing_else() -> None:
    assert [isolation.by_marks(wish) for wish in ("auto", "groups")] == ["groups", "groups"]
    wishes: tuple[Isolation, ...] = ("pidns", "subreaper")
    for wish in wishes:
        with pytest.raises(ConfigurationProblem, match=f"isolation {wish} is not usable here: it needs Linux"):
            isolation.by_marks(wish)
