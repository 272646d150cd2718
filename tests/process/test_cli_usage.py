"""The command as a real process, where no run comes about: help, versions, and every way to be wrong (M1).

A user sees one line that says what, where and what to do; never a traceback.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import COMMAND

from haltline.cli.version import VERSION

Ended = subprocess.CompletedProcess[str]


def haltline(*arguments: str, stdin: str = "", env: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=30,
        check=False,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )


def complaint(ended: Ended) -> tuple[int, str]:
    """Exit code and the one line of stderr; nothing may stand on stdout."""
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.returncode, ended.stderr


def test_the_version() -> None:
    ended = haltline("--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"haltline {VERSION}\n", "")


@pytest.mark.parametrize("command", [(), ("run",), ("chat",), ("ps",), ("cancel",), ("kill",), ("gateway",), ("demo",)])
def test_help_is_there_for_every_command(command: tuple[str, ...]) -> None:
    ended = haltline(*command, "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Usage: haltline")


def test_the_help_offers_what_there_is() -> None:
    words = haltline("run", "--help").stdout
    assert ("[chat|responses|messages]" in words, "[auto|pidns|subreaper|groups]" in words) == (True, True)


def test_without_arguments_the_help_is_shown_as_it_is_written() -> None:
    ended = haltline()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, haltline("--help").stdout, "")
    assert "\n    haltline ps\n" in ended.stdout


def printed_to(fd: int, *arguments: str) -> tuple[int, str]:
    ended = subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=fd,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("ps", "--json"), ("run", "--help"), ("ps", "-h")])
def test_a_stdout_that_takes_nothing_is_no_bug(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        assert printed_to(full.fileno(), *arguments) == (
            78,
            "haltline: stdout cannot be written: No space left on device\n",
        )
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    assert printed_to(write_fd, *arguments) == (130, "")
    os.close(write_fd)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("rum",), "'rum'"),
        (("run", "--bad", "x"), "'--bad'"),
        (("run", "-m", "demo", "--timeout", "soon", "x"), "'--timeout'"),
        (("run", "-m", "demo", "--allowed-tools", "rm", "x"), "'--allowed-tools'"),
        (("run", "-m", "demo", "--max-turns", "9" * 23, "x"), "'--max-turns'"),
        (("run", "-m", "demo", "--max-tokens-total", "1000000000001", "x"), "'--max-tokens-total'"),
        (("run", "-m", "x\udcff", "--base-url", "http://127.0.0.1:1/v1", "x"), r"-m: 'x\udcff' is not valid UTF-8"),
        (("run", "-m", "x", "--base-url", "http://h/\udcff", "x"), r"--base-url: 'http://h/\udcff' is not valid UTF-8"),
        (("run", "-m", "demo", "--inject", "\udcff", "x"), r"--inject: '\udcff' is not valid UTF-8"),
        (
            ("run", "-m", "demo", "--api", "smoke", "x"),
            "Invalid value for '--api': 'smoke' is not one of 'chat', 'responses', 'messages'.",
        ),
        (
            ("run", "-m", "demo", "--isolation", "jail", "x"),
            "'jail' is not one of 'auto', 'pidns', 'subreaper', 'groups'.",
        ),
        (("run", "-m", "demo", "-c", "x"), "--continue is not available in this version"),
        (("run", "-m", "demo/none", "x"), "There is no scenario 'none'. Those that exist: ok, repair,"),
        (("run", "-m", "demo"), "the prompt is empty"),
        (("run", "x"), "no model: give -m"),
        (("run", "-m", "demo", "-C", "", "x"), "-C: the name of a folder is expected, got an empty text"),
        (("run", "-m"), "Option '-m' requires an argument. (see `haltline run --help`)"),
        (("run", "-m", "demo", "one", "two"), "unexpected extra argument"),
        (("chat", "-m", "demo", "word"), "unexpected extra argument"),
        (("ps", "word"), "unexpected extra argument"),
        (("cancel",), "name one session, or --all (see `haltline ps`)"),
        (("cancel", "9f3a21bc", "--all"), "name one session, or --all (see `haltline ps`)"),
        (("kill",), "name one session or worker, or --all (see `haltline ps`)"),
        (("kill", "--all", "--worker", "llm"), "--worker is for one session: name it"),
        (("kill", "9f3a21bc", "--worker", "both"), "'both' is not one of 'llm', 'tool'"),
        (("kill", "9f3a21bc"), "no session or worker '9f3a21bc'; nothing runs"),
        (("gateway", "--port", "99999"), "'--port'"),
    ],
)
def test_bad_usage_is_exit_2_and_one_line_that_names_it(arguments: tuple[str, ...], named: str) -> None:
    code, line = complaint(haltline(*arguments))
    assert code == 2
    assert named in line


def test_a_wrong_configuration_is_exit_78_and_names_file_and_key(home: Path, tmp_path: Path) -> None:
    (home / "config.toml").write_text("[limits]\nturn = 3\n")
    code, line = complaint(haltline("run", "-m", "demo", "x", cwd=tmp_path))
    assert (code, line) == (
        78,
        f"haltline: {home}/config.toml: limits.turn: unknown key, expected one of turns, seconds, tokens\n",
    )


def test_a_key_under_a_name_that_no_process_would_forget_is_refused(home: Path, tmp_path: Path) -> None:
    """J4: a tool's environment is cleaned of what ends in _API_KEY (protocol/secrets.py)."""
    (home / "config.toml").write_text("key_variable = 'MY_TOKEN'\n")
    code, line = complaint(haltline("run", "-m", "demo", "x", cwd=tmp_path, env={"MY_TOKEN": "k"}))
    assert code == 78
    assert line == (
        f"haltline: {home}/config.toml: key_variable: expected a name that ends in _API_KEY, by which every process "
        "knows what no tool may see, got 'MY_TOKEN'\n"
    )


