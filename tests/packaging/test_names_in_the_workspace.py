"""An agent works in other people's repositories, whose files have the names of modules that we import: none of them is
ever imported by a process of ours, whether from the installed wheel or from the checkout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support import real_inputs
from support.command import COMMAND, Ended, Running
from support.real_inputs import calls, says

NAMES = (
    *("asyncio", "click", "dataclasses", "gateway", "haltline", "httpx", "msgspec", "protocol", "psutil", "re"),
    *("selectors", "signal", "sitecustomize", "socket", "supervisor", "typing", "usercustomize", "worker", "zmq"),
)
"""Of the standard library, of what we need, and of our rooms; Python itself looks for the two *customize."""

IMPORTED = "raise SystemExit('a file of the workspace was imported')\n"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """The workspace, which is the working directory of the command too."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(IMPORTED)
    return tmp_path


@pytest.fixture(params=["wheel", "checkout"])
def program(request: pytest.FixtureRequest) -> Sequence[str]:
    if request.param == "checkout":
        return COMMAND
    installed: Path = request.getfixturevalue("installed")
    return (str(installed / "haltline"),)


def run(program: Sequence[str], cwd: Path, *arguments: str) -> Ended:
    key = {"OPENAI_API_KEY": "any-key"}
    return Running(["run", "-y", "--json", *arguments, "hi"], cwd=cwd, command=program, extra=key).end()


def test_a_whole_run_imports_none_of_them(program: Sequence[str], hostile: Path) -> None:
    """Client, guard, supervisor, zygote, workers and the embedded model server."""
    ended = run(program, hostile, "-m", "demo/ok")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.text == "one two three four five six seven eight nine ten"


def test_no_tool_imports_one_of_them(program: Sequence[str], hostile: Path) -> None:
    """Also glob and search, which are programs that run in the workspace."""
    with real_inputs.serve() as mock:
        mock.script(
            calls("glob", pattern="work*.py"),
            calls("search", pattern="was imported", glob="protocol.py"),
            calls("read_file", path="dataclasses.py"),
            calls("write_file", path="new.py", content="x = 1\n"),
            calls("edit_file", path="new.py", old="1", new="2"),
            calls("shell", command="cat new.py"),
            says("done"),
        )
        ended = run(program, hostile, "-m", "any-model", "--base-url", mock.base_url("chat"))
    assert (ended.exit_code, ended.stderr, ended.text) == (0, "", "done")
    results = [str(event["text"]) for event in ended.of("tool_result") if event["ok"]]
    expected = ["worker.py", "protocol.py", "1\traise SystemExit", "new.py", "new.py", "x = 2\n[exit code 0]"]
    assert len(results) == len(expected), ended.of("tool_result")
    assert [piece for piece, result in zip(expected, results, strict=True) if piece not in result] == []
