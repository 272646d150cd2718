"""Which settings a session gets from options, environment and files (interface.md: Commands, Environment and files)."""

from pathlib import Path

import click
import msgspec
import pytest

from haltline.cli import config_file, options, workspace
from haltline.cli.config_file import Source
from haltline.cli.config_tables import ConfigFile
from haltline.cli.options import SessionOptions
from haltline.cli.session_settings import Decided, decide
from haltline.cli.version import VERSION
from haltline.protocol.errors import ConfigurationProblem, UsageProblem
from haltline.protocol.kinds import Api
from haltline.protocol.settings import (
    INTERACTIVE,
    PATIENT,
    Limits,
    RetryPolicy,
    SessionSettings,
    StreamLimits,
    ToolLimits,
)

NOTHING = Source()


def decided(
    given: SessionOptions,
    env: dict[str, str] | None = None,
    *,
    user: ConfigFile | None = None,
    project: ConfigFile | None = None,
    interactive: bool = False,
) -> Decided:
    return decide(
        given,
        env=env or {},
        user=NOTHING if user is None else Source(path="/u/config.toml", config=user),
        project=NOTHING if project is None else Source(path="/w/.haltline.toml", config=project, of_project=True),
        cwd="/w",
        interactive=interactive,
    )


def parsed(*arguments: str) -> SessionOptions:
    """What the command line's own parser makes of `arguments`."""
    seen: list[SessionOptions] = []

    def callback(**given: object) -> None:
        seen.append(msgspec.convert(given, SessionOptions))

    command = click.Command("run", params=options.session_params(), callback=callback)
    command.main(args=list(arguments), prog_name="run", standalone_mode=False)
    return seen[0]


def test_the_demo_model_needs_nothing_else() -> None:
    assert decided(SessionOptions(model="demo")) == Decided(
        settings=SessionSettings(model="ok", base_url="http://127.0.0.1", cwd="/w", version=VERSION, inject="ok"),
        embedded_gateway=True,
    )


@pytest.mark.parametrize(
    ("given", "env", "scenario"),
    [
        (SessionOptions(model="demo/slow"), {}, "slow"),
        (SessionOptions(model="demo", inject="truncated"), {}, "truncated"),
        (SessionOptions(model="demo"), {"HALTLINE_INJECT": "quota"}, "quota"),
        (SessionOptions(model="demo/slow"), {"HALTLINE_INJECT": "quota"}, "slow"),
        (SessionOptions(model="demo/slow", inject="slow"), {}, "slow"),
        (SessionOptions(), {"HALTLINE_MODEL": "demo/loop"}, "loop"),
        (SessionOptions(model="demo/slow"), {"HALTLINE_MODEL": "demo/loop", "OPENAI_API_KEY": "k"}, "slow"),
    ],
)
def test_the_scenario_of_the_demo_model(given: SessionOptions, env: dict[str, str], scenario: str) -> None:
    chosen = decided(given, env)
    assert (chosen.settings.model, chosen.settings.key_variable, chosen.embedded_gateway) == (scenario, None, True)


KEY = {"OPENAI_API_KEY": "k"}


OPENAI_KEY, ANTHROPIC_KEY = "OPENAI_API_KEY", "ANTHROPIC_API_KEY"
ALSO = {ANTHROPIC_KEY: "a"}
OWN = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com"
ELSEWHERE = {"OPENAI_BASE_URL": "http://h:1/v1/", "ANTHROPIC_BASE_URL": "http://h:2/"}


