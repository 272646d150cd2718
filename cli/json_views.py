"""The two outputs for programs: every event as it comes, or the result alone."""

from haltline.cli.pieces import Piece
from haltline.protocol.events import Result
from haltline.protocol.lines import Line, to_json


class StreamView:
    """`-o stream-json`: one line per event, nothing else."""

    def show(self, line: Line, now: float) -> tuple[Piece, ...]:  # noqa: ARG002
        return (Piece("out", to_json(line).decode() + "\n"),)

    def status(self, now: float) -> str | None:  # noqa: ARG002
        return None


class ResultView:
    """`-o json`: one line per run, its result."""

    def show(self, line: Line, now: float) -> tuple[Piece, ...]:  # noqa: ARG002
        if isinstance(line.event, Result):
            return (Piece("out", to_json(line).decode() + "\n"),)
        return ()

    def status(self, now: float) -> str | None:  # noqa: ARG002
        return None
