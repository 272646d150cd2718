"""From argument text to checked arguments, or to words (B2, B3, R38 to R40, R87)."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haltline.protocol.tools import TOOLS
from haltline.supervisor import feedback
from haltline.supervisor.arguments import OFFERED, FieldProblem, NotJson, Parsed, check, parse


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('{"command":"ls"}', b'{"command":"ls"}'),
        ("", b"{}"),
        (" \n", b"{}"),
        (' {"a": [1, null, true]} ', b'{"a":[1,null,true]}'),
        ('{"a":"\\ud83c"}', b'{"a":"?"}'),
    ],
)
def test_an_object_is_taken_and_written_anew(raw: str, text: bytes) -> None:
    """R39, R40, R87."""
    assert parse(raw) == Parsed(text)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ('{"a":', NotJson("Expecting value at line 1, column 6 (character 5)")),
        ("[1]", NotJson("a JSON object was expected, this is an array")),
        ('"ls"', NotJson("a JSON object was expected, this is a string")),
        ('{"path":"a"}{"path":"b"}', NotJson("2 JSON texts stand one behind the other", glued=2)),
        ('{"x":1}\n{"x":1} {"x":1}', NotJson("3 JSON texts stand one behind the other", glued=3)),
        ('{"x":1} and so on', NotJson("the JSON text ends at character 7, but more follows")),
        ('{"x":NaN}', NotJson("NaN is not JSON")),
        ("[" * 100_000, NotJson("it is nested too deeply")),
    ],
)
def test_anything_else_is_named_with_its_place(raw: str, problem: NotJson) -> None:
    """B2, R38."""
    assert parse(raw) == problem


def test_a_number_of_thousands_of_digits_is_refused_and_not_raised() -> None:
    assert isinstance(parse('{"a":' + "1" * 10_000 + "}"), NotJson)


@given(st.text())
def test_any_text_at_all_is_parsed_or_named(raw: str) -> None:
    """P6."""
    found = parse(raw)
    if isinstance(found, Parsed):
        assert isinstance(json.loads(found.text), dict)
    else:
        assert found.problem


@given(st.dictionaries(st.sampled_from(["path", "offset", "limit", "x"]), st.integers() | st.text() | st.none()))
def test_what_has_no_problem_is_what_the_tool_takes(arguments: dict[str, int | str | None]) -> None:
    tool = TOOLS["read_file"]
    text = msgspec.json.encode(json.loads(json.dumps(arguments)))
    problems = check(tool, Parsed(text))
    try:
        msgspec.json.decode(text, type=tool.arguments)
    except msgspec.ValidationError:
        assert problems
    else:
        assert problems == ()


def test_every_offending_field_is_named_at_once() -> None:
    """B3."""
    arguments = Parsed(b'{"offset":0,"limit":"many","mode":"r"}')
    assert check(TOOLS["read_file"], arguments) == (
        FieldProblem("path", "a value (the field is required)", "nothing"),
        FieldProblem("offset", "int >= 1", "a number 0"),
        FieldProblem("limit", "int", 'a string "many"'),
        FieldProblem("mode", "only the fields path, offset, limit", 'a string "r"'),
    )


def test_a_long_value_is_quoted_in_part() -> None:
    (problem,) = check(TOOLS["shell"], Parsed(msgspec.json.encode({"command": ["x" * 1000]})))
    assert problem.came == 'an array ["' + "x" * 78 + "... (1004 characters)"


def test_the_model_gets_its_own_text_back_head_and_tail() -> None:
    """B2: 2 KiB."""
    raw = "{" + "a" * 5000 + "END"
    problem = parse(raw)
    assert isinstance(problem, NotJson)
    words = feedback.not_json(raw, problem)
    assert "{" + "a" * 1023 in words
    assert "a" * 1021 + "END" in words
    assert "[... 2956 bytes left out ...]" in words
    assert "nothing was changed" in words


def test_every_tool_is_offered_with_an_object_schema() -> None:
    """J1."""
    assert [spec.name for spec in OFFERED] == list(TOOLS)
    for spec in OFFERED:
        schema = json.loads(spec.schema)
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
