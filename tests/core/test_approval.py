"""What runs, what is asked about, what is refused (J1, J3)."""

import msgspec
import pytest

from haltline.protocol.kinds import ApprovalMode
from haltline.protocol.tools import TOOLS
from haltline.supervisor.approval import Ask, Deny, Grants, Run, decide, granted, is_outside

CWD = "/home/me/project"


def verdict(
    name: str,
    mode: ApprovalMode,
    *,
    path: str = "a",
    interactive: bool = True,
    allowed: tuple[str, ...] = (),
    grants: Grants | None = None,
) -> str:
    arguments = {"command": "make"} if name == "shell" else {"path": path}
    decision = decide(
        TOOLS[name],
        msgspec.json.encode(arguments),
        mode=mode,
        interactive=interactive,
        allowed_tools=allowed,
        grants=grants or Grants(),
        cwd=CWD,
    )
    match decision:
        case Run(outside_allowed=outside):
            return "run, outside too" if outside else "run"
        case Ask(question=question):
            return question
        case Deny(why=why):
            return f"denied: {why}"


@pytest.mark.parametrize(
    ("mode", "read", "edit", "shell"),
    [
        ("ask", "run", "Allow edit_file: a", "Allow shell: make"),
        ("auto-edit", "run", "run", "Allow shell: make"),
        ("yolo", "run, outside too", "run, outside too", "run, outside too"),
        ("plan", "run", "denied: plan", "denied: plan"),
    ],
)
def test_the_modes(mode: ApprovalMode, read: str, edit: str, shell: str) -> None:
    assert [verdict(name, mode) for name in ("read_file", "edit_file", "shell")] == [read, edit, shell]


@pytest.mark.parametrize("mode", ["ask", "auto-edit", "plan"])
def test_a_path_outside_is_asked_about_in_every_mode_but_yolo(mode: ApprovalMode) -> None:
    """J1."""
    assert verdict("read_file", mode, path="/etc/passwd") == "Allow read_file outside the workspace: /etc/passwd"
    assert verdict("read_file", mode, path="/etc/passwd", interactive=False) == "denied: nobody_outside"
    assert verdict("write_file", "yolo", path="/etc/passwd") == "run, outside too"


def test_a_link_that_was_seen_to_lead_outside_is_asked_about_with_where_it_leads() -> None:
    """J1: symlinks resolved, which only the tool worker can do."""

    def decided(*, interactive: bool, grants: Grants) -> Run | Ask | Deny:
        return decide(
            TOOLS["read_file"],
            b'{"path":"link/x"}',
            mode="ask",
            interactive=interactive,
            allowed_tools=("read_file",),
            grants=grants,
            cwd=CWD,
            leads_to="/etc/x",
        )

    assert decided(interactive=True, grants=Grants()) == Ask(
        question="Allow read_file outside the workspace: link/x, which leads to /etc/x", outside=True
    )
    assert decided(interactive=False, grants=Grants()) == Deny(why="nobody_outside")
    assert decided(interactive=True, grants=Grants(everything=True)) == Run(outside_allowed=True)


def test_allowed_and_granted_tools_are_not_asked_about_inside() -> None:
    assert verdict("shell", "ask", allowed=("shell",)) == "run"
    assert verdict("shell", "ask", grants=Grants(tools=("shell",))) == "run"
    assert verdict("write_file", "ask", path="../x", allowed=("write_file",)).startswith("Allow")
    assert verdict("write_file", "ask", path="../x", grants=Grants(everything=True)) == "run, outside too"


def test_plan_refuses_a_tool_that_was_allowed_before() -> None:
    assert verdict("shell", "plan", allowed=("shell",), grants=Grants(tools=("shell",))) == "denied: plan"


def test_with_nobody_there_a_question_is_a_refusal() -> None:
    assert verdict("shell", "ask", interactive=False) == "denied: nobody"


def test_a_long_command_is_shown_in_part() -> None:
    decision = decide(
        TOOLS["shell"],
        msgspec.json.encode({"command": "x" * 1000}),
        mode="ask",
        interactive=True,
        allowed_tools=(),
        grants=Grants(),
        cwd=CWD,
    )
    assert decision == Ask(question="Allow shell: " + "x" * 300 + "... (1000 characters)", outside=False)


@pytest.mark.parametrize(
    ("path", "outside"),
    [
        (".", False),
        ("a/b", False),
        ("a/../b", False),
        ("/home/me/project/a", False),
        ("/home/me/project", False),
        ("..", True),
        ("a/../../x", True),
        ("/home/me/project2/a", True),
        ("/", True),
        ("~", True),
        ("~/x", True),
        ("~x", False),
        ("a/~", False),
    ],
)
def test_whether_a_path_leads_outside(path: str, outside: bool) -> None:
    assert is_outside(path, CWD) is outside


def test_a_workspace_at_the_root_holds_everything() -> None:
    assert not is_outside("/etc", "/")


def test_what_is_remembered_of_an_answer() -> None:
    none = Grants()
    assert granted(none, "yes", "shell") == none
    assert granted(none, "no", "shell") == none
    assert granted(none, "always_tool", "shell") == Grants(tools=("shell",))
    assert granted(none, "always_all", "shell") == Grants(everything=True)
