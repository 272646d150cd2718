"""Reads the output of a test run, of unittest or of pytest (with --tb=native), or of a run that was aborted as hung."""

import re

import msgspec

_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)(?:,)? in (?P<function>\S+)', re.MULTILINE)
_UNITTEST_HEAD = re.compile(r"^(?:FAIL|ERROR): (?P<name>\S+) \((?P<where>[\w.]+)\)", re.MULTILINE)
_UNITTEST_RAN = re.compile(r"^Ran (?P<count>\d+) tests? in (?P<seconds>[\d.]+)s", re.MULTILINE)
_PYTEST_HEAD = re.compile(r"^_{3,} (?P<name>.+?) _{3,}$", re.MULTILINE)
_PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) (?P<id>\S+?::.+?)(?: - .*)?$", re.MULTILINE)
_PYTEST_ENDED = re.compile(r"^=*\s*(?P<counts>(?:\d+ \w+(?:, )?)+|no tests ran) in (?P<seconds>[\d.]+)s", re.MULTILINE)
_PYTEST_COUNT = re.compile(r"(\d+) (?:passed|failed|errors?|skipped|xfailed|xpassed)")
_EXCEPTION = re.compile(r"^(?P<text>[A-Za-z_][\w.]*(?:: .*)?)$", re.MULTILINE)
_HANG = re.compile(r"Fatal Python error: Aborted")
_UNITTEST_RULE = "=" * 70
_LOADER = "unittest.loader._FailedTest"


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a traceback."""

    path: str
    """As printed: mostly absolute."""
    line: int
    function: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One failing test."""

    test: str | None
    """How the framework names it; None: it does not say, or names something that cannot be run alone."""
    function: str
    """The test's function, without parameters."""
    frames: tuple[Frame, ...]
    """Outermost call first."""
    message: str
    """The exception's line; "" where none was printed."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    ran: int | None
    """Number of tests; None: the output does not say."""
    seconds: float | None
    failures: tuple[Failure, ...]
    hung: bool


def read_report(output: str) -> Report:
    """What an output says. Where it holds two runs, counts are those of the last."""
    hung = _HANG.search(output)
    if hung is not None:
        return Report(ran=None, seconds=None, failures=_hung(output[hung.start() :]), hung=True)
    ended = _last(_PYTEST_ENDED, output)
    if ended is not None:
        counts = [int(count) for count in _PYTEST_COUNT.findall(ended["counts"])]
        return Report(ran=sum(counts), seconds=float(ended["seconds"]), failures=_pytest_failures(output), hung=False)
    ran = _last(_UNITTEST_RAN, output)
    return Report(
        ran=int(ran["count"]) if ran is not None else None,
        seconds=float(ran["seconds"]) if ran is not None else None,
        failures=_unittest_failures(output),
        hung=False,
    )


def _last(pattern: re.Pattern[str], output: str) -> re.Match[str] | None:
    return max(pattern.finditer(output), key=lambda found: found.start(), default=None)


def _unittest_failures(output: str) -> tuple[Failure, ...]:
    found: list[Failure] = []
    for block in output.split(_UNITTEST_RULE)[1:]:
        head = _UNITTEST_HEAD.search(block)
        if head is None:
            continue
        name, where = head["name"], head["where"]
        full = where if where.endswith(f".{name}") else f"{where}.{name}"
        found.append(
            Failure(
                test=None if full.startswith(_LOADER) else full,
                function=name,
                frames=_frames(block),
                message=_message(block),
            )
        )
    return tuple(found)


def _pytest_failures(output: str) -> tuple[Failure, ...]:
    heads = list(_PYTEST_HEAD.finditer(output))
    ends = [*(head.start() for head in heads[1:]), len(output)]
    blocks = {head["name"]: output[head.end() : end] for head, end in zip(heads, ends, strict=False)}
    found: list[Failure] = []
    for failed in _PYTEST_FAILED.finditer(output):
        test = failed["id"]
        name = test.partition("::")[2].replace("::", ".")
        block = blocks.pop(name, "")
        function = name.rpartition(".")[2].partition("[")[0]
        found.append(Failure(test=test, function=function, frames=_frames(block), message=_message(block)))
    if not found:
        found = [
            Failure(test=None, function="", frames=_frames(block), message=_message(block)) for block in blocks.values()
        ]
    return tuple(found)


def _hung(dump: str) -> tuple[Failure, ...]:
    """The test that was running, from faulthandler's dump, which has the innermost call first."""
    frames = tuple(reversed(_frames(dump)))
    test = next((frame for frame in frames if frame.function.startswith("test")), None)
    if not frames:
        return ()
    name = test.function if test is not None else ""
    return (Failure(test=name or None, function=name, frames=frames, message="it did not end"),)


def _frames(block: str) -> tuple[Frame, ...]:
    return tuple(
        Frame(path=frame["path"], line=int(frame["line"]), function=frame["function"])
        for frame in _FRAME.finditer(block)
    )


def _message(block: str) -> str:
    start = max((frame.end() for frame in _FRAME.finditer(block)), default=None)
    found = _EXCEPTION.search(block, start) if start is not None else None
    return found["text"].strip() if found is not None else ""
