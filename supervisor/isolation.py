"""Which isolation a session really gets: from what its user wants and what the trial found. Pure."""

from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.kinds import Isolation, IsolationWish

NOT_TRIED = "it was not tried"
"""The refusal where nobody has found out."""


def without_namespaces(wish: IsolationWish) -> Isolation:
    """Where there was no trial."""
    return effective(wish, refusal=NOT_TRIED, costs="")


def by_marks(wish: IsolationWish) -> Isolation:
    """Where the kernel knows neither PID namespaces nor subreapers. Raises ConfigurationProblem for both."""
    if wish in ("pidns", "subreaper"):
        raise ConfigurationProblem(f"isolation {wish} is not usable here: it needs Linux; use auto or groups")
    return "groups"


def effective(wish: IsolationWish, *, refusal: str, costs: str) -> Isolation:
    """`refusal`: why a PID namespace cannot be had, "" where it can. `costs`: what would stop working in it, "" where
    nothing is known to. Raises ConfigurationProblem for `pidns` where it cannot be had."""
    match wish:
        case "auto":
            return "subreaper" if refusal or costs else "pidns"
        case "pidns" if refusal:
            raise ConfigurationProblem(
                f"isolation pidns is not usable here: {refusal}; use auto or subreaper, "
                "or have PID and user namespaces allowed (see /proc/sys/user, AppArmor, the container's settings)"
            )
        case "pidns" | "subreaper" | "groups":
            return wish
