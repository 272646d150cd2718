"""What an answer's bytes are read as, in any wire format, and the streams of tests/wire/data with what each holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from haltline.protocol.conversation import Usage
from haltline.protocol.kinds import Api
from haltline.protocol.messages import CallDraft
from haltline.worker.llm.adapters import adapter_for
from haltline.worker.llm.body import BodyReader
from haltline.worker.llm.happenings import AnyHappening, ErrorReport, Malformed, ReasoningText, Step, Summary, Text

STREAMS = Path(__file__).resolve().parent.parent / "wire" / "data" / "streams"
NAMES = sorted(path.stem for path in STREAMS.glob("*.sse"))


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker learns from one body."""

    text: str
    reasoning: str
    summary: Summary
    problem: ErrorReport | Malformed | None
    steps: int


def read(api: Api, chunks: Iterable[bytes], content_type: str = "text/event-stream", *, closed: bool = True) -> Reading:
    """`closed`: the body ends after these chunks."""
    reader = adapter_for(api).reader()
    body = BodyReader(reader, content_type)
    happenings: list[AnyHappening] = [happening for chunk in chunks for happening in body.feed(chunk)]
    if closed:
        happenings += body.close()
    problems = [one for one in happenings if isinstance(one, ErrorReport | Malformed)]
    assert len(problems) <= 1
    return Reading(
        text="".join(one.text for one in happenings if isinstance(one, Text)),
        reasoning="".join(one.text for one in happenings if isinstance(one, ReasoningText)),
        summary=reader.summary(),
        problem=problems[0] if problems else None,
        steps=sum(isinstance(one, Text | ReasoningText | Step) for one in happenings),
    )


def sample(name: str) -> tuple[bytes, Mapping[str, Any]]:
    """The bytes of a body, and what its .json says of it."""
    return (STREAMS / f"{name}.sse").read_bytes(), json.loads((STREAMS / f"{name}.json").read_text())


def bytewise(data: bytes) -> Iterator[bytes]:
    return (data[i : i + 1] for i in range(len(data)))


def cut_at(data: bytes, places: Iterable[int]) -> Iterator[bytes]:
    start = 0
    for place in sorted(places):
        yield data[start:place]
        start = place
    yield data[start:]


def ending(reading: Reading) -> str:
    """The word of the .json files for how it ended."""
    if reading.problem is not None:
        return "error"
    return reading.summary.finish or "truncated"


def whole_call(call: CallDraft) -> dict[str, object]:
    return {"id": call.provider_id, "name": call.name, "arguments": json.loads(call.arguments_raw.strip() or "{}")}


def cut_call(call: CallDraft) -> dict[str, object]:
    return {"id": call.provider_id, "name": call.name, "arguments_raw": call.arguments_raw}


def assert_expected(reading: Reading, expected: Mapping[str, Any]) -> None:
    assert reading.text == expected["text"]
    assert reading.reasoning == expected["reasoning"]
    calls = reading.summary.calls
    assert [whole_call(call) for call in calls if call.complete] == expected["tool_calls"]
    assert [cut_call(call) for call in calls if not call.complete] == expected.get("incomplete_tool_calls", [])
    usages = [expected["usage"], *expected.get("also_ok", {}).get("usage", ())]
    assert reading.summary.usage in [None if usage is None else Usage(**usage) for usage in usages]
    assert reading.summary.refusal == expected.get("refusal", "")
    if any(pause["ms"] is None for pause in expected.get("pauses", ())):
        assert reading.summary.finish is None  # a timer ends it, see tests/process/test_llm_worker_limits.py
        assert reading.problem is None
        return
    assert ending(reading) == expected["finish"]
    assert reading.summary.finish_raw == expected.get("finish_raw", reading.summary.finish_raw)
    opaque = [*expected.get("redacted", ()), *expected.get("encrypted_reasoning", ())]
    assert [block.opaque for block in reading.summary.reasoning if block.opaque] == opaque
    signatures = [expected["signature"]] if expected.get("signature") else []
    assert [block.signature for block in reading.summary.reasoning if block.signature] == signatures
