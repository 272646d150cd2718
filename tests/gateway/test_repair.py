"""The scenario `repair`: a model that mends a failing test by what the tools really answer.

The harness here (support.minimal_agent) runs each call for real, in a folder. The model gets the messages and nothing
else: neither the seed of a break nor the folder.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from support import minimal_agent, scripted_gateway
from support.minimal_agent import TOOLS, Outcome, Said, Tools, drive

from haltline.gateway import demo
from haltline.gateway.conversation import Call, Message
from haltline.gateway.mutations import break_line

DATA = Path(__file__).parent / "data" / "texttable"
DEMO_TURNS = 12
"""The demo is mended within so many responses; 7 when this was written."""
MENDED_AT_LEAST = 0.8
"""Of the breaks that a test sees; all were mended when this was written."""
ENDLESS = frozenset(range(22, 25)) | frozenset(range(54, 65))
"""Lines of texttable.py whose break mostly makes an endless loop, for which each run of the tests would wait; they are
broken in test_an_endless_loop_is_found_and_ended."""


def suite_passes(folder: Path) -> bool | None:
    """None: it does not end."""
    for file in folder.rglob("*.pyc"):
        file.unlink()
    command = [sys.executable, "-B", "-m", "unittest", "discover"]
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=10)
    except subprocess.TimeoutExpired:
        return None
    return ended.returncode == 0


@pytest.fixture
def demo_folder(tmp_path: Path) -> Path:
    return demo.copy_to(tmp_path / "demo")


@pytest.fixture
def texttable(tmp_path: Path) -> Path:
    folder = tmp_path / "texttable"
    folder.mkdir()
    for file in DATA.glob("*.txt"):
        (folder / file.name.removesuffix(".txt")).write_text(file.read_text())
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.py")}


def test_the_demo_repository_fails_one_test_and_is_not_overwritten(demo_folder: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "discover"], cwd=demo_folder, capture_output=True, check=False
    )
    assert b"FAILED (errors=1)" in ended.stderr
    with pytest.raises(FileExistsError):
        demo.copy_to(demo_folder)


def test_the_demo_repository_is_mended(demo_folder: Path) -> None:
    before = contents(demo_folder)
    outcome = drive(demo_folder)
    assert outcome.mended, outcome.text
    assert suite_passes(demo_folder)
    assert outcome.turns <= DEMO_TURNS
    after = contents(demo_folder)
    assert [path for path in before if before[path] != after[path]] == [demo.BROKEN_FILE]


def test_no_file_goes_back_and_forth_on_the_way(demo_folder: Path) -> None:
    """H4: an honest search must not look like a see-saw. The right content may be visited once more at the end."""
    interval = demo_folder / "rooms/interval.py"
    interval.write_text(interval.read_text().replace("self.start <= other.end", "self.start < other.end"))
    calendar = demo_folder / "rooms/calendar.py"
    calendar.write_text(calendar.read_text().replace("OPENS = 8 * 60", "OPENS = 8 * 61"))
    outcome = drive(demo_folder)
    revisited = len(outcome.contents) - len(set(outcome.contents))
    assert outcome.mended, outcome.text
    assert revisited <= 1


def test_no_command_is_repeated(demo_folder: Path) -> None:
    """H1, H3: the same failing call again and again would be taken for a loop."""
    commands = drive(demo_folder).commands
    assert len(commands) == len(set(commands))


@pytest.mark.timeout(1_200)
def test_broken_lines_are_mended_or_honestly_given_up(
    texttable: Path, samples: Callable[[int, int, int], int], record_property: Callable[[str, object], None]
) -> None:
    """Seeds are taken from 0 upward; those whose break no test sees are passed over."""
    module = texttable / "texttable.py"
    whole = module.read_text()
    wanted = frozenset(range(1, whole.count("\n") + 1)) - ENDLESS
    mended: list[bool] = []
    seed = -1
    while len(mended) < samples(4, 20, 60):
        seed += 1
        module.write_text(break_line(whole, seed, wanted).text)
        if suite_passes(texttable) is not False:
            continue
        broken = contents(texttable)
        outcome = drive(texttable)
        mended.append(outcome.mended)
        if outcome.mended:
            assert suite_passes(texttable), (seed, outcome.text)
        else:
            assert outcome.text.startswith("I could not mend"), (seed, outcome.text)
            assert contents(texttable) == broken
    record_property("mended", f"{sum(mended)} of {len(mended)}")
    assert sum(mended) >= MENDED_AT_LEAST * len(mended), mended


@pytest.mark.ci
def test_an_endless_loop_is_found_and_ended(tmp_path: Path) -> None:
    """G5: the first run outlasts the tool's limit; the next one shows where it hangs."""
    (tmp_path / "countdown.py").write_text(
        "def countdown(left):\n    steps = 0\n    while left > 0:\n        left += 1\n        steps += 1\n"
        "    return steps\n"
    )
    (tmp_path / "test_countdown.py").write_text(
        "import unittest\nfrom countdown import countdown\n\n\nclass CountdownTest(unittest.TestCase):\n"
        "    def test_it_ends(self):\n        self.assertEqual(countdown(3), 3)\n"
    )
    outcome = drive(tmp_path, limit_s=4)
    assert outcome.mended, outcome.text
    assert "left -= 1" in (tmp_path / "countdown.py").read_text()
    assert any("faulthandler" in command for command in outcome.commands)


def test_nothing_is_edited_where_all_tests_pass(texttable: Path) -> None:
    before = contents(texttable)
    outcome = drive(texttable)
    assert outcome.text.startswith("Nothing to mend")
    assert contents(texttable) == before


