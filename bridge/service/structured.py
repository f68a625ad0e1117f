"""Structured replies: return types of service methods other than text (LangChain4j's structured outputs).

The type's JSON Schema is sent to the model, and its reply is parsed by the rules for tool arguments: a code fence
around the JSON, numbers in quotes and names of enum members are accepted. Types that are not JSON objects are wrapped
as ``{"value": …}``, since providers require an object; a bare value is accepted as well.
"""

from __future__ import annotations

import re
from types import NoneType
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.errors import ArgumentsError, BridgeError, DefinitionError
from bridge.service.chat_model import ResponseFormat
from bridge.tools.arguments.reader import ArgumentReader, parse_arguments
from bridge.tools.schema.generator import schema_of
from bridge.tools.schema.signature import signature_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_VALUE = "value"
_REFERENCE = "#/$defs/"
_MAX_NAME_CHARS = 64


class ReplyMismatchError(BridgeError):
    """A reply does not match the return type; the message is meant for the model."""


class ReplyReader:
    """Parses the model's replies into values of one type; built once per method.

    Attributes:
        response_format: Format for the request to the model.

    Raises:
        DefinitionError: The type has no JSON Schema.
    """

    def __init__(self, kind: Any) -> None:
        def reply(value: Any) -> None:
            """Dummy function whose only parameter has the return type."""

        reply.__annotations__ = {_VALUE: kind, "return": None}
        signature = signature_of(reply)
        self._reader = ArgumentReader("the reply", signature.adapter, signature.internal_schema)
        schema = _with_object_root(schema_of(kind))
        self._is_wrapped = schema.get("type") != "object"
        self.response_format = ResponseFormat(_wrapped(schema) if self._is_wrapped else schema, _name_of(kind))

    def read(self, text: str) -> Any:
        """Parse a reply, or raise `ReplyMismatchError`."""
        try:
            return self._reader.read({_VALUE: self._parsed(text)})[_VALUE]
        except ArgumentsError as error:
            raise ReplyMismatchError("; ".join(_without_wrapper(str(problem)) for problem in error.problems)) from error

    def fits(self, data: Any) -> tuple[bool, Any]:
        """Return True and the parsed value if JSON data matches the type; otherwise False and None."""
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
    """Parse a reply that is not an object: other JSON, or plain text."""
    try:
        return from_json(text.strip(), allow_inf_nan=False)
    except ValueError:
        return text.strip()


def _with_object_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Replace a ``$ref`` at the root by its definition, since providers require an object there."""
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
    """Create the reader for a method's replies; types that a model cannot reply with are refused."""
    refusal = f"{source} returns {kind!r}, which a model cannot reply with; return str, data, Result or TokenStream"
    if kind in (None, NoneType):
        raise DefinitionError(refusal)
    try:
        return ReplyReader(kind)
    except DefinitionError as error:
        raise DefinitionError(refusal) from error
