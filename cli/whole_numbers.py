"""A whole number of a command line, refused in words."""

import click


class WholeNumber(click.ParamType[int]):
    """From `least` to `most`. The help shows N and no range: the words of a refusal name it."""

    name = "N"

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        if not self._least <= number <= self._most:
            self.fail(f"{number} is not between {self._least:,} and {self._most:,}.", param, ctx)
        return number
