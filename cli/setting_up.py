"""What `run` and `chat` need before they open a session: settings, a view, an outlet."""

import os
from collections.abc import Mapping

from haltline.cli import config_file, session_settings, workspace
from haltline.cli.json_views import ResultView, StreamView
from haltline.cli.options import Output, SessionOptions
from haltline.cli.outlet import Outlet
from haltline.cli.pieces import View
from haltline.cli.session_settings import Decided
from haltline.cli.text_view import TextView
from haltline.protocol.endpoints import Places
from haltline.protocol.errors import UsageProblem

NARROW_COLUMNS = 80
"""Where the terminal does not know its width."""


def decide(options: SessionOptions, env: Mapping[str, str]) -> Decided:
    """Reads files and folders. Raises UsageProblem or ConfigurationProblem."""
    cwd = workspace.resolve(options.directory)
    user = config_file.load(Places(env, os.getuid()).config, of_project=False)
    project_path = config_file.nearest_project_file(cwd)
    project = (
        config_file.Source(of_project=True) if project_path is None else config_file.load(project_path, of_project=True)
    )
    decided = session_settings.decide(
        options, env=env, user=user, project=project, cwd=cwd, interactive=_is_terminal(0) and _is_terminal(2)
    )
    if decided.embedded_gateway:
        _check_scenario(decided.settings.model)
    return decided


def _check_scenario(name: str) -> None:
    from haltline.gateway.selection import UnknownScenario, select

    try:
        select(name, None)
    except UnknownScenario as problem:
        raise UsageProblem(f"-m demo: {problem}") from problem


def view(output: Output, env: Mapping[str, str]) -> View:
    match output:
        case "text":
            err_terminal = _is_terminal(2) and env.get("TERM") != "dumb"  # which knows no escape sequences
            colour = err_terminal and not env.get("NO_COLOR")
            return TextView(out_terminal=_is_terminal(1), err_terminal=err_terminal, colour=colour)
        case "json":
            return ResultView()
        case "stream-json":
            return StreamView()


def outlet() -> Outlet:
    return Outlet(same_screen=_is_one_place(1, 2), columns=_columns())


def _is_one_place(one: int, two: int) -> bool:
    """The same terminal, file or pipe stands behind both."""
    try:
        return os.path.sameopenfile(one, two)
    except OSError:  # one of them is closed
        return False


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns or NARROW_COLUMNS
    except OSError:
        return NARROW_COLUMNS
