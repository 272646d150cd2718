"""The clock of a run: when it goes, when it stands, and the deadlines that hang on it (I3). Pure.

It goes while a run works, and stands while a person is being waited for and during a stop.
"""

from haltline.supervisor import budget, deadlines
from haltline.supervisor.state import Draft


def start(d: Draft) -> None:
    """A run begins."""
    d.state.ledger = budget.new_run(d.state.ledger, d.now)
    arm(d)


def pause(d: Draft) -> None:
    d.state.ledger = budget.paused(d.state.ledger, d.now)
    d.state.deadlines = deadlines.without_kinds(d.state.deadlines, "seconds", "seconds_warning")


def resume(d: Draft) -> None:
    d.state.ledger = budget.resumed(d.state.ledger, d.now)
    arm(d)


def arm(d: Draft) -> None:
    """Sets the deadlines for the end of the time and for its warning; those that no limit asks for are not set."""
    state, settings = d.state, d.state.settings
    left = budget.seconds_left(state.ledger, settings.run_limits, settings.session_limits, d.now)
    warning = budget.seconds_to_warning(state.ledger, settings.run_limits, settings.session_limits, d.now)
    state.deadlines = deadlines.without_kinds(state.deadlines, "seconds", "seconds_warning")
    if warning is not None:
        state.deadlines = deadlines.with_deadline(state.deadlines, "seconds_warning", d.now + warning)
    if left is not None:
        state.deadlines = deadlines.with_deadline(state.deadlines, "seconds", d.now + left)