@pytest.mark.parametrize(
    ("given", "env", "model", "api", "base_url", "key_variable"),
    [
        (SessionOptions(model="m"), KEY, "m", "responses", OWN, OPENAI_KEY),
        (SessionOptions(model="m", api="chat"), KEY, "m", "chat", OWN, OPENAI_KEY),
        (SessionOptions(model="openai/m"), KEY | ALSO, "m", "responses", OWN, OPENAI_KEY),
        (SessionOptions(model="anthropic/m"), KEY | ALSO, "m", "messages", ANTHROPIC, ANTHROPIC_KEY),
        (SessionOptions(model="m", api="messages"), ALSO, "m", "messages", ANTHROPIC, ANTHROPIC_KEY),
        (SessionOptions(model="m"), ELSEWHERE, "m", "chat", "http://h:1/v1", None),
        (SessionOptions(model="meta/m"), ELSEWHERE, "meta/m", "chat", "http://h:1/v1", None),
        (SessionOptions(model="openai/m", api="responses"), ELSEWHERE, "m", "responses", "http://h:1/v1", None),
        (SessionOptions(model="anthropic/m"), ELSEWHERE | ALSO, "m", "messages", "http://h:2", ANTHROPIC_KEY),
        (SessionOptions(model="openai/m", base_url="http://h/v1"), KEY, "openai/m", "chat", "http://h/v1", OPENAI_KEY),
        (
            SessionOptions(model="anthropic/m", base_url="http://h/v1"),
            KEY | ALSO,
            "anthropic/m",
            "chat",
            "http://h/v1",
            OPENAI_KEY,
        ),
        (
            SessionOptions(model="m", api="responses", base_url="http://h/v1"),
            ALSO,
            "m",
            "responses",
            "http://h/v1",
            None,
        ),
        (
            SessionOptions(model="m", api="messages", base_url="http://h/x"),
            KEY | ALSO,
            "m",
            "messages",
            "http://h/x",
            ANTHROPIC_KEY,
        ),
        (SessionOptions(model="m", base_url="http://h/v1"), ELSEWHERE, "m", "chat", "http://h/v1", None),
        (SessionOptions(model="demo", api="messages"), KEY | ALSO, "ok", "messages", "http://127.0.0.1", None),
    ],
)
def test_which_server_serves_which_model_in_which_format(
    given: SessionOptions, env: dict[str, str], model: str, api: Api, base_url: str, key_variable: str | None
) -> None:
    """D1. By provider; chat where only a URL is known."""
    settings = decided(given, env).settings
    assert (settings.model, settings.api, settings.base_url, settings.key_variable) == (
        model,
        api,
        base_url,
        key_variable,
    )


@pytest.mark.parametrize(
    ("given", "config", "env", "api"),
    [
        (SessionOptions(model="m"), ConfigFile(api="messages", base_url="http://h"), {}, "messages"),
        (SessionOptions(model="m", api="chat"), ConfigFile(api="messages", base_url="http://h/v1"), {}, "chat"),
        (SessionOptions(model="m"), ConfigFile(api="messages"), ALSO, "messages"),
        (SessionOptions(model="m"), ConfigFile(api="chat"), KEY, "chat"),
        (SessionOptions(model="openai/m"), ConfigFile(api="messages"), KEY, "responses"),
        (SessionOptions(model="anthropic/m"), ConfigFile(api="chat"), ALSO, "messages"),
        (SessionOptions(model="demo"), ConfigFile(api="messages"), {}, "chat"),
    ],
)
def test_the_format_in_a_file_is_that_of_a_server_that_no_prefix_names(
    given: SessionOptions, config: ConfigFile, env: dict[str, str], api: Api
) -> None:
    assert decided(given, env, user=config).settings.api == api


def test_an_option_wins_over_the_workspace_which_wins_over_the_user() -> None:
    user = config_file.parse(
        b"""model = "demo/ok"
retry = "patient"
approval_mode = "yolo"
[limits]
turns = 1
tokens = 10
seconds = 60
[timeouts]
idle = 5
connect = 1.5
[tools]
allowed = ["shell"]
timeout = 900
""",
        "u",
    )
    project = config_file.parse(b'retry = "interactive"\n[limits]\nturns = 2\ntokens = 0\n', "p")
    settings = decided(SessionOptions(max_turns=3, idle_timeout=7.0), user=user, project=project).settings
    assert settings == SessionSettings(
        model="ok",
        inject="ok",
        base_url="http://127.0.0.1",
        cwd="/w",
        version=VERSION,
        approval_mode="yolo",
        allowed_tools=("shell",),
        retry=INTERACTIVE,
        run_limits=Limits(turns=3, seconds=60, tokens=0),
        stream=StreamLimits(silence_s=7.0, connect_s=1.5),
        tools=ToolLimits(timeout_s=900, max_timeout_s=900),
    )


def test_retries_are_patient_unless_a_person_waits() -> None:
    """C4, C5."""
    assert decided(SessionOptions(model="demo"), interactive=True).settings.retry == INTERACTIVE
    assert decided(SessionOptions(model="demo"), interactive=False).settings.retry == PATIENT
    assert decided(SessionOptions(model="demo", retry="patient"), interactive=True).settings.retry == PATIENT


def test_an_option_wins_over_the_users_file_in_what_isolation_is_wanted() -> None:
    """G2: what is got is the supervisor's to say."""
    user = config_file.parse(b'isolation = "pidns"', "u")
    assert decided(SessionOptions(model="demo")).settings.isolation == "auto"
    assert decided(SessionOptions(model="demo"), user=user).settings.isolation == "pidns"
    given = SessionOptions(model="demo", isolation="subreaper")
    assert decided(given, user=user).settings.isolation == "subreaper"