def test_a_workspace_that_is_none_is_exit_78(tmp_path: Path) -> None:
    assert complaint(haltline("run", "-m", "demo", "-C", str(tmp_path / "none"), "x")) == (
        78,
        f"haltline: workspace {tmp_path / 'none'}: No such file or directory; give a folder with -C\n",
    )


def test_a_workspace_whose_path_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Its name could not be told to anybody: messages, events and the journal are UTF-8. The link's own name is."""
    folder = tmp_path / "ordner-\udcfc"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    words = "not valid UTF-8; rename it or give another with -C"
    refused = (78, f"haltline: workspace {str(folder)!a}: {words}\n")
    assert complaint(haltline("run", "-m", "demo", "-C", str(folder), "x")) == refused
    assert complaint(haltline("run", "-m", "demo", "-C", str(tmp_path / "link"), "x")) == refused
    assert complaint(haltline("run", "-m", "demo", "x", cwd=folder)) == refused


@pytest.mark.parametrize("command", [("run", "-m", "demo", "x"), ("ps",)])
def test_a_home_whose_path_is_not_utf8_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    home = f"{tmp_path}/h\udcff"
    words = f"{home + '/state'!a} is not valid UTF-8: set HALTLINE_HOME to another folder"
    assert complaint(haltline(*command, env={"HALTLINE_HOME": home})) == (78, f"haltline: {words}\n")


def test_a_prompt_that_is_not_utf8_is_repaired() -> None:
    ended = haltline("run", "-m", "demo", "--json", "gr\udcfcn")
    assert (ended.returncode, ended.stderr) == (0, "")
    said = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [event["text"] for event in said if event.get("role") == "user"] == ["gr\ufffdn"]


