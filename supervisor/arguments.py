"""From the argument text of a call to checked arguments, or to words about what is wrong (B2, B3, R38 to R40). Pure.

Rules
1. Blank text is `{}` (R39). Several JSON texts glued together are counted, never guessed at (R38).
2. Every offending field is named at once, with what was expected and what came: one round for the model, not five.
3. Nothing is converted: "5" is not 5. Absent fields take the default of the argument type.
4. What is sent on is encoded anew from what was checked, without lone surrogates (R87).
"""

import json
from typing import NoReturn, cast

import msgspec

from haltline.protocol.conversation import ToolSpec
from haltline.protocol.tools import TOOLS, Tool

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]

SHOWN_VALUE = 80
"""Characters of an offending value that are quoted back."""
GLUED_COUNTED = 100
"""Glued JSON texts beyond this are not counted further."""


class Parsed(msgspec.Struct, frozen=True):
    """A JSON object, as JSON text without lone surrogates."""

    text: bytes


class NotJson(msgspec.Struct, frozen=True):
    """`problem`: what was found and where, in words for the model."""

    problem: str
    glued: int = 0
    """How many JSON texts stand side by side; 0: that is not what is wrong."""


class FieldProblem(msgspec.Struct, frozen=True):
    field: str
    expected: str
    came: str


def parse(raw: str) -> Parsed | NotJson:
    """The argument text of a call as a JSON object (rule 1)."""
    text = raw.strip() or "{}"
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    try:
        value, end = cast("tuple[JsonValue, int]", decoder.raw_decode(text))
        if text[end:].strip():
            return _trailing(decoder, text, end)
        if not isinstance(value, dict):
            return NotJson(f"a JSON object was expected, this is {_kind(value)}")
        return Parsed(msgspec.json.encode(_clean(value)))
    except json.JSONDecodeError as error:
        return NotJson(
            f"{error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno} (character {error.pos})"
        )
    except RecursionError:
        return NotJson("it is nested too deeply")
    except ValueError as error:  # an integer of thousands of digits, a constant that JSON does not have
        return NotJson(str(error))


def check(tool: Tool, arguments: Parsed) -> tuple[FieldProblem, ...]:
    """What breaks the tool's schema; empty: nothing (rules 2 and 3)."""
    given = cast("dict[str, JsonValue]", msgspec.json.decode(arguments.text))
    fields = {field.encode_name: field for field in msgspec.structs.fields(tool.arguments)}
    problems: list[FieldProblem] = []
    for name, field in fields.items():
        if name not in given:
            if field.required:
                problems.append(FieldProblem(name, "a value (the field is required)", "nothing"))
            continue
        try:
            msgspec.convert(given[name], field.type)
        except msgspec.ValidationError as error:
            problems.append(FieldProblem(name, _expected(str(error)), _quoted(given[name])))
    known = ", ".join(fields)
    problems += [
        FieldProblem(name, f"only the fields {known}", _quoted(value))
        for name, value in given.items()
        if name not in fields
    ]
    return tuple(problems)


def spec(tool: Tool) -> ToolSpec:
    """The tool as the model is told of it; the schema comes from the argument type (J1)."""
    whole = msgspec.json.schema(tool.arguments)
    schema = whole["$defs"][tool.arguments.__name__]
    return ToolSpec(name=tool.name, description=tool.description, schema=msgspec.json.encode(schema).decode())


OFFERED: tuple[ToolSpec, ...] = tuple(spec(tool) for tool in TOOLS.values())
"""What every request offers."""


def _trailing(decoder: json.JSONDecoder, text: str, end: int) -> NotJson:
    """A first JSON text ends at `end` and more follows: other JSON texts (R38), or something else."""
    count, position = 1, end
    while count < GLUED_COUNTED:
        while position < len(text) and text[position].isspace():
            position += 1
        if position == len(text):
            return NotJson(f"{count} JSON texts stand one behind the other", glued=count)
        try:
            _, position = decoder.raw_decode(text, position)
        except ValueError:
            break
        count += 1
    return NotJson(f"the JSON text ends at character {end}, but more follows")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _clean(value: JsonValue) -> JsonValue:
    """Rule 4. An object keeps its last value where two keys become the same."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode() if _has_surrogate(value) else value
        case list():
            return [_clean(item) for item in value]
        case dict():
            return {str(_clean(key)): _clean(item) for key, item in value.items()}
        case _:
            return value


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _expected(words: str) -> str:
    """`Expected `int`, got `str`` without its second half: what came is quoted beside it."""
    first, _, _ = words.partition(", got")
    return first.removeprefix("Expected ").replace("`", "")


def _quoted(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > SHOWN_VALUE:
        text = f"{text[:SHOWN_VALUE]}... ({len(text)} characters)"
    return f"{_kind(value)} {text}" if value is not None else "null"


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
