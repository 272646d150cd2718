# The part of pytest-xprocess that the tests use; it ships no types.

from os import PathLike
from types import TracebackType
from typing import ClassVar, Self

import pytest

class ProcessStarter:
    args: ClassVar[list[str]]
    pattern: ClassVar[str]
    timeout: ClassVar[float]
    terminate_on_interrupt: ClassVar[bool]

class XProcessInfo:
    def terminate(self, *, kill_proc_tree: bool = True, timeout: float = 20) -> int: ...

class XProcessResources:
    info: tuple[XProcessInfo, bool]
    def release(self) -> None: ...

class XProcess:
    resources: list[XProcessResources]
    def __init__(self, config: pytest.Config, rootdir: PathLike[str]) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    def ensure(
        self, name: str, preparefunc: type[ProcessStarter], restart: bool = False, persist_logs: bool = True
    ) -> tuple[int, PathLike[str]]: ...