@pytest.mark.parametrize("refused", ["guard", "supervisor", "zygote"])
def test_a_system_that_has_no_room_for_a_process_is_named_and_nothing_is_left(home: Path, refused: str) -> None:
    """`ulimit -u`. Root has no such limit, so the n-th fork fails as the kernel would make it fail."""
    program = f"""
import os
left, fork = {("guard", "supervisor", "zygote").index(refused)}, os.fork
def fork_while_there_is_room():
    global left
    left -= 1
    if left < 0:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = fork_while_there_is_room
from haltline.cli.launcher import main
main()
"""
    command = [sys.executable, "-I", "-c", program, "run", "-m", "demo", "x"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    words = "the system refuses to start another process (see ulimit -u): Resource temporarily unavailable"
    assert complaint(ended) == (78, f"haltline: {words}\n")
    assert list((home / "run").iterdir()) == []
    assert not (home / "state" / "logs").exists()


def test_a_system_that_has_no_room_for_a_thread_is_named(tmp_path: Path) -> None:
    """ZeroMQ would end the process by SIGABRT. Root has no such limit, so this is nobody."""
    program = """
import os, resource, sys
from haltline.cli.lane import Lane
from haltline.protocol.endpoints import Endpoints
from haltline.protocol.errors import ConfigurationProblem
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    Lane(Endpoints(sys.argv[1]), b"token")
except ConfigurationProblem as problem:
    print(problem)
"""
    command = [sys.executable, "-I", "-c", program, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    words = "the system refuses to start another thread (see ulimit -u): can't start new thread\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, words, "")


def test_a_bug_of_ours_is_one_line_with_the_path_of_its_log(home: Path) -> None:
    (home / "run").mkdir(mode=0o700)
    broken = (
        "import haltline.cli.ps as ps; ps.Supervisors = lambda *_, **__: 1 / 0; "
        "from haltline.cli.launcher import main; main()"
    )
    command = [sys.executable, "-I", "-c", broken, "ps"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    code, line = complaint(ended)
    assert code == 1
    assert line.startswith("haltline: a bug of haltline's own (ZeroDivisionError: division by zero); please report it")
    log = Path(line.split()[-1])
    assert log.is_relative_to(home / "state" / "logs")
    assert "ZeroDivisionError" in log.read_text()


@pytest.mark.parametrize("variable", ["TMPDIR", "XDG_RUNTIME_DIR", "HALTLINE_HOME"])
def test_a_folder_that_cannot_be_made_is_told_with_the_variable_that_chose_it(
    monkeypatch: pytest.MonkeyPatch, home: Path, variable: str
) -> None:
    monkeypatch.delenv("HALTLINE_HOME")
    (home / "file").touch()
    code, line = complaint(haltline("run", "-m", "demo", "x", env={variable: str(home / "file")}))
    assert (code, f"; set {variable}" in line, "to a writable folder" in line) == (78, True, True), line


def test_a_state_folder_that_cannot_be_made_is_told_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.delenv("HALTLINE_HOME")
    (home / "file").touch()
    code, line = complaint(
        haltline("run", "-m", "demo", "x", env={"HOME": str(home / "file"), "XDG_RUNTIME_DIR": str(home)})
    )
    assert (code, line.endswith("; set HALTLINE_HOME or XDG_STATE_HOME to a writable folder\n")) == (78, True), line


def test_a_relative_home_is_one_place_for_every_process(home: Path) -> None:
    (home / "w").mkdir()
    ended = haltline("run", "-m", "demo", "-C", "w", "x", env={"HALTLINE_HOME": "h"}, cwd=home)
    assert ended.returncode == 0, ended.stderr
    assert sorted(path.name for path in home.iterdir()) == ["h", "w"]
    assert (home / "h" / "state" / "journal.db").exists()


def test_nothing_lives_where_nothing_was_started(home: Path) -> None:
    said = f"haltline ps: nothing runs (looked in {home}/run)\n"
    for arguments, stdout, stderr in ((("ps", "--json"), "[]\n", ""), (("ps", "-q"), "", ""), (("ps",), "", said)):
        ended = haltline(*arguments)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, stdout, stderr)


def test_the_folder_of_a_supervisor_that_is_gone_is_passed_over(home: Path) -> None:
    folder = home / "run" / "dead"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "door"))
    ended = haltline("ps", "--json")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[]\n", "")


def test_a_door_that_refuses_is_told_in_its_own_words(home: Path) -> None:
    """L4. It is no bug of ours, which exit 1 would mean."""
    folder = home / "run" / "one"
    folder.mkdir(parents=True)

    def answer(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"refused: a tool may not\n")

    ended = _with_door(folder, answer)
    assert (ended.returncode, ended.stdout, ended.stderr) == (77, "[]\n", "haltline ps: a tool may not\n")


@pytest.mark.parametrize("command", ["cancel", "kill"])
def test_nothing_to_stop_is_no_error(home: Path, command: str) -> None:
    ended = haltline(command, "--all")
    said = f"haltline {command}: nothing runs (looked in {home}/run)\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", said)


def test_a_supervisor_that_does_not_answer_is_named_and_holds_up_nobody(home: Path) -> None:
    folder = home / "run" / "one"
    folder.mkdir(parents=True)
    ended = _with_door(folder, None)
    assert (ended.returncode, ended.stdout) == (0, "[]\n")
    assert ended.stderr == f"haltline ps: no answer from the supervisor in {folder} within 2 s\n"


def _with_door(folder: Path, answer: Callable[[socket.socket], None] | None) -> Ended:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "door"))
        listener.listen()
        if answer is None:
            return haltline("ps", "--json")
        answering = threading.Thread(target=answer, args=(listener,))
        answering.start()
        ended = haltline("ps", "--json")
        answering.join(10)
        return ended


def test_the_gateway_serves_until_a_signal_ends_it() -> None:
    process = subprocess.Popen([*COMMAND, "gateway"], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


@pytest.mark.parametrize("command", [["ps", "--json"], ["cancel", "--all", "--json"], ["kill", "--all", "--json"]])
def test_a_second_terminal_loads_nothing_that_it_does_not_need(command: list[str]) -> None:
    """M1: it has to work while the machine is overloaded."""
    program = (
        f"import sys, json; from haltline.cli.main import cli; cli(None, {command!r}); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    said = subprocess.check_output([sys.executable, "-I", "-c", program], text=True, timeout=30)
    modules = json.loads(said.splitlines()[-1])
    unwanted = {"asyncio", "httpx", "rich", "psutil", "sqlite3", "ssl", "haltline.cli.client", "haltline.cli.options"}
    assert unwanted.isdisjoint(modules)
    assert {"click", "zmq", "msgspec"} <= set(modules)
