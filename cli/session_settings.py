"""From options, environment and files to one SessionSettings. Pure: all three are handed in.

Order, the later wins: the user's config.toml, the workspace's `.haltline.toml`, HALTLINE_MODEL, options.
A `base_url` in a file wins over OPENAI_BASE_URL and ANTHROPIC_BASE_URL, which other programs set for themselves.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from haltline.cli.config_file import Source
from haltline.cli.model_choice import ModelChoice, Said, SaidApi, choose
from haltline.cli.options import SessionOptions, unavailable
from haltline.cli.version import VERSION
from haltline.protocol.errors import UsageProblem
from haltline.protocol.kinds import ApprovalMode
from haltline.protocol.settings import (
    DELTA_WINDOW_MS,
    INTERACTIVE,
    NO_LIMITS,
    PATIENT,
    STALLED_AFTER_S,
    Limits,
    RetryPolicy,
    SessionSettings,
    StreamLimits,
    ToolLimits,
)

T = TypeVar("T")

_RETRY: Final = {"interactive": INTERACTIVE, "patient": PATIENT}


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    settings: SessionSettings
    embedded_gateway: bool


def decide(
    options: SessionOptions, *, env: Mapping[str, str], user: Source, project: Source, cwd: str, interactive: bool
) -> Decided:
    """`cwd`: the resolved workspace. `interactive`: a person sits at a terminal.
    Raises UsageProblem or ConfigurationProblem."""
    unavailable(options)
    _refuse_contradictions(options)
    choice = _model(options, env, user, project)
    if options.max_budget_usd:
        raise UsageProblem(f"--max-budget-usd: no price is configured for {choice.model}, so no cost can be counted")
    allowed = options.allowed_tools or user.config.tools.allowed or ()
    ours, theirs = project.config, user.config
    settings = SessionSettings(
        model=choice.model,
        api=choice.api,
        base_url=choice.base_url,
        key_variable=choice.key_variable,
        cwd=cwd,
        approval_mode=_approval_mode(options, user, project),
        interactive=interactive,
        allowed_tools=allowed,
        retry=_retry(options, user, project, interactive=interactive),
        isolation=_or("auto", options.isolation, theirs.isolation),
        run_limits=_limits(options, user, project),
        session_limits=_session_limits(user, project),
        stream=_stream(options, user, project),
        tools=_tools(options, user, project),
        max_output_tokens=_or(None, ours.max_output_tokens, theirs.max_output_tokens),
        window_tokens=_or(0, ours.window_tokens, theirs.window_tokens),
        stalled_after_s=_or(STALLED_AFTER_S, ours.stalled_after_s, theirs.stalled_after_s),
        delta_window_ms=_or(DELTA_WINDOW_MS, ours.delta_window_ms, theirs.delta_window_ms),
        ephemeral=options.ephemeral,
        inject=choice.model if choice.embedded_gateway else "",
        version=VERSION,
    )
    return Decided(settings=settings, embedded_gateway=choice.embedded_gateway)


def _refuse_contradictions(options: SessionOptions) -> None:
    if options.as_json and options.output not in (None, "stream-json"):
        raise UsageProblem(f"--json means -o stream-json; -o {options.output} contradicts it")
    if options.yes and options.approval_mode not in (None, "yolo"):
        raise UsageProblem(f"-y means --approval-mode yolo; {options.approval_mode} contradicts it")


def _model(options: SessionOptions, env: Mapping[str, str], user: Source, project: Source) -> ModelChoice:
    return choose(
        _said("-m", options.model)
        or _said("HALTLINE_MODEL", env.get("HALTLINE_MODEL"), of_user_line=False)
        or _from_files(project, user, project.config.model, user.config.model),
        _api(options, user, project),
        _said("--base-url", options.base_url)
        or _from_files(project, user, project.config.base_url, user.config.base_url),
        user.config.key_variable,
        _said("--inject", options.inject) or _said("HALTLINE_INJECT", env.get("HALTLINE_INJECT"), of_user_line=False),
        env,
    )


def _said(by: str, value: str | None, *, of_user_line: bool = True) -> Said | None:
    if value is None or (not value and not of_user_line):
        return None
    return Said(value=value, by=by, of_user_line=of_user_line)


def _from_files(project: Source, user: Source, of_project: str | None, of_user: str | None) -> Said | None:
    if of_project is not None:
        return Said(value=of_project, by=project.path, of_project=True)
    return None if of_user is None else Said(value=of_user, by=user.path)


def _api(options: SessionOptions, user: Source, project: Source) -> SaidApi | None:
    if options.api is not None:
        return SaidApi(value=options.api, of_user_line=True)
    api = project.config.api or user.config.api
    return None if api is None else SaidApi(value=api)


def _approval_mode(options: SessionOptions, user: Source, project: Source) -> ApprovalMode:
    if options.yes:
        return "yolo"
    return options.approval_mode or project.config.approval_mode or user.config.approval_mode or "ask"


def _retry(options: SessionOptions, user: Source, project: Source, *, interactive: bool) -> RetryPolicy:
    """The named policy, and laid over it what the files say."""
    by_place = "interactive" if interactive else "patient"
    policy = _RETRY[options.retry or project.config.retry or user.config.retry or by_place]
    for table in (user.config.backoff, project.config.backoff):
        said = {name: value for name, value in msgspec.structs.asdict(table).items() if value is not None}
        policy = msgspec.structs.replace(policy, **said)
    return policy


def _session_limits(user: Source, project: Source) -> Limits:
    ours, theirs = project.config.session_limits, user.config.session_limits
    return Limits(
        turns=_or(NO_LIMITS.turns, ours.turns, theirs.turns),
        seconds=_or(NO_LIMITS.seconds, ours.seconds, theirs.seconds),
        tokens=_or(NO_LIMITS.tokens, ours.tokens, theirs.tokens),
    )


def _limits(options: SessionOptions, user: Source, project: Source) -> Limits:
    default = Limits()
    ours, theirs = project.config.limits, user.config.limits
    return Limits(
        turns=_or(default.turns, options.max_turns, ours.turns, theirs.turns),
        seconds=_or(default.seconds, options.timeout, ours.seconds, theirs.seconds),
        tokens=_or(default.tokens, options.max_tokens_total, ours.tokens, theirs.tokens),
    )


def _stream(options: SessionOptions, user: Source, project: Source) -> StreamLimits:
    default = StreamLimits()
    ours, theirs = project.config.timeouts, user.config.timeouts
    return StreamLimits(
        connect_s=_or(default.connect_s, options.connect_timeout, ours.connect, theirs.connect),
        first_event_s=_or(default.first_event_s, options.first_event_timeout, ours.first_event, theirs.first_event),
        silence_s=_or(default.silence_s, options.idle_timeout, ours.idle, theirs.idle),
        progress_s=_or(default.progress_s, options.progress_timeout, ours.progress, theirs.progress),
        whole_s=_or(default.whole_s, options.request_timeout, ours.request, theirs.request),
    )


def _tools(options: SessionOptions, user: Source, project: Source) -> ToolLimits:
    default = ToolLimits()
    ours, theirs = project.config.tools, user.config.tools
    timeout_s = _or(default.timeout_s, options.tool_timeout, ours.timeout, theirs.timeout)
    return ToolLimits(
        timeout_s=timeout_s,
        max_timeout_s=max(timeout_s, _or(default.max_timeout_s, ours.max_timeout, theirs.max_timeout)),
        output_bytes=_or(default.output_bytes, ours.output_bytes, theirs.output_bytes),
    )


def _or(default: T, *said: T | None) -> T:
    """The first that was said, else the default; 0 is a word like any other."""
    return next((value for value in said if value is not None), default)
