"""Which settings a session gets from options, environment and files (interface.md: Commands, Environment and files)."""

from pathlib import Path

import click
import msgspec
import pytest

from haltline.cli import config_file, options, workspace
from haltline.cli.config_file import ConfigFile, Source
from haltline.cli.options import SessionOptions
from haltline.cli.session_settings import Decided, decide
from haltline.cli.version import VERSION
from haltline.protocol.errors import ConfigurationProblem, UsageProblem
from haltline.protocol.settings import (
    INTERACTIVE,
    PATIENT,
    Limits,
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


@pytest.mark.parametrize(
    ("given", "env", "model", "base_url", "key_variable"),
    [
        (SessionOptions(model="m"), KEY, "m", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        (SessionOptions(model="openai/m"), KEY, "m", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        (SessionOptions(model="m"), {"OPENAI_BASE_URL": "http://h:1/v1/"}, "m", "http://h:1/v1", None),
        (SessionOptions(model="meta/m"), {"OPENAI_BASE_URL": "http://h/v1"}, "meta/m", "http://h/v1", None),
        (SessionOptions(model="openai/m", base_url="http://h/v1"), KEY, "openai/m", "http://h/v1", "OPENAI_API_KEY"),
        (SessionOptions(model="m", base_url="http://h/v1"), {"OPENAI_BASE_URL": "http://x"}, "m", "http://h/v1", None),
    ],
)
def test_which_server_serves_which_model(
    given: SessionOptions, env: dict[str, str], model: str, base_url: str, key_variable: str | None
) -> None:
    settings = decided(given, env).settings
    assert (settings.model, settings.base_url, settings.key_variable) == (model, base_url, key_variable)


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


@pytest.mark.parametrize(
    ("given", "env", "words"),
    [
        (SessionOptions(), {}, "no model: give -m [PROVIDER/]NAME"),
        (SessionOptions(model="demo", api="messages"), {}, "--api messages is not available in this version"),
        (SessionOptions(model="demo", isolation="pidns"), {}, "--isolation pidns is not available"),
        (SessionOptions(model="demo", continue_last=True), {}, "--continue is not available"),
        (SessionOptions(model="demo", resume=""), {}, "--resume is not available"),
        (SessionOptions(model="demo", max_budget_usd=1.0), {}, "--max-budget-usd: no price is configured for ok"),
        (SessionOptions(model="demo", output="json", as_json=True), {}, "-o json contradicts it"),
        (SessionOptions(model="demo", approval_mode="plan", yes=True), {}, "plan contradicts it"),
        (SessionOptions(model="demo", base_url="http://h"), {}, "--base-url does not go with -m demo"),
        (SessionOptions(model="demo/"), {}, "no scenario after the slash"),
        (SessionOptions(model="demo/ok", inject="slow"), {}, "name two scenarios"),
        (SessionOptions(model="m", inject="slow"), KEY, "--inject works on the embedded gateway"),
        (SessionOptions(model="anthropic/m"), KEY, "needs the messages format"),
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
        (SessionOptions(model="m"), {}, None, "needs a key: set OPENAI_API_KEY"),
        (
            SessionOptions(model="m"),
            {"OPENAI_BASE_URL": "localhost:80"},
            None,
            "OPENAI_BASE_URL: 'localhost:80' is no URL",
        ),
        (SessionOptions(model="m"), KEY, ConfigFile(key_variable="OTHER"), "the variable OTHER is not set"),
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
        (b'key_variable = "HOME"', "key_variable: may only be set in your own config.toml"),
        (b'approval_mode = "yolo"', "approval_mode: yolo may only be set"),
        (b'[tools]\nallowed = ["shell"]', "tools.allowed: may only be set"),
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
        (b"[limits]\nturns = '1'", "c: limits.turns: expected int, got str"),
        (b"[limits]\nturns = -1", "c: limits.turns: expected int >= 0"),
        (b"[timeouts]\nidle = 0", "c: timeouts.idle: expected float > 0"),
        (b"retry = 'never'", "c: retry: expected one of interactive, patient"),
        (b"limits = 3", "c: limits: expected object, got int"),
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
        (("--max-turns", "-1"), "-1 is not in the range x>=0."),
        (("--api", "soap"), "'soap' is not one of"),
    ],
)
def test_a_wrong_value_names_its_option(arguments: tuple[str, str], words: str) -> None:
    with pytest.raises(click.UsageError) as problem:
        parsed(*arguments)
    message = problem.value.format_message()
    assert message.startswith(f"Invalid value for '{arguments[0]}': ")
    assert words in message