def test_every_number_of_the_settings_is_a_key_of_the_files() -> None:
    """C5: base, factor, jitter, cap and attempts are configuration fields; so is all else that protocol/settings.py
    has, but a cost, for which there is no price."""
    text = b"""model = "demo/ok"
retry = "interactive"
max_output_tokens = 1
stalled_after_s = 2
delta_window_ms = 0
limits = {turns = 3, seconds = 4, tokens = 5}
session_limits = {turns = 6, seconds = 7, tokens = 8}
timeouts = {connect = 9, first_event = 10, idle = 11, progress = 12, request = 13}
tools = {timeout = 14, max_timeout = 15, output_bytes = 1024}
[backoff]
base_ms = 16
factor = 17.5
cap_ms = 18
jitter = "added"
jitter_share = 0.5
attempts = 19
longest_wait_ms = 20
local_attempts = 21
run_retries = 22
"""
    whole = SessionSettings(
        model="ok",
        inject="ok",
        base_url="http://127.0.0.1",
        cwd="/w",
        version=VERSION,
        max_output_tokens=1,
        stalled_after_s=2,
        delta_window_ms=0,
        run_limits=Limits(turns=3, seconds=4, tokens=5),
        session_limits=Limits(turns=6, seconds=7, tokens=8),
        stream=StreamLimits(connect_s=9, first_event_s=10, silence_s=11, progress_s=12, whole_s=13),
        tools=ToolLimits(timeout_s=14, max_timeout_s=15, output_bytes=1024),
        retry=RetryPolicy(
            name="interactive", base_ms=16, factor=17.5, cap_ms=18, jitter="added", jitter_share=0.5, attempts=19,
            longest_wait_ms=20, local_attempts=21, run_retries=22,
        ),
    )  # fmt: skip
    assert decided(SessionOptions(), user=config_file.parse(text, "u")).settings == whole
    assert decided(SessionOptions(), project=config_file.parse(text, "p")).settings == whole


def test_a_backoff_is_laid_over_the_policy_that_is_named() -> None:
    """C5. The workspace's words lie on top of the user's."""
    user = config_file.parse(b"[backoff]\nbase_ms = 100\nattempts = 2\n", "u")
    project = config_file.parse(b"[backoff]\nattempts = 4\n", "p")
    settings = decided(SessionOptions(model="demo", retry="interactive"), user=user, project=project).settings
    assert settings.retry == msgspec.structs.replace(INTERACTIVE, base_ms=100, attempts=4)
    settings = decided(SessionOptions(model="demo", retry="patient"), user=user).settings
    assert settings.retry == msgspec.structs.replace(PATIENT, base_ms=100, attempts=2)


@pytest.mark.parametrize(
    ("given", "env", "words"),
    [
        (SessionOptions(), {}, "no model: give -m [PROVIDER/]NAME"),
        (SessionOptions(model="demo", continue_last=True), {}, "--continue is not available"),
        (SessionOptions(model="demo", resume=""), {}, "--resume is not available"),
        (SessionOptions(model="demo", max_budget_usd=1.0), {}, "--max-budget-usd: no price is configured for ok"),
        (SessionOptions(model="demo", output="json", as_json=True), {}, "-o json contradicts it"),
        (SessionOptions(model="demo", approval_mode="plan", yes=True), {}, "plan contradicts it"),
        (SessionOptions(model="demo", base_url="http://h"), {}, "--base-url does not go with -m demo"),
        (SessionOptions(model="demo/"), {}, "no scenario after the slash"),
        (SessionOptions(model="demo/ok", inject="slow"), {}, "name two scenarios"),
        (SessionOptions(model="m", inject="slow"), KEY, "--inject works on the embedded gateway"),
        (
            SessionOptions(model="anthropic/m", api="chat"),
            ALSO,
            "--api chat: Anthropic speaks messages; leave --api out",
        ),
        (SessionOptions(model="openai/m", api="messages"), KEY, "--api messages: OpenAI speaks responses and chat"),
        (SessionOptions(model="anthropic/"), ALSO, "names no model"),
        (SessionOptions(model="m", api="messages", base_url="http://h/v1/"), {}, "ends in /v1, which messages append"),
        (SessionOptions(model="m", api="messages", base_url="http://u:p@h"), {}, "put it into ANTHROPIC_API_KEY"),
        (SessionOptions(model="openai/"), KEY, "names no model"),
        (SessionOptions(model="m", base_url="ftp://h/v1"), {}, "--base-url: 'ftp://h/v1' is no URL"),
        (SessionOptions(model="m", base_url="http://h:99999/v1"), {}, "is no URL"),
        (SessionOptions(model="m", base_url="http://u:p@h/v1"), {}, "the URL holds a password"),
    ],
)
def test_a_command_line_that_cannot_be_is_refused_by_name(
    given: SessionOptions, env: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageProblem) as problem:
        decided(given, env)
    assert words in str(problem.value)


