"""Whether a call may run, must be asked about, or is refused (J1, J3). Pure.

Rules, first match
1. yolo, or "everything" answered before: it runs.
2. plan: whatever is not read-only is refused.
3. A path outside the workspace is asked about, in every mode and for every tool. Seen here in the text of the path;
   the tool worker resolves links and hands back what leads outside without having been allowed to (`leads_to`).
4. Read-only tools, tools of `allowed_tools`, tools that were allowed for the session: it runs.
5. auto-edit: tools that edit files of the workspace run.
6. Anything else is asked about; with nobody there to answer, it is refused.
"""

import posixpath
from typing import Literal, assert_never

import msgspec

from haltline.protocol.kinds import ApprovalAnswer, ApprovalMode
from haltline.protocol.tools import Tool

QUESTION_HEAD = 300
"""Characters of a command or path that a question shows."""


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered for the rest of the session."""

    tools: tuple[str, ...] = ()
    everything: bool = False


class Run(msgspec.Struct, frozen=True, kw_only=True):
    outside_allowed: bool = False


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    outside: bool


DenyReason = Literal["plan", "nobody", "nobody_outside"]
"""plan: the mode forbids changes. nobody: an answer is needed and nobody can give one; outside: about such a path."""


class Deny(msgspec.Struct, frozen=True, kw_only=True):
    why: DenyReason


class _Named(msgspec.Struct):
    """The arguments that a question shows or that name a place."""

    path: str | None = None
    command: str | None = None


def decide(
    tool: Tool,
    arguments: bytes,
    *,
    mode: ApprovalMode,
    interactive: bool,
    allowed_tools: tuple[str, ...],
    grants: Grants,
    cwd: str,
    leads_to: str | None = None,
) -> Run | Ask | Deny:
    """`arguments`: a JSON object that has passed the tool's schema. `leads_to`: the place outside to which the tool
    worker saw its path lead; None: it has not looked."""
    if mode == "yolo" or grants.everything:
        return Run(outside_allowed=True)
    if mode == "plan" and not tool.read_only:
        return Deny(why="plan")
    named = msgspec.json.decode(arguments, type=_Named)
    outside = leads_to is not None or (named.path is not None and is_outside(named.path, cwd))
    free = tool.read_only or tool.name in allowed_tools or tool.name in grants.tools
    if not outside and (free or (mode == "auto-edit" and tool.edits)):
        return Run()
    if not interactive:
        return Deny(why="nobody_outside" if outside else "nobody")
    return Ask(question=_question(tool, named, outside, leads_to), outside=outside)


def is_outside(path: str, cwd: str) -> bool:
    """Whether the text of the path leads out of the workspace. Links are not looked at: rule 3. The home folder counts
    as outside, wherever it lies: only the tool worker knows."""
    if path == "~" or path.startswith("~/"):
        return True
    root = posixpath.normpath(cwd)
    whole = posixpath.normpath(posixpath.join(root, path))
    return whole != root and not whole.startswith(root.rstrip("/") + "/")


def granted(grants: Grants, answer: ApprovalAnswer, tool_name: str) -> Grants:
    """What is remembered of an answer."""
    match answer:
        case "yes" | "no":
            return grants
        case "always_tool":
            return msgspec.structs.replace(grants, tools=tuple(sorted({*grants.tools, tool_name})))
        case "always_all":
            return msgspec.structs.replace(grants, everything=True)
        case _:
            assert_never(answer)


def _question(tool: Tool, named: _Named, outside: bool, leads_to: str | None) -> str:
    what = named.command if named.command is not None else named.path or ""
    place = " outside the workspace" if outside else ""
    way = "" if leads_to is None else f", which leads to {_head(leads_to)}"
    return f"Allow {tool.name}{place}: {_head(what)}{way}"


def _head(text: str) -> str:
    return text if len(text) <= QUESTION_HEAD else f"{text[:QUESTION_HEAD]}... ({len(text)} characters)"
