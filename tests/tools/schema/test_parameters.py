"""One parameter of a tool."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass, replace
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NamedTuple, NotRequired, Optional

import pytest
from pydantic import BaseModel, Field, create_model
from typing_extensions import TypeAliasType, TypedDict

from bridge.errors import DefinitionError
from bridge.tools.caller import InvocationParameters
from bridge.tools.context import InvocationContext
from bridge.tools.function import tools_from
from bridge.tools.schema.parameters import MISSING, P, Parameter, ToolMemoryId, injected_attribute, parameter_of


class Unit(Enum):
    CELSIUS = "C"


class Model(BaseModel):
    a: int = 0


PLAIN = Parameter(name="a", published_name="a", annotation=int, description=None, required=True)


def read(annotation: Any, default: Any = MISSING, documented: str | None = None) -> Parameter:
    return parameter_of("a", annotation, default, documented)


def test_a_plain_parameter_is_required() -> None:
    assert read(int) == PLAIN


def test_a_python_default_makes_it_optional() -> None:
    expected = replace(PLAIN, required=False, default=3, python_default=True, json_default=3)
    assert read(int, 3) == expected


def test_a_default_of_p_makes_it_optional() -> None:
    annotation = Annotated[int, P(default=3)]
    assert read(annotation) == replace(PLAIN, annotation=annotation, required=False, default=3, json_default=3)


@pytest.mark.parametrize(
    ("annotation", "description"),
    [
        (int, "documented"),
        (Annotated[int, "bare"], "bare"),
        (Annotated[int, Field(description="field")], "field"),
        (Annotated[int, P("mark")], "mark"),
        (Annotated[int, "bare", Field(description="field"), P("mark")], "mark"),
        (Annotated[int, "bare", Field(description="field")], "field"),
        (Annotated[int, P(name="b")], "documented"),
        (TypeAliasType("Number", Annotated[int, P("mark")]), "mark"),
    ],
)
def test_the_most_explicit_description_counts(annotation: Any, description: str) -> None:
    assert read(annotation, documented="documented").description == description


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (int, "a"),
        (Annotated[int, P(name="b")], "b"),
        (Annotated[int, Field(alias="c")], "c"),
        (Annotated[int, Field(validation_alias="d")], "d"),
        (Annotated[int, Field(alias="c"), P(name="b")], "b"),
    ],
)
def test_a_parameter_is_published_under_the_name_it_is_given(annotation: Any, name: str) -> None:
    assert read(annotation).published_name == name


@pytest.mark.parametrize(
    ("annotation", "default", "json_default"),
    [
        (str, "x", "x"),
        (float, 1, 1),
        (bool, False, False),
        (Unit, Unit.CELSIUS, "C"),
        (date, date(2026, 1, 2), "2026-01-02"),
        (Decimal, Decimal("1.50"), "1.50"),
        (list[int], [1], [1]),
        (tuple[int, ...], (), []),
        (dict[str, Unit], {"a": Unit.CELSIUS}, {"a": "C"}),
        (Model, Model(a=1), {"a": 1}),
        (int | None, None, None),
        (bytes, b"\xff", "_w=="),
    ],
)
def test_a_default_is_kept_as_it_is_and_shown_as_json(annotation: Any, default: Any, json_default: Any) -> None:
    parameter = read(annotation, default)
    assert parameter.default is default
    assert parameter.json_default == json_default


def test_a_default_of_p_may_be_the_json_value() -> None:
    assert read(Annotated[Unit, P(default="C")]).default is Unit.CELSIUS
    assert read(Annotated[Model, P(default={"a": 2})]).default == Model(a=2)
    assert read(Annotated[int, P(default="5")]).default == 5


def test_a_field_may_hold_the_default() -> None:
    assert read(Annotated[int, Field(default=3)]).default == 3
    assert read(Annotated[list[int], Field(default=[])]).default == []
    assert read(Annotated[int, Field(default=...)]).required


def test_a_field_may_stand_where_a_default_stands() -> None:
    parameter = read(int, Field(default=3, description="How many."))
    assert (parameter.default, parameter.python_default, parameter.description) == (3, False, "How many.")
    assert read(int, Field(description="How many.")).required


def test_equal_defaults_do_not_conflict() -> None:
    assert read(Annotated[int, P(default=3)], 3).default == 3


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (Annotated[int, P(default=3)], 4),
        (Annotated[bool, P(default=1)], True),
        (Annotated[int, P(default=3), Field(default=4)], MISSING),
        (Annotated[list[int], P(default=[])], [1]),
    ],
)
def test_defaults_that_differ_are_refused(annotation: Any, default: Any) -> None:
    with pytest.raises(DefinitionError, match="'a' has conflicting defaults"):
        read(annotation, default)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(int, "5"), (int, 1.0), (Unit, "C"), (list[int], ["x"]), (Annotated[int, P(default="x")], MISSING)],
)
def test_a_default_that_does_not_validate_is_refused(annotation: Any, default: Any) -> None:
    with pytest.raises(DefinitionError, match="of the parameter 'a' does not validate"):
        read(annotation, default)


def test_a_parameter_may_be_required_for_callers_only() -> None:
    parameter = read(Annotated[int, P(required=True)], 3)
    assert parameter.required


def test_a_required_parameter_has_no_default_of_its_mark() -> None:
    with pytest.raises(DefinitionError, match="'a' is required and has a default; keep one"):
        read(Annotated[int, P(required=True, default=3)])


@pytest.mark.parametrize("kind", [int | None, Optional[int], Any, Annotated[int | None, "x"]])  # noqa: UP045 - the other spelling
def test_what_is_not_required_and_has_no_default_is_none(kind: Any) -> None:
    parameter = read(Annotated[kind, P(required=False)])
    assert (parameter.required, parameter.default) == (False, None)


def test_what_cannot_be_none_needs_a_default() -> None:
    with pytest.raises(DefinitionError, match=r"'a' is not required and has no default; give P\(default=…\)"):
        read(Annotated[int, P(required=False)])


def test_a_default_factory_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'a' has a default_factory; give a default instead"):
        read(Annotated[list[int], Field(default_factory=list)])


@pytest.mark.parametrize(
    ("annotation", "attribute"),
    [
        (int, None),
        (Any, None),
        (Annotated[str, P("x")], None),
        (InvocationContext, "itself"),
        (InvocationContext | None, "itself"),
        (Optional[InvocationContext], "itself"),  # noqa: UP045 - the other spelling
        (Annotated[InvocationContext | None, "x"], "itself"),
        (InvocationParameters, "parameters"),
        (Annotated[InvocationParameters, P("x")] | None, "parameters"),
        (Annotated[str, ToolMemoryId], "memory_id"),
        (Annotated[int | None, "x", ToolMemoryId()], "memory_id"),
        (TypeAliasType("Who", Annotated[str, ToolMemoryId]), "memory_id"),
        (TypeAliasType("Context", TypeAliasType("Inner", InvocationContext)), "itself"),
        (dict[str, Any], None),
    ],
)
def test_the_annotation_tells_what_the_context_gives(annotation: Any, attribute: str | None) -> None:
    assert injected_attribute(annotation) == attribute


@dataclass
class Order:
    item: Annotated[str, P("What is ordered")]
    count: Annotated[int, P("How many")] = 1


class Address(BaseModel):
    street: Annotated[str, P("Street and number")] = Field(alias="streetAddress")


class Options(TypedDict):
    gift: NotRequired[Annotated[bool, P("Wrap it")]]


class Size(NamedTuple):
    width: Annotated[int, P("In centimetres")]
    height: int = 1
    """In metres"""


def test_p_and_docstrings_describe_the_items_of_a_named_tuple() -> None:
    def cut(size: Size) -> Size:
        return size

    specification = tools_from(cut)[0].specification
    described = [item["description"] for item in specification.parameters["$defs"]["Size"]["prefixItems"]]
    assert described == ["In centimetres", "In metres"]
    assert "In centimetres" in str(specification.output_schema)


def test_p_describes_fields() -> None:
    def buy(order: Order, to: Address, options: Options) -> None: ...

    definitions = tools_from(buy)[0].specification.parameters["$defs"]
    described = {
        name: shape["description"] for each in definitions.values() for name, shape in each["properties"].items()
    }
    assert described == {
        "item": "What is ordered",
        "count": "How many",
        "streetAddress": "Street and number",
        "gift": "Wrap it",
    }


@pytest.mark.parametrize("mark", [P(name="sku"), P(required=False), P(default="tea")])
def test_more_of_p_than_the_description_is_refused_on_fields(mark: P) -> None:
    model = create_model("Line", item=(Annotated[str, mark], "tea"))
    line = make_dataclass("Line", [("item", Annotated[str, mark])])
    typed_dict: Any = TypedDict
    shape = typed_dict("Line", {"item": Annotated[str, mark]})
    named_tuple: Any = NamedTuple
    line_as_tuple = named_tuple("Line", [("item", Annotated[str, mark])])
    for kind in (model, line, shape, line_as_tuple):

        def buy(lines: Any) -> None: ...

        buy.__annotations__["lines"] = list[kind]  # type: ignore[valid-type]  # made by the test
        with pytest.raises(DefinitionError, match=r"function '.*buy'.*the field 'item' of 'Line' has P\("):
            tools_from(buy)
