"""Parameters and return types of functions."""

from __future__ import annotations

import collections.abc  # noqa: TC003 - resolved at run time
import functools
import sys
from collections.abc import Callable  # noqa: TC003 - resolved at run time
from dataclasses import dataclass
from enum import Enum
from inspect import Signature
from socket import socket
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import pytest
from jsonschema import Draft202012Validator
from pydantic import Field

from bridge.errors import DefinitionError
from bridge.tools.caller import InvocationParameters  # noqa: TC001 - resolved at run time
from bridge.tools.context import InvocationContext  # noqa: TC001 - resolved at run time
from bridge.tools.schema.parameters import P, ToolMemoryId
from bridge.tools.schema.signature import docstring_of, signature_of, source_of

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")


class Unit(Enum):
    CELSIUS = "C"
    KELVIN = "K"


def forecast(  # type: ignore[no-untyped-def]  # one parameter has no annotation
    city: Annotated[str, P("The city's name.", name="cityName")],
    days: Annotated[int, Field(ge=1, le=7, description="How many days.")] = 3,
    unit: Annotated[Unit, "What to measure in."] = Unit.CELSIUS,
    *,
    verbose: bool = False,
    anything=None,  # noqa: ANN001 - what is tested
) -> list[str]:
    """Tell the weather.

    Args:
        city: Not this, for P is explicit.
        verbose: Say more.
    """
    return [city, str(days), unit.name, str(verbose), anything]


def test_a_function_has_the_schema_of_its_parameters() -> None:
    schema = signature_of(forecast).schema
    Draft202012Validator.check_schema(schema)
    assert schema == {
        "type": "object",
        "properties": {
            "cityName": {"type": "string", "description": "The city's name."},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "description": "How many days.", "default": 3},
            "unit": {"$ref": "#/$defs/Unit", "description": "What to measure in.", "default": "C"},
            "verbose": {"type": "boolean", "description": "Say more.", "default": False},
            "anything": {"default": None},
        },
        "required": ["cityName"],
        "additionalProperties": False,
        "$defs": {"Unit": {"enum": ["C", "K"], "type": "string"}},
    }


def test_the_properties_stand_in_the_order_of_the_parameters() -> None:
    assert list(signature_of(forecast).schema["properties"]) == ["cityName", "days", "unit", "verbose", "anything"]


def test_arguments_are_read_under_the_names_that_python_knows() -> None:
    adapter = signature_of(forecast).adapter
    read = adapter.validate_json('{"cityName": "Bonn", "unit": "K"}', strict=True)
    assert read == {"city": "Bonn", "unit": Unit.KELVIN}


def test_the_rest_of_a_function_is_read_as_well() -> None:
    signature = signature_of(forecast)
    assert signature.description == "Tell the weather."
    assert signature.return_annotation == list[str]