def test_what_no_small_change_mends_is_given_up_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text("def add(a, b):\n    return a - b * 1\n")
    (tmp_path / "test_sums.py").write_text(
        "import unittest\nfrom sums import add\n\n\nclass SumTest(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 'five')\n"
    )
    before = contents(tmp_path)
    outcome = drive(tmp_path)
    assert outcome.text.startswith("I could not mend this.")
    assert contents(tmp_path) == before


def test_tests_for_pytest_are_run_with_pytest(tmp_path: Path) -> None:
    """python3 may have no pytest; then the model must say that it could not run the tests."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/ages.py").write_text("ADULT = 18\n\n\ndef is_adult(age):\n    return age > ADULT\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_ages.py").write_text(
        "import pytest\n\nfrom ages import is_adult\n\n\n@pytest.mark.parametrize('age', [18, 19])\n"
        "def test_adults(age):\n    assert is_adult(age)\n\n\ndef test_children():\n    assert not is_adult(17)\n"
    )
    outcome = drive(tmp_path)
    has_pytest = subprocess.run(["python3", "-c", "import pytest"], capture_output=True, check=False).returncode == 0
    assert outcome.mended == has_pytest, outcome.text
    assert outcome.mended or "cannot be run" in outcome.text


def test_a_refused_edit_leads_to_another_one(demo_folder: Path) -> None:
    """The right edit is refused; the model reads the file again and says the same change in another way."""
    right: list[str] = []

    def answer(tools: Tools, call: Call) -> str:
        if call.name == "edit_file" and "self.start < other.end" in call.arguments:
            right.append(call.arguments)
            if len(right) == 1:
                return "error: the file is locked. Nothing was changed."
        return tools.run(call)

    outcome = drive(demo_folder, answer=answer)
    assert outcome.mended, outcome.text
    assert len(set(right)) > 1


def test_a_trial_that_was_interrupted_is_tried_again(demo_folder: Path) -> None:
    """F8: the run was stopped in the middle of the right trial; the next prompt goes on from there."""
    right: list[str] = []

    def answer(tools: Tools, call: Call) -> str:
        if call.name == "shell" and 'line 48, <= to <"' in call.arguments:
            right.append(call.arguments)
            if len(right) == 1:
                return "error: not started, because the run was stopped before; nothing was changed."
        return tools.run(call)

    outcome = drive(demo_folder, answer=answer)
    assert outcome.mended, outcome.text
    assert len(right) == 2


def test_a_file_is_read_to_its_end(demo_folder: Path) -> None:
    """A result that says that more follows is followed."""
    asked: list[str] = []

    def answer(tools: Tools, call: Call) -> str:
        if call.name != "read_file":
            return tools.run(call)
        asked.append(call.arguments)
        return tools.run(
            Call(
                call_id=call.call_id, name=call.name, arguments=json.dumps({**json.loads(call.arguments), "limit": 30})
            )
        )

    outcome = drive(demo_folder, answer=answer)
    assert outcome.mended, outcome.text
    assert '{"path": "rooms/interval.py", "offset": 31}' in asked


@pytest.mark.parametrize("tool", ["shell", "edit_file", "read_file", "glob"])
def test_a_tool_that_is_always_denied_ends_in_an_honest_word(demo_folder: Path, tool: str) -> None:
    """J3: without a terminal every such call is denied and fed back."""

    def answer(tools: Tools, call: Call) -> str:
        return "[denied: nothing was changed]" if call.name == tool else tools.run(call)

    before = contents(demo_folder)
    outcome = drive(demo_folder, answer=answer)
    assert outcome.text.startswith("I could not mend this.")
    assert outcome.turns < 20
    assert contents(demo_folder) == before


def test_it_is_decided_from_the_messages_alone(demo_folder: Path) -> None:
    """The same messages lead to the same response, whenever and wherever they are sent."""
    messages = drive(demo_folder).messages
    for end, message in enumerate(messages):
        if message.role == "assistant":
            again = minimal_agent.in_process(messages[:end])
            assert (again.text, [(call.name, call.arguments) for call in again.calls]) == (
                message.text,
                [(call.name, call.arguments) for call in message.calls],
            )


def test_the_demo_is_mended_over_http(demo_folder: Path, tmp_path: Path) -> None:
    with (
        scripted_gateway.running(tmp_path) as gateway,
        httpx.Client(timeout=20, trust_env=False, headers={"x-session-id": "repair"}) as client,
    ):
        outcome: Outcome = drive(demo_folder, model=lambda messages: over_http(client, gateway.chat_url, messages))
    assert outcome.mended
    assert suite_passes(demo_folder)


def over_http(client: httpx.Client, url: str, messages: tuple[Message, ...]) -> Said:
    """One response of the real server, not streamed."""
    body = {
        "model": "demo/repair",
        "messages": [wire(message) for message in messages],
        "tools": [{"type": "function", "function": {"name": name}} for name in TOOLS],
    }
    message = client.post(url, json=body).raise_for_status().json()["choices"][0]["message"]
    calls = tuple(
        Call(call_id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
        for call in message.get("tool_calls", ())
    )
    return Said(message["content"] or "", calls)


def wire(message: Message) -> dict[str, object]:
    written: dict[str, object] = {"role": message.role, "content": message.text}
    if message.calls:
        written["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.call_id is not None:
        written["tool_call_id"] = message.call_id
    return json.loads(json.dumps(written))  # type: ignore[no-any-return]
