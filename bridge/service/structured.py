"""Structured replies: what a method of a service returns beside text (LangChain4j's structured outputs).

A type becomes a JSON Schema that the model is held to, and its reply becomes a value of the type, read by the rules for
a tool's arguments: a fence around the JSON, a number in quotes or an enum's member by its name are understood. Types
whose JSON is no object are wrapped as ``{"value": …}``, since that is what providers want; a bare value is read too.
"""

from __future__ import annotations

import re
from types import NoneType
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.errors import ArgumentsError, BridgeError, DefinitionError
from bridge.service.chat_model import ResponseFormat
from bridge.tools.arguments import ArgumentReader, parse_arguments
from bridge.tools.schema.json_schema import schema_of
from bridge.tools.schema.signature import signature_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_VALUE = "value"
_REFERENCE = "#/$defs/"
_MAX_NAME_CHARS = 64


class ReplyMismatchError(BridgeError):
    """A reply is not what is wanted; the message tells the model what is wrong."""


class ReplyReader:
    """Reads the model's replies as values of one type; built once, when the service is built.

    Args:
        kind: The type.

    Attributes:
        response_format: What the model is held to.

    Raises:
        DefinitionError: The type has no JSON Schema.
    """

    def __init__(self, kind: Any) -> None:
        def reply(value: Any) -> None:
            """Stand for the one parameter that the reply is read as."""

        reply.__annotations__ = {_VALUE: kind, "return": None}
        signature = signature_of(reply)
        self._reader = ArgumentReader("the reply", signature.adapter, signature.internal_schema)
        schema = _with_object_root(schema_of(kind))
        self._is_wrapped = schema.get("type") != "object"
        self.response_format = ResponseFormat(_wrapped(schema) if self._is_wrapped else schema, _name_of(kind))

    def read(self, text: str) -> Any:
        """The value that a reply is.

        Raises:
            ReplyMismatchError: It is none.
        """
        try:
            return self._reader.read({_VALUE: self._parsed(text)})[_VALUE]
        except ArgumentsError as error:
            raise ReplyMismatchError("; ".join(_without_wrapper(str(each)) for each in error.problems)) from error

    def fits(self, data: Any) -> tuple[bool, Any]:
        """Whether JSON data is a value of the type, and the value."""
        try:
            return True, self._reader.read({_VALUE: data})[_VALUE]
        except ArgumentsError:
            return False, None

    def _parsed(self, text: str) -> Any:
        try:
            value = parse_arguments("the reply", text)
        except ArgumentsError:
            if not self._is_wrapped:
                raise
            return _bare(text)
        return value[_VALUE] if self._is_wrapped and value.keys() == {_VALUE} else value


def _bare(text: str) -> Any:
    """A reply that is no object: JSON, or text."""
    try:
        return from_json(text.strip(), allow_inf_nan=False)
    except ValueError:
        return text.strip()


def _with_object_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with what its root refers to written out: providers want an object at the root."""
    reference = schema.get("$ref")
    if reference is None:
        return dict(schema)
    definition = schema["$defs"][reference.removeprefix(_REFERENCE)]
    return {**definition, "$defs": schema["$defs"]}


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    definitions = schema.pop("$defs", None)
    wrapped: dict[str, Any] = {
        "type": "object",
        "properties": {_VALUE: schema},
        "required": [_VALUE],
        "additionalProperties": False,
    }
    return wrapped if definitions is None else {**wrapped, "$defs": definitions}


def _without_wrapper(problem: str) -> str:
    return problem.removeprefix(f"{_VALUE}.").removeprefix(f"{_VALUE}: ")


def _name_of(kind: Any) -> str:
    name = getattr(kind, "__name__", None) or str(kind)
    return re.sub(r"\W+", "_", name).strip("_")[:_MAX_NAME_CHARS] or "response"


def reply_reader_of(kind: Any, source: str) -> ReplyReader:
    """A reader of replies for a method.

    Args:
        kind: What the method returns.
        source: The method, for messages.

    Raises:
        DefinitionError: The model cannot be made to reply with such a thing.
    """
    refusal = f"{source} returns {kind!r}, which a model cannot reply with; return str, data, Result or TokenStream"
    if kind in (None, NoneType):
        raise DefinitionError(refusal)
    try:
        return ReplyReader(kind)
    except DefinitionError as error:
        raise DefinitionError(refusal) from error
