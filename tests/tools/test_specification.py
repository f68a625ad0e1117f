"""Invalid specifications are refused when they are created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types
import pytest

from bridge.errors import DefinitionError
from bridge.tools.function import tool, tools_from
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.wire.tools import tool_from_wire, tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping


def looped() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    return loop


@pytest.mark.parametrize(
    "hints", [{"title": "Look", "readOnlyHint": True}, mcp_types.ToolAnnotations(title="Look", read_only_hint=True)]
)
def test_hints_may_be_written_as_mcp_writes_them(hints: Any) -> None:
    @tool(annotations=hints)
    def look() -> str:
        return "seen"

    specification = tools_from(look)[0].specification
    assert specification.annotations == ToolAnnotations(title="Look", read_only=True)
    assert tool_to_wire(specification)["annotations"] == {"title": "Look", "readOnlyHint": True}
    assert ToolSpecification(name="look", annotations=hints).annotations == specification.annotations


@pytest.mark.parametrize(
    ("hints", "said"),
    [
        ({"read_only": True}, "annotations have no 'read_only'; MCP knows title, readOnlyHint, destructiveHint"),
        ({"readOnlyHint": "yes"}, "read_only must be True, False or None, not 'yes'"),
        ({"title": 5}, "title must be text, not 5"),
        ("readOnlyHint", r"a mapping such as \{'readOnlyHint': True\}, not 'readOnlyHint'"),
    ],
)
def test_hints_that_mcp_does_not_know_are_refused_where_they_are_given(hints: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        tool(annotations=hints)
    with pytest.raises(DefinitionError, match=said):
        ToolSpecification(name="look", annotations=hints)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"name": 5}, "name must be text, not 5"),
        ({"title": 5}, "title must be text, not 5"),
        ({"description": 5}, "description must be text, not 5"),
        ({"metadata": "a"}, "metadata must be a mapping, not 'a'"),
        ({"strict": "x"}, "strict must be True, False or None, not 'x'"),
        ({"return_behavior": "x"}, r"return_behavior must be one of ReturnBehavior\.TO_LLM, .*, not 'x'"),
        ({"run_in_thread": "no"}, "run_in_thread must be True or False, not 'no'"),
        ({"propagate": 1}, "propagate must be True or False, not 1"),
        ({"icons": "x.png"}, "icons must be a list of icons .* not 'x.png'"),
        ({"icons": {"src": "x.png"}}, "icons must be a list of icons"),
        ({"icons": 5}, "icons must be a list of icons .* not 5"),
        ({"icons": [{"mimeType": "image/png"}]}, "icons must be a list of icons"),
    ],
)
def test_what_has_the_wrong_type_is_refused_by_the_decorator(said: Mapping[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        tool(**said)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"metadata": {"a": [1, object()]}}, r"metadata\['a'\]\[1\] of a tool cannot be written as JSON: <object"),
        ({"metadata": looped()}, "metadata.* cannot be written as JSON: .*Circular"),
        ({"icons": [{"src": "x", "sizes": int}]}, r"icons\[0\]\['sizes'\] of a tool cannot be written as JSON"),
        ({"title": "\ud800"}, "title of a tool cannot be written as JSON"),
        ({"description": "\ud800"}, "description of a tool cannot be written as JSON"),
    ],
)
def test_what_json_cannot_carry_is_refused_by_the_decorator(said: Mapping[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        tool(**said)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            {"parameters": {"type": "object", "properties": {"a": int}}},
            r"parameters\['properties'\]\['a'\] of the tool 'add' cannot be written as JSON: <class 'int'>",
        ),
        ({"output_schema": {"enum": [object()]}}, r"output_schema\['enum'\]\[0\] of the tool 'add' cannot be written"),
        ({"metadata": {"a": object()}}, r"metadata\['a'\] of the tool 'add' cannot be written"),
        ({"parameters": "x"}, "parameters of the tool 'add' must be a JSON Schema as a mapping, not 'x'"),
        ({"output_schema": "x"}, "output schema of the tool 'add' must be a JSON Schema as a mapping, not 'x'"),
        ({"title": 5}, "title of the tool 'add' must be text, not 5"),
        ({"strict": "x"}, "strict of the tool 'add' must be True, False or None, not 'x'"),
        ({"icons": ("x.png",)}, r"icons of the tool 'add' must be a list of icons .* not \('x.png',\)"),
    ],
)
def test_a_specification_by_hand_is_held_to_the_same(said: Mapping[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        ToolSpecification(name="add", **said)


def test_half_a_character_in_the_text_of_others_is_carried() -> None:
    half = "\ud83d"
    assert ToolSpecification(name="add", description=half, metadata={"a": half}).description == half
    with pytest.raises(DefinitionError, match=r"output_schema\['a'\] of the tool 'add' cannot be written"):
        ToolSpecification(name="add", description=half, output_schema={"a": object()})


def test_icons_by_hand_may_stand_in_a_list() -> None:
    icon = {"src": "data:,"}
    icons: Any = [icon]
    assert ToolSpecification(name="add", icons=icons).icons == (icon,)


def test_icons_of_a_remote_tool_that_are_none_cost_the_tool_nothing() -> None:
    icons = ["x.png", {"src": "data:,"}, {"mimeType": "image/png"}]
    wire = {"name": "add", "inputSchema": {"type": "object"}, "icons": icons}
    assert tool_from_wire(wire).icons == ({"src": "data:,"},)