@pytest.mark.parametrize(
    ("given", "env", "user", "words"),
    [
        (SessionOptions(model="m"), ALSO, None, "needs a key: set OPENAI_API_KEY, -m anthropic/NAME for Anthropic's"),
        (
            SessionOptions(model="anthropic/m"),
            KEY,
            None,
            "m at https://api.anthropic.com needs a key: set ANTHROPIC_API_KEY",
        ),
        (
            SessionOptions(model="anthropic/m"),
            {"ANTHROPIC_BASE_URL": "http://h/v1"},
            None,
            "ANTHROPIC_BASE_URL: 'http://h/v1' ends in /v1",
        ),
        (
            SessionOptions(model="m"),
            {"OPENAI_BASE_URL": "localhost:80"},
            None,
            "OPENAI_BASE_URL: 'localhost:80' is no URL",
        ),
        (SessionOptions(model="m"), KEY, ConfigFile(key_variable="MY_API_KEY"), "the variable MY_API_KEY is not set"),
        (SessionOptions(model="m"), KEY, ConfigFile(base_url="h"), "/u/config.toml: 'h' is no URL"),
    ],
)
def test_a_configuration_that_cannot_be_says_where(
    given: SessionOptions, env: dict[str, str], user: ConfigFile | None, words: str
) -> None:
    with pytest.raises(ConfigurationProblem) as problem:
        decided(given, env, user=user)
    assert words in str(problem.value)


def test_a_workspace_cannot_have_the_key_sent_to_a_server_of_its_choice() -> None:
    """J4: a cloned repository is somebody else's text."""
    project = ConfigFile(base_url="https://evil.example/v1")
    with pytest.raises(ConfigurationProblem, match="your key OPENAI_API_KEY would be sent there"):
        decided(SessionOptions(model="m"), KEY, project=project)
    settings = decided(SessionOptions(model="m"), project=project).settings
    assert (settings.base_url, settings.key_variable) == ("https://evil.example/v1", None)
    local = ConfigFile(base_url="http://127.0.0.1:8080/v1")
    assert decided(SessionOptions(model="m"), KEY, project=local).settings.key_variable == "OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'key_variable = "MY_API_KEY"', "key_variable: may only be set in your own config.toml"),
        (b'approval_mode = "yolo"', "approval_mode: yolo may only be set"),
        (b'[tools]\nallowed = ["shell"]', "tools.allowed: may only be set"),
        (b'isolation = "groups"', "isolation: may only be set"),
    ],
)
def test_a_workspace_cannot_loosen_what_its_user_is_asked(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / ".haltline.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigurationProblem) as problem:
        config_file.load(str(path), of_project=True)
    assert str(problem.value).startswith(f"{path}: {words}")
    assert config_file.load(str(path), of_project=False).path == str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"modell = 'x'", "c: modell: unknown key, expected one of model, base_url, api, key_variable, retry, "),
        (b"[limits]\nturn = 1", "c: limits.turn: unknown key, expected one of turns, seconds, tokens"),
        (b"[limits]\nturns = '1'", "c: limits.turns: expected int, got '1'"),
        (b"[limits]\nturns = -1", "c: limits.turns: expected int >= 0, got -1"),
        (b"[limits]\ntokens = 99999999999999999999999", "c: limits.tokens: expected int <= 1000000000000, got 9999"),
        (b"[backoff]\nattempts = 1000000000001", "c: backoff.attempts: expected int <= 1000000000000, got 1000"),
        (b"max_output_tokens = 1000000000001", "c: max_output_tokens: expected int <= 1000000000000, got 1000"),
        (b"[limits]\nseconds = inf", "c: limits.seconds: expected a finite number, got inf"),
        (b"[session_limits]\nturn = 1", "c: session_limits.turn: unknown key, expected one of turns, seconds, tokens"),
        (b"[timeouts]\nidle = 0", "c: timeouts.idle: expected float > 0.0, got 0"),
        (b"[timeouts]\nidle = nan", "c: timeouts.idle: expected float > 0.0, got nan"),
        (b"[backoff]\nbase = 1", "c: backoff.base: unknown key, expected one of base_ms, factor, cap_ms, jitter, "),
        (b"[backoff]\nbase_ms = 0", "c: backoff.base_ms: expected float > 0.0, got 0"),
        (b"[backoff]\ncap_ms = inf", "c: backoff.cap_ms: expected float <= 86400000.0, got inf"),
        (b"[backoff]\nfactor = 0.5", "c: backoff.factor: expected float >= 1.0, got 0.5"),
        (b"[backoff]\njitter = 'full'", "c: backoff.jitter: expected one of equal, added, got 'full'"),
        (b"[backoff]\njitter_share = 2", "c: backoff.jitter_share: expected float <= 1.0, got 2"),
        (b"[backoff]\nattempts = 0", "c: backoff.attempts: expected int >= 1, got 0"),
        (b"delta_window_ms = -1", "c: delta_window_ms: expected float >= 0.0, got -1"),
        (b"key_variable = 'MY_TOKEN'", "c: key_variable: expected a name that ends in _API_KEY, by which "),
        (b"retry = 'never'", "c: retry: expected one of interactive, patient, got 'never'"),
        (b"limits = 3", "c: limits: expected object, got 3"),
        (b"[tools]\nallowed = ['shell', 1]", "c: tools.allowed[1]: expected str, got ['shell', 1]"),
        (b"[tools]\nallowed = ['rm']", "c: tools.allowed: 'rm' is no tool, expected shell, read_file"),
        (b"model = ", "c: not TOML: "),
        (b"\xff", "c: not UTF-8 at byte 0"),
    ],
)
def test_a_wrong_file_is_named_with_the_key_and_what_was_expected(text: bytes, words: str) -> None:
    with pytest.raises(ConfigurationProblem) as problem:
        config_file.parse(text, "c")
    assert str(problem.value).startswith(words)


