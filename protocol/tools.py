"""The tools and the types of their arguments; JSON Schemas and validation both come from these types (J1)."""

from typing import Annotated

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(max_length=8_000_000)]
Path = Annotated[str, Meta(min_length=1, max_length=4096, description="Path, relative to the workspace or absolute.")]
Seconds = Annotated[float, Meta(gt=0, description="Limit in seconds; absent: the configured default.")]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all argument types."""


class Shell(Arguments, frozen=True, kw_only=True):
    command: Annotated[str, Meta(min_length=1, description="Command line for /bin/sh (bash where it exists).")]
    timeout_s: Seconds | None = None
    background: Annotated[
        bool,
        Meta(
            description="Let the command go on after the call: for servers, watchers and other programs that are "
            "needed later. It ends with the session, or when the user stops the run; timeout_s does not apply. The "
            "result says how to end it and in which file its output is kept. Anything that a command without it leaves "
            "running, for example with &, ends with the call."
        ),
    ] = False


class ReadFile(Arguments, frozen=True, kw_only=True):
    path: Path
    offset: Annotated[int, Meta(ge=1, description="First line, from 1.")] = 1
    limit: Annotated[int, Meta(ge=1, le=10_000, description="Number of lines at most.")] = 2_000


class WriteFile(Arguments, frozen=True, kw_only=True):
    path: Path
    content: Text


class EditFile(Arguments, frozen=True, kw_only=True):
    path: Path
    old: Annotated[str, Meta(min_length=1, description="Text to replace; must occur exactly once in the file.")]
    new: Text


class Glob(Arguments, frozen=True, kw_only=True):
    pattern: Annotated[str, Meta(min_length=1, description="Glob such as src/**/*.py.")]
    path: Path = "."


class Search(Arguments, frozen=True, kw_only=True):
    pattern: Annotated[str, Meta(min_length=1, description="Regular expression, Python syntax.")]
    path: Path = "."
    glob: Annotated[str, Meta(description="Only files whose path matches this glob.")] = "**/*"


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    arguments: type[Arguments]
    read_only: bool
    """Read-only tools never ask and run side by side (J2, J3)."""
    edits: bool = False
    """Changes files in the workspace only; `auto-edit` lets it pass."""


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            name="shell",
            description="Run a command in the workspace. Standard input is empty, there is no terminal; "
            "the whole process tree ends with the call, unless background is true.",
            arguments=Shell,
            read_only=False,
        ),
        Tool(
            name="read_file",
            description="Read lines of a text file, numbered.",
            arguments=ReadFile,
            read_only=True,
        ),
        Tool(
            name="write_file",
            description="Write a whole file, atomically; folders are made as needed.",
            arguments=WriteFile,
            read_only=False,
            edits=True,
        ),
        Tool(
            name="edit_file",
            description="Replace one exact, unique piece of text in a file.",
            arguments=EditFile,
            read_only=False,
            edits=True,
        ),
        Tool(
            name="glob",
            description="List files whose path matches a pattern.",
            arguments=Glob,
            read_only=True,
        ),
        Tool(
            name="search",
            description="Search files for a regular expression.",
            arguments=Search,
            read_only=True,
        ),
    )
}
