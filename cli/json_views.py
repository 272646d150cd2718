"""The two outputs for programs: every event as it comes, or the result alone.

stderr stays empty, unless the result is a bug of ours: a person has to see where its log is."""

from haltline.cli.pieces import Piece, note
from haltline.cli.result_words import ending
from haltline.protocol import exits
from haltline.protocol.events import Result
from haltline.protocol.lines import Line, to_json


class StreamView:
    """`-o stream-json`: one line per event, nothing else."""

    def show(self, line: Line, now: float) -> tuple[Piece, ...]:  # noqa: ARG002
        return (_for_programs(line), *_for_a_person(line))

    def status(self, now: float) -> str | None:  # noqa: ARG002
        return None


class ResultView:
    """`-o json`: one line per run, its result."""

    def show(self, line: Line, now: float) -> tuple[Piece, ...]:  # noqa: ARG002
        if isinstance(line.event, Result):
            return (_for_programs(line), *_for_a_person(line))
        return ()

    def status(self, now: float) -> str | None:  # noqa: ARG002
        return None


def _for_programs(line: Line) -> Piece:
    return Piece("out", to_json(line).decode() + "\n")


def _for_a_person(line: Line) -> tuple[Piece, ...]:
    if not isinstance(line.event, Result) or line.event.exit_code != exits.BUG:
        return ()
    words = ending(line.event)
    return () if words is None else (note(words),)