def test_the_nearest_project_file_upward_of_the_workspace_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert config_file.nearest_project_file(str(inner)) is None
    (tmp_path / ".haltline.toml").write_text("")
    assert config_file.nearest_project_file(str(inner)) == str(tmp_path / ".haltline.toml")
    (tmp_path / "a" / ".haltline.toml").write_text("")
    assert config_file.nearest_project_file(str(inner)) == str(tmp_path / "a" / ".haltline.toml")


def test_the_workspace_has_to_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    assert workspace.resolve(str(tmp_path / "link")) == str(tmp_path.resolve())
    with pytest.raises(ConfigurationProblem, match="No such file or directory"):
        workspace.resolve(str(tmp_path / "none"))
    with pytest.raises(ConfigurationProblem, match="not a folder"):
        workspace.resolve(str(tmp_path / "file"))


def test_every_option_arrives_with_its_unit() -> None:
    assert parsed(
        "-m", "demo/ok", "-C", "/w", "--json", "-y", "--allowed-tools", "shell, glob", "--allowed-tools", "search",
        "--max-turns", "3", "--max-tokens-total", "0", "--timeout", "1.5h", "--tool-timeout", "90s",
        "--connect-timeout", "2", "--first-event-timeout", "2m", "--idle-timeout", "3", "--progress-timeout", "4",
        "--request-timeout", "5m", "--retry", "patient", "--isolation", "auto", "--ephemeral", "--inject", "slow",
        "--api", "chat", "--base-url", "http://h/v1",
    ) == SessionOptions(
        model="demo/ok", directory="/w", as_json=True, yes=True, allowed_tools=("shell", "glob", "search"),
        max_turns=3, max_tokens_total=0, timeout=5400.0, tool_timeout=90.0, connect_timeout=2.0,
        first_event_timeout=120.0, idle_timeout=3.0, progress_timeout=4.0, request_timeout=300.0, retry="patient",
        isolation="auto", ephemeral=True, inject="slow", api="chat", base_url="http://h/v1",
    )  # fmt: skip
    assert parsed() == SessionOptions()
    assert parsed("--timeout", "0").timeout == 0.0
    assert parsed("-r").resume == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--timeout", "soon"), "'soon' is not a length of time such as 90, 90s, 15m or 2h."),
        (("--idle-timeout", "0"), "0 would end it before it began"),
        (("--tool-timeout", "-3"), "'-3' is not a length of time"),
        (("--allowed-tools", "rm"), "'rm' is no tool; there are shell, read_file, write_file"),
        (("--max-turns", "-1"), "-1 is not between 0 and 1,000,000,000,000."),
        (("--max-turns", "x"), "'x' is not a whole number."),
        (("--api", "soap"), "'soap' is not one of 'chat', 'responses', 'messages'."),
    ],
)
def test_a_wrong_value_names_its_option(arguments: tuple[str, str], words: str) -> None:
    with pytest.raises(click.UsageError) as problem:
        parsed(*arguments)
    message = problem.value.format_message()
    assert message.startswith(f"Invalid value for '{arguments[0]}': ")
    assert words in message
