"""Which isolation a session gets, by what its user wants and what the trial of a namespace found (decision 4)."""

import pytest

from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.kinds import Isolation, IsolationWish
from haltline.supervisor.isolation import effective, without_namespaces

NOT_ALLOWED = "making a user namespace: the system does not allow it"
NO_SSH = "ssh refuses to start in it: /etc/ssh/ssh_config.d/20.conf seems to belong to nobody"


@pytest.mark.parametrize(
    ("wish", "refusal", "costs", "isolation"),
    [
        ("auto", "", "", "pidns"),
        ("auto", NOT_ALLOWED, "", "subreaper"),
        ("auto", "", NO_SSH, "subreaper"),
        ("pidns", "", "", "pidns"),
        ("pidns", "", NO_SSH, "pidns"),
        ("subreaper", "", "", "subreaper"),
        ("groups", "", "", "groups"),
    ],
)
def test_a_session_gets(wish: IsolationWish, refusal: str, costs: str, isolation: Isolation) -> None:
    """`auto` takes no guarantee for a rare death at the price of `git push`; whoever asks for it by name does."""
    assert effective(wish, refusal=refusal, costs=costs) == isolation


def test_a_namespace_that_cannot_be_had_is_refused_with_the_reason_and_what_to_do() -> None:
    with pytest.raises(ConfigurationProblem, match=f"not usable here: {NOT_ALLOWED}; use auto or subreaper"):
        effective("pidns", refusal=NOT_ALLOWED, costs="")
    with pytest.raises(ConfigurationProblem, match="not usable here: it was not tried"):
        without_namespaces("pidns")
