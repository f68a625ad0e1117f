from __future__ import annotations

from contextlib import suppress
from typing import Any

import click
import pytest
from hypothesis import given

from bridge.cli.assignments import parameters_of, read_assignments
from tests.cli.schemas import JSON_SCHEMA_LIKE

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "whole": {"type": "integer"},
        "number": {"type": "number"},
        "flag": {"type": "boolean"},
        "none": {"type": "null"},
        "maybe_whole": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "maybe_text": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "colour": {"enum": ["red", "green"]},
        "level": {"enum": [1, 2]},
        "levels": {"type": "array", "items": {"$ref": "#/$defs/Level"}},
        "fixed": {"const": True},
        "words": {"type": "array", "items": {"type": "string"}},
        "wholes": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
        "point": {"$ref": "#/$defs/Point"},
        "optional_point": {"oneOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
        "anything": {},
        "loop": {"$ref": "#/properties/loop"},
        "lost": {"$ref": "#/nowhere"},
        "far": {"$ref": "https://example.com/schema"},
    },
    "$defs": {
        "Level": {"enum": [1, 2], "type": "integer"},
        "Point": {"type": "object", "properties": {"x": {"type": "integer"}}},
    },
}


@pytest.mark.parametrize(
    ("texts", "arguments"),
    [
        (["text=5"], {"text": "5"}),
        (["text=true"], {"text": "true"}),
        (["text="], {"text": ""}),
        (["text=a=b"], {"text": "a=b"}),
        (["text= padded "], {"text": " padded "}),
        (["whole=-5"], {"whole": -5}),
        (["whole=475695037565000000000000"], {"whole": 475695037565000000000000}),
        (["whole=2.0"], {"whole": 2.0}),
        (["number=2"], {"number": 2}),
        (["number=1e3"], {"number": 1000.0}),
        (["flag=true"], {"flag": True}),
        (["flag=False"], {"flag": False}),
        (["none=null"], {"none": None}),
        (["maybe_whole=3"], {"maybe_whole": 3}),
        (["maybe_whole=null"], {"maybe_whole": None}),
        (["maybe_text=null"], {"maybe_text": "null"}),
        (["either=3"], {"either": "3"}),
        (["colour=red"], {"colour": "red"}),
        (["level=2"], {"level": 2}),
        (["level=HIGH"], {"level": "HIGH"}),
        (["levels=HIGH", "levels=2"], {"levels": ["HIGH", 2]}),
        (["fixed=true"], {"fixed": True}),
        (["words=a"], {"words": ["a"]}),
        (["words=a", "words=5"], {"words": ["a", "5"]}),
        (['words=["a", "b"]'], {"words": ["a", "b"]}),
        (["wholes=1", "wholes=2"], {"wholes": [1, 2]}),
        (["wholes=[]"], {"wholes": []}),
        (['points={"x": 1}', 'points={"x": 2}'], {"points": [{"x": 1}, {"x": 2}]}),
        (['point={"x": 1}'], {"point": {"x": 1}}),
        (["optional_point=null"], {"optional_point": None}),
        (["anything=5"], {"anything": 5}),
        (["anything=five"], {"anything": "five"}),
        (["anything=NaN"], {"anything": "NaN"}),
        (["loop=1"], {"loop": 1}),
        (["lost=1"], {"lost": 1}),
        (["far=x"], {"far": "x"}),
        (["unknown=1"], {"unknown": 1}),
        (["text=x", "whole=1"], {"text": "x", "whole": 1}),
        ([], {}),
    ],
)
def test_values_are_read_by_the_schema(texts: list[str], arguments: dict[str, Any]) -> None:
    read = read_assignments(texts, SCHEMA)
    assert read == arguments
    assert [type(value) for value in read.values()] == [type(value) for value in arguments.values()]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["whole=1.5"], "the argument 'whole' is of type integer, not '1.5'"),
        (["whole=true"], "the argument 'whole' is of type integer, not 'true'"),
        (["whole="], "the argument 'whole' is of type integer, not ''"),
        (["whole=" + "9" * 5000], "the argument 'whole' is of type integer, not '999"),
        (["number=Infinity"], "the argument 'number' is of type number, not 'Infinity'"),
        (["flag=yes"], "the argument 'flag' is of type boolean, not 'yes'; write it as flag=true or flag=false"),
        (
            ["maybe_whole=x"],
            "the argument 'maybe_whole' is of type integer or null, not 'x'; write it as maybe_whole=5",
        ),
        (["none=x"], "the argument 'none' is of type null, not 'x'; write it as none=null"),
        (["point=[1]"], "the argument 'point' is of type object, not '[1]'; write it as 'point={\"name\": 1}'"),
        (["wholes=1,2"], "the argument 'wholes' is of type integer, not '1,2'; write it as 'wholes=[1,2]'"),
        (["wholes=a,b"], "the argument 'wholes' is of type integer, not 'a,b'; write it as 'wholes=[5, 5]'"),
        (["point=" + "[" * 100_000], "the argument 'point' is of type object, not '[[["),
        (["wholes=1", "wholes=x"], "the argument 'wholes' is of type integer, not 'x'"),
        (["text=a", "text=b"], "the argument 'text' is given 2 times, but takes one value"),
        (["text"], "'text' does not have the form name=value"),
        (["=x"], "'=x' does not have the form name=value"),
    ],
)
def test_what_a_parameter_does_not_take_is_wrong_usage(texts: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as raised:
        read_assignments(texts, SCHEMA)
    assert raised.value.message.startswith(message)


@given(JSON_SCHEMA_LIKE)
def test_no_schema_that_a_server_may_write_is_a_mistake_of_ours(schema: dict[str, Any]) -> None:
    assert isinstance(parameters_of(schema), dict)
    with suppress(click.UsageError):
        read_assignments(["a=1"], schema)


def test_a_union_of_itself_ends() -> None:
    schema = {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}]}}}
    assert read_assignments(["a=1"], schema) == {"a": 1}
