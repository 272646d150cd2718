"""The options that `run` and `chat` share, and the one type in which they arrive.

Everything that interface.md names is known here; what this version cannot do is refused by name
(`unavailable`), never ignored.
"""

from typing import Final, Literal, get_args

import click
import msgspec

from haltline.cli import durations
from haltline.cli.config_tables import MOST
from haltline.cli.whole_numbers import WholeNumber
from haltline.protocol.errors import UsageProblem
from haltline.protocol.kinds import Api, ApprovalMode, IsolationWish
from haltline.protocol.tools import TOOLS

Output = Literal["text", "json", "stream-json"]
RetryName = Literal["interactive", "patient"]


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line said; None where it said nothing. Times are seconds."""

    model: str | None = None
    api: Api | None = None
    base_url: str | None = None
    directory: str | None = None
    output: Output | None = None
    as_json: bool = False
    approval_mode: ApprovalMode | None = None
    yes: bool = False
    allowed_tools: tuple[str, ...] = ()
    max_turns: int | None = None
    max_tokens_total: int | None = None
    timeout: float | None = None
    max_budget_usd: float | None = None
    tool_timeout: float | None = None
    connect_timeout: float | None = None
    first_event_timeout: float | None = None
    idle_timeout: float | None = None
    progress_timeout: float | None = None
    request_timeout: float | None = None
    retry: RetryName | None = None
    isolation: IsolationWish | None = None
    continue_last: bool = False
    resume: str | None = None
    ephemeral: bool = False
    inject: str | None = None

    @property
    def format(self) -> Output:
        if self.as_json:
            return "stream-json"
        return self.output or "text"


def unavailable(options: SessionOptions) -> None:
    """Raises UsageProblem for what interface.md promises and this version does not have yet."""
    absent = "is not available in this version"
    if options.continue_last:
        raise UsageProblem(f"--continue {absent}")
    if options.resume is not None:
        raise UsageProblem(f"--resume {absent}")


def _duration(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """A length of time above 0, in seconds."""
    seconds = _duration_or_none(_ctx, _param, text)
    if seconds == 0:
        raise click.BadParameter("0 would end it before it began; a length of time such as 90, 90s, 15m or 2h.")
    return seconds


def _duration_or_none(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """The same where 0 stands for `no limit`."""
    if text is None:
        return None
    seconds = durations.seconds(text)
    if seconds is None:
        raise click.BadParameter(f"{text!r} is not a length of time such as 90, 90s, 15m or 2h.")
    return seconds


def _tool_names(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.strip() for text in texts for name in text.split(",") if name.strip())
    for name in names:
        if name not in TOOLS:
            raise click.BadParameter(f"{name!r} is no tool; there are {', '.join(TOOLS)}.")
    return names


_COUNT: Final = WholeNumber(0, MOST)


def session_params() -> list[click.Parameter]:
    """A fresh list for one command."""
    return [
        click.Option(
            ["-m", "--model"], metavar="[PROVIDER/]NAME", help="The model. `demo` needs no key and no network."
        ),
        click.Option(["--api"], type=click.Choice(get_args(Api)), help="Wire format of the server."),
        click.Option(["--base-url"], metavar="URL", help="Server; /v1 included, but for messages."),
        click.Option(["-C", "--cd", "directory"], metavar="DIR", help="Workspace; default: the current folder."),
        click.Option(["-o", "--output"], type=click.Choice(get_args(Output)), help="What stdout carries."),
        click.Option(["--json", "as_json"], is_flag=True, help="Same as -o stream-json."),
        click.Option(["--approval-mode"], type=click.Choice(get_args(ApprovalMode)), help="What asks before it runs."),
        click.Option(["-y", "--yes"], is_flag=True, help="Same as --approval-mode yolo: nothing asks."),
        click.Option(
            ["--allowed-tools"], callback=_tool_names, multiple=True, metavar="NAME,...", help="Tools that never ask."
        ),
        click.Option(["--max-turns"], type=_COUNT, help="Model responses in one run; 0: no limit."),
        click.Option(["--max-tokens-total"], type=_COUNT, help="Tokens in one run; 0: no limit."),
        click.Option(
            ["--timeout"],
            callback=_duration_or_none,
            metavar="TIME",
            help="Active time of one run: 90, 15m, 2h; 0: none.",
        ),
        click.Option(["--max-budget-usd"], type=click.FloatRange(min=0), help="Needs configured prices."),
        _time("--tool-timeout", "Limit of one tool call."),
        _time("--connect-timeout", "Connecting to the server."),
        _time("--first-event-timeout", "Until the first model event."),
        _time("--idle-timeout", "Silence on the wire."),
        _time("--progress-timeout", "Without a model event."),
        _time("--request-timeout", "One whole request."),
        click.Option(["--retry"], type=click.Choice(get_args(RetryName)), help="How patiently requests are repeated."),
        click.Option(
            ["--isolation"],
            type=click.Choice(get_args(IsolationWish)),
            help="How what tools start is held; auto: the strongest that is usable.",
        ),
        click.Option(["-c", "--continue", "continue_last"], is_flag=True, hidden=True),
        click.Option(["-r", "--resume"], is_flag=False, flag_value="", hidden=True),
        click.Option(["--ephemeral"], is_flag=True, help="Keep nothing in the journal."),
        click.Option(["--inject"], metavar="FAULT", help="Scenario of the embedded server, with -m demo."),
    ]


def _time(name: str, words: str) -> click.Option:
    return click.Option([name], callback=_duration, metavar="TIME", help=words)