def test_no_return_annotation_is_not_the_annotation_none() -> None:
    def unsaid():  # type: ignore[no-untyped-def]  # noqa: ANN202 - what is tested
        pass

    def none() -> None:
        pass

    assert signature_of(unsaid).return_annotation is Signature.empty
    assert signature_of(none).return_annotation is type(None)


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def now() -> str:
        return ""

    assert signature_of(now).schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_parameter_without_annotation_takes_any_json_value() -> None:
    def show(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - what is tested
        pass

    signature = signature_of(show)
    assert signature.schema["properties"] == {"value": {}}
    for text in ("1", "null", '"a"', '[{"b": 1.5}]'):
        assert "value" in signature.adapter.validate_json(f'{{"value": {text}}}', strict=True)


def test_what_the_context_gives_is_hidden() -> None:
    def book(
        who: Annotated[str, ToolMemoryId],
        seats: int,
        context: InvocationContext,
        parameters: InvocationParameters,
        maybe: InvocationContext | None = None,
        described: Annotated[InvocationContext, "The call."] = None,  # type: ignore[assignment]  # a careless author
        marked: Annotated[str | None, ToolMemoryId()] = None,
    ) -> None:
        pass

    signature = signature_of(book)
    assert list(signature.schema["properties"]) == ["seats"]
    assert signature.injected == {
        "who": "memory_id",
        "context": "itself",
        "parameters": "parameters",
        "maybe": "itself",
        "described": "itself",
        "marked": "memory_id",
    }


def test_bytes_are_base64_among_the_parameters() -> None:
    def save(data: bytes, more: list[bytes] = [b"\xff"]) -> None:  # noqa: B006 - what is tested
        pass

    signature = signature_of(save)
    base64 = {"type": "string", "contentEncoding": "base64"}
    assert signature.schema["properties"]["data"] == base64
    assert signature.schema["properties"]["more"] == {"type": "array", "items": base64, "default": ["_w=="]}
    assert signature.adapter.validate_json('{"data": "/+8="}', strict=True) == {"data": b"\xff\xef", "more": [b"\xff"]}


def test_a_default_that_is_no_json_is_not_shown() -> None:
    def wait(seconds: float = float("inf"), sentinel=object()) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001, B008 - what is tested
        pass

    def infinite(seconds: Annotated[float, P(default=float("inf"))]) -> None:
        pass

    assert signature_of(wait).schema["properties"] == {"seconds": {"type": "number"}, "sentinel": {}}
    assert signature_of(infinite).schema["properties"] == {"seconds": {"type": "number"}}
    assert signature_of(infinite).adapter.validate_json("{}", strict=True) == {"seconds": float("inf")}


def test_annotations_may_name_what_only_the_defining_scope_has() -> None:
    class Local(Enum):
        A = "a"

    def choose(value: Local) -> Local:
        return value

    with pytest.raises(DefinitionError, match="'value'"):
        signature_of(choose)
    assert signature_of(choose, {"Local": Local}).return_annotation is Local


def test_annotations_may_name_what_the_function_closes_over() -> None:
    class Local(Enum):
        A = "a"

    def choose(value: Local) -> str:
        return Local(value).name

    assert signature_of(choose).schema["$defs"] == {"Local": {"enum": ["a"], "type": "string"}}


def test_our_own_marks_may_be_imported_for_type_checking_only() -> None:
    namespace: dict[str, Any] = {}
    exec("from __future__ import annotations\ndef ask(context: InvocationContext): ...", namespace)
    assert signature_of(namespace["ask"]).injected == {"context": "itself"}


def test_what_a_partial_fixes_is_no_parameter() -> None:
    def send(key: str, to: str, text: str = "hi") -> None:
        """Send it."""

    signature = signature_of(functools.partial(send, "secret", text="secret"))
    assert signature.schema["properties"] == {"to": {"type": "string"}}
    assert signature.description == "Send it."


def test_a_method_has_no_self() -> None:
    class Counter:
        def add(self, n: int) -> int:
            return n

        @classmethod
        def make(cls, n: int) -> None: ...

        def __call__(self, m: int) -> None:
            """Count."""

    for function in (Counter().add, Counter.make):
        assert list(signature_of(function).schema["properties"]) == ["n"]
    assert list(signature_of(Counter()).schema["properties"]) == ["m"]
    assert docstring_of(Counter()) == "Count."


def star(*values: int) -> None: ...
def stars(**values: int) -> None: ...
def positional(a: int, /, b: int) -> None: ...
def unknown(a: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - what is tested
def for_type_checking(a: Decimal) -> None: ...
def foreign(ok: int, a: list[functools.partial[int]]) -> None: ...
def lazily_read(a: collections.abc.Iterable[int]) -> None: ...


def foreign_with_default(a: functools.partial[int] | None = None) -> None: ...
def bad_default(a: int = "x") -> None: ...  # type: ignore[assignment]  # what is tested
def none_default(a: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013 - what is tested
def out_of_range(a: Annotated[int, Field(ge=1)] = 0) -> None: ...
def two_defaults(a: Annotated[int, P(default=1)] = 2) -> None: ...
def same_name(b: int, a: Annotated[int, P(name="b")]) -> None: ...
def unknown_return() -> Unknown: ...  # type: ignore[name-defined]  # noqa: F821 - what is tested


@pytest.mark.parametrize(
    ("function", "parameter", "remedy"),
    [
        (star, "values", "give it a list parameter instead"),
        (stars, "values", "give it a dict parameter instead"),
        (positional, "a", "remove the '/'"),
        (unknown, "a", "name 'Unknown' is not defined"),
        (for_type_checking, "a", "not only under TYPE_CHECKING"),
        (bad_default, "a", "change the default"),
        (none_default, "a", "change the annotation to accept it"),
        (out_of_range, "a", "greater than or equal to 1"),
        (two_defaults, "a", "conflicting defaults, 2 and 1; keep one"),
        (same_name, "a", r"both published as 'b'; give one another name with P\(name=…\)"),
        (foreign_with_default, "a", "no JSON Schema"),
        (lazily_read, "a", r"use list\[…\]"),
    ],
)
def test_a_mistake_is_refused_with_function_parameter_and_remedy(
    function: Callable[..., Any], parameter: str, remedy: str
) -> None:
    with pytest.raises(DefinitionError, match=remedy) as caught:
        signature_of(function)
    assert f"'{parameter}'" in str(caught.value)
    assert source_of(function) in str(caught.value)


def test_a_type_without_a_schema_is_refused_by_its_parameter() -> None:
    namespace: dict[str, Any] = {}
    exec("from typing import Callable\ndef shapeless(ok: int, a: Callable[[], int]): ...", namespace)
    with pytest.raises(DefinitionError, match=r"the parameter 'a' of function 'shapeless' .* no JSON Schema"):
        signature_of(namespace["shapeless"])
    with pytest.raises(DefinitionError, match=r"the parameter 'a' of function 'foreign' .* no JSON Schema"):
        signature_of(foreign)


@pytest.mark.parametrize("annotation", [socket, list[socket], socket | int])
def test_a_type_that_is_no_data_is_named_with_a_remedy_and_without_advice_on_pydantics_insides(annotation: Any) -> None:
    def connect(a: Any) -> None: ...

    connect.__annotations__["a"] = annotation
    with pytest.raises(DefinitionError) as caught:
        signature_of(connect)
    assert str(caught.value) == (
        f"the parameter 'a' of {source_of(connect)} has a type with no JSON Schema: <class 'socket.socket'>; "
        "take a type that JSON can represent (text, number, list, dataclass, pydantic model) and convert it in the tool"
    )


@dataclass
class Button:
    on_press: Callable[[], None]


def test_what_is_data_with_something_in_it_that_is_none_is_refused_in_the_same_words() -> None:
    def press(button: Button) -> None: ...

    with pytest.raises(DefinitionError, match=r"no JSON Schema: callable; take a type that JSON can represent"):
        signature_of(press)


def test_a_return_annotation_that_cannot_be_resolved_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the return annotation of function 'unknown_return'"):
        signature_of(unknown_return)


class Unbound:
    def method(self, a: int) -> int:
        return a


def unattached(self, a: int) -> int:  # type: ignore[no-untyped-def]  # noqa: ANN001 - what is tested
    return a


@pytest.mark.parametrize("function", [Unbound.method, unattached, functools.partial(unattached, a=1)])
def test_a_method_without_its_instance_is_refused(function: Any) -> None:
    with pytest.raises(
        DefinitionError, match=r"needs an instance: its parameter 'self' .* pass the method of an object"
    ):
        signature_of(function)
    assert list(signature_of(Unbound().method).schema["properties"]) == ["a"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on Python tells all of it")
def test_a_typed_dictionary_that_python_does_not_tell_is_refused_with_the_one_that_it_does() -> None:
    import typing  # noqa: PLC0415 - the wrong module's TypedDict

    class Wrong(typing.TypedDict):
        a: int

    def take(place: Any) -> None: ...

    take.__annotations__["place"] = Wrong
    told = r"the parameter 'place' of function '.*take' .* use typing_extensions\.TypedDict"
    with pytest.raises(DefinitionError, match=told):
        signature_of(take)


def test_a_callable_that_hides_its_parameters_is_refused() -> None:
    with pytest.raises(DefinitionError, match="wrap it in a function"):
        signature_of(dict)
