"""Tools as functions: their names, signatures, arguments and values."""

from __future__ import annotations

from typing import Any

import pytest

from bridge import ToolError, ToolSpecification
from bridge.server.code.functions import ToolFunctions, arguments_of, value_of

POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}


def spec(name: str = "find", output: Any = None, **properties: Any) -> ToolSpecification:
    required = [each for each, schema in properties.items() if not schema.pop("optional", False)]
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSpecification(name=name, description="Find it.", parameters=parameters, output_schema=output)


@pytest.mark.parametrize(
    ("schema", "annotation"),
    [
        ({"type": "string"}, "str"),
        ({"type": "array", "items": {"type": "integer"}}, "list[int]"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "float | None"),
        ({"enum": ["a", "b"]}, "Literal['a', 'b']"),
        ({"const": 5}, "Literal[5]"),
        ({"enum": [1.5]}, "Any"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "dict[str, bool]"),
        (POINT, "dict[str, Any]"),
        ({"$ref": "#/$defs/none"}, "Any"),
        ({}, "Any"),
    ],
)
def test_annotations(schema: dict[str, Any], annotation: str) -> None:
    functions = ToolFunctions([spec(value=schema)])
    assert functions.stubs(["find"]).splitlines()[-1] == f"async def find(value: {annotation}) -> str: ..."


def test_required_parameters_come_first_and_odd_names_are_passed_by_keyword() -> None:
    odd = spec("with.dots", a={"type": "string", "optional": True}, **{"b-c": {"type": "string"}, "d": {}})
    functions = ToolFunctions([odd, spec("print"), spec("3d"), spec()])
    (name,) = functions.used_in("await with_dots_05cf(d=1)") or [functions.name_of("with.dots")]
    assert name.startswith("with_dots_")
    assert functions.stubs([name]).splitlines()[-1] == (
        f"async def {name}(d: Any, a: str = ..., **more: Any) -> str: ..."
    )
    assert functions.name_of("print").startswith("print_")
    assert functions.name_of("3d").startswith("t_3d_")
    assert functions.used_in("find(find(1)); findings") == ["find"]
    assert arguments_of(odd, ["x"], {"d": 2}) == {"b-c": "x", "d": 2}
    with pytest.raises(TypeError, match="positional"):
        arguments_of(odd, [1, 2, 3, 4], {})
    with pytest.raises(TypeError, match="'b-c' twice"):
        arguments_of(odd, [1], {"b-c": 1})


def test_the_schema_of_what_a_type_does_not_say_is_shown() -> None:
    tool = spec(output=POINT, points={"type": "array", "items": POINT, "description": "Where."}, n={"type": "integer"})
    assert ToolFunctions([tool]).described("find") == (
        "async def find(points: list[dict[str, Any]], n: int) -> dict[str, Any]:\n"
        '    """Find it.\n\n'
        '    points: Where. JSON Schema {"type":"array","items":{"type":"object","properties":{"x":{"type":"number"}},'
        '"required":["x"]}}\n'
        '    Returns: JSON Schema {"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}"""'
    )


WRAPPED = {"type": "object", "properties": {"result": {"type": "array"}}, "required": ["result"]}


@pytest.mark.parametrize(
    ("output", "result", "value"),
    [
        (None, {"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}, '{"a": 1}'),
        (POINT, {"content": [], "structuredContent": {"x": 1}}, {"x": 1}),
        (POINT, {"content": [{"type": "text", "text": '{"x": 2}'}]}, {"x": 2}),
        (POINT, {"content": [{"type": "text", "text": "none"}]}, "none"),
        (WRAPPED, {"content": [], "structuredContent": {"result": [1]}}, [1]),
        (
            None,
            {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
            "[image: image/png, 3 bytes]",
        ),
    ],
)
def test_values(output: Any, result: dict[str, Any], value: Any) -> None:
    found = value_of(spec(output=output), result)
    assert found == value or (isinstance(found, str) and "image/png" in found)


def test_errors_are_raised() -> None:
    failed = {"content": [{"type": "text", "text": "no such thing"}], "isError": True}
    with pytest.raises(ToolError, match="no such thing"):
        value_of(spec(), failed)
    with pytest.raises(ToolError, match="malformed"):
        value_of(spec(), {"content": [{"type": "text"}]})
