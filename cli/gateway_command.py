"""`haltline gateway`: the scripted model server, for any agent that takes a base URL."""

from typing import Final

import click

from haltline.cli.whole_numbers import WholeNumber
from haltline.gateway import main, scenarios

_LONGEST_PORT: Final = 65535


def _gateway(*, port: int, scenario: str | None, log: str | None) -> int:
    return main.run(port, scenario, log)


def _list() -> str:
    """Every scenario with what it does, one a line."""
    width = max(map(len, scenarios.SCENARIOS))
    lines = (f"  {name:{width}}  {scenario.about}" for name, scenario in scenarios.SCENARIOS.items())
    return "\b\nScenarios:\n" + "\n".join(lines)


command = click.Command(
    "gateway",
    params=[
        click.Option(["--port"], type=WholeNumber(0, _LONGEST_PORT), default=0, help="Default: a free one."),
        click.Option(["--scenario"], metavar="NAME", help="For models that name none."),
        click.Option(["--log"], metavar="FILE", help="One JSON line per request, response, piece and disconnect."),
    ],
    callback=_gateway,
    help="Serve the scripted, fault-injecting model on 127.0.0.1 until Ctrl+C. The model's name picks the scenario.",
    epilog=_list(),
)
