"""Conversion of a function's return value into a `ToolExecutionResult`.

The function's return annotation selects the conversion when the tool is registered:

    None                                      "Success"
    str, Literal of strings                   the text; no output schema
    a type with a JSON Schema                 compact JSON and structured content that conforms to the output schema
    none, Any, content, unions with str       depends on the returned value; no output schema

If it depends on the value, strings become text, content blocks and bytes become content, and everything else JSON.
A returned `ToolExecutionResult` is passed through unchanged.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection, MutableSequence, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, LiteralString, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, from_json, to_json

from bridge.errors import ResultError
from bridge.tools.arguments.coercion import paths_of_non_finite
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.content import Block, File, Text
from bridge.tools.schema.annotations import bare_type, union_members
from bridge.tools.schema.generator import SCHEMA_ERRORS, TOP_LEVEL, completed, output_schema
from bridge.tools.specification import _EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools.content import Content

SUCCESS = "Success"
"""Text sent to the model when a function returns None; the same word as LangChain4j."""

_WRAPPER = "result"
_WRAPPED = b'{"result":%b}'
_JSON_OF_TEXT = b'"content":[{"type":"text","text":%b}],"isError":false'
_JSON = _JSON_OF_TEXT + b',"structuredContent":%b'
_MAX_DEPTH = 100
"""Depth up to which JSON is always accepted by readers."""
_NOT_FINITE = "a number in it is not finite"
_BINARY = (bytes, bytearray, memoryview)
_SCALARS = frozenset({bool, int, str})
"""Types whose values, not those of their subclasses, are JSON data as they are."""

_SEQUENCES = (list, tuple, set, frozenset)
_BLOCK_LIKE = (Block, *_BINARY)
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
_CONTENT = (*_BLOCK_LIKE, ToolExecutionResult)
_SEQUENCE_TYPES = (*_SEQUENCES, Sequence, MutableSequence, Collection)


class ResultWriter:
    """Converts the return values of one tool; built once, when the tool is registered.

    Attributes:
        output_schema: JSON Schema of type ``object`` for structured content; None if the tool declares none. Types that
            are not objects are wrapped under ``result``.
        write: Converts a return value into a result; raises `ResultError` if the value cannot be sent, or does not
            match the declared type.
        write_json: Does the same, but returns a usual result as JSON: the members of MCP's ``CallToolResult``, without
            its braces.
    """

    output_schema: dict[str, Any] | None
    write: Callable[[Any], ToolExecutionResult]
    write_json: Callable[[Any], bytes | ToolExecutionResult]

    def __init__(
        self, tool_name: str, annotation: Any, noun: str = "tool", *, local_names: Mapping[str, Any] | None = None
    ) -> None:
        self._tool, self._noun = tool_name, noun
        self._annotation, self._local_names = annotation, local_names
        self.output_schema = None
        self.write_json = self._text_as_json
        if annotation is inspect.Signature.empty:
            self.write = self._write_unannotated
        elif is_none_type(annotation):
            self.write = self._write_nothing
        elif is_text_type(annotation):
            self.write = self._write_text
        elif is_open_type(annotation) or is_content_type(annotation) or not self._declare(annotation):
            self.write = self._write_by_value
        else:
            self.write = self._write_declared
            self.write_json = self._scalar_as_json if self._is_scalar and self._wraps else self._declared_as_json

    def _declare(self, annotation: Any) -> bool:
        """Prepare the adapter and output schema of a declared type; return False if no schema restricts its values."""
        try:
            self._adapter = completed(_adapter(annotation), self._local_names)
            schema = output_schema(self._adapter)
        except SCHEMA_ERRORS:  # no output schema; the value may still be serializable
            return False
        if not schema:
            return False
        self._wraps = not _is_object(schema, schema)
        self._is_scalar = schema.get("type") in ("integer", "boolean", "string")
        self._validate = self._adapter.validator.validate_python
        self._dump = self._adapter.serializer.to_json
        self.output_schema = _wrapped_schema(schema) if self._wraps else {**schema, "type": "object"}
        return True

    def _write_declared(self, value: Any) -> ToolExecutionResult:
        if isinstance(value, ToolExecutionResult):
            return value
        validated, raw = self._dumped(value)
        try:
            data = validated if type(validated) in _SCALARS else from_json(raw)
        except ValueError as error:
            raise self._unsendable(validated, error) from error
        structured = {_WRAPPER: data} if self._wraps else data
        return ToolExecutionResult((Text(raw.decode()),), structured, False, _EMPTY, _EMPTY, None, value)

    def _declared_as_json(self, value: Any) -> bytes | ToolExecutionResult:
        if isinstance(value, ToolExecutionResult):
            return value
        _, raw = self._dumped(value)
        if raw.count(b"[") + raw.count(b"{") > _MAX_DEPTH:
            return self._write_declared(value)  # may be nested too deeply
        return _JSON % (to_json(raw.decode()), _WRAPPED % raw if self._wraps else raw)

    def _scalar_as_json(self, value: Any) -> bytes | ToolExecutionResult:
        try:
            raw = self._dump(self._validate(value))
        except Exception:  # noqa: BLE001 - raised again, with its reason
            return self._write_declared(value)
        return _JSON % (to_json(raw.decode()), _WRAPPED % raw)

    def _text_as_json(self, value: Any) -> bytes | ToolExecutionResult:
        if isinstance(value, str) and self.write != self._write_nothing:
            return _JSON_OF_TEXT % to_json(self.checked_text(value))
        return self.write(value)

    def _dumped(self, value: Any) -> tuple[Any, bytes]:
        """Return the validated value of a declared type, and its compact JSON."""
        try:
            value = self._validate(value)
        except ValidationError as error:
            if {detail["type"] for detail in error.errors(include_url=False, include_input=False)} == {"finite_number"}:
                raise self._unsendable(value, ValueError(_NOT_FINITE)) from error
            raise self._mismatch(value) from error
        except Exception as error:
            raise self._unsendable(value, error) from error
        try:
            # pydantic does not revalidate instances of models and dataclasses; serialization warnings reveal attributes
            # that were set to invalid values later
            raw = self._dump(value) if self._is_scalar else self._dump(value, by_alias=True, warnings="error")
        except Exception as error:
            raise self._unsendable(value, error) from error
        if not self._is_scalar:
            self._refuse_non_finite(value, raw, self._adapter)
        return value, raw

    def _write_nothing(self, value: Any) -> ToolExecutionResult:
        return value if isinstance(value, ToolExecutionResult) else ToolExecutionResult((Text(SUCCESS),))

    def _write_text(self, value: Any) -> ToolExecutionResult:
        if isinstance(value, str):
            return ToolExecutionResult((Text(self.checked_text(value)),), value=value)
        if isinstance(value, ToolExecutionResult):
            return value
        raise self._mismatch(value)

    def _write_unannotated(self, value: Any) -> ToolExecutionResult:
        return self._write_nothing(value) if value is None else self._write_by_value(value)

    def _write_by_value(self, value: Any) -> ToolExecutionResult:
        if isinstance(value, str):
            return ToolExecutionResult((Text(self.checked_text(value)),), value=value)
        if isinstance(value, ToolExecutionResult):
            return value
        if isinstance(value, _BLOCK_LIKE):
            return ToolExecutionResult((self._block(value, 0),), value=value)
        if isinstance(value, _SEQUENCES) and any(isinstance(item, _BLOCK_LIKE) for item in value):
            return ToolExecutionResult(tuple(self._block(item, i) for i, item in enumerate(value)), value=value)
        raw = self._json(value)
        try:
            data = from_json(raw)
        except ValueError as error:
            raise self._unsendable(value, error) from error
        structured = data if isinstance(data, dict) else {_WRAPPER: data}
        return ToolExecutionResult((Text(raw.decode()),), structured, value=value)

    def _block(self, item: Any, position: int) -> Content:
        """Convert one item of a sequence that contains content blocks."""
        if isinstance(item, Block):
            content: Content = item  # type: ignore[assignment]  # the kinds of content are the kinds of block
            return content
        if isinstance(item, str):
            return Text(self.checked_text(item))
        if isinstance(item, _BINARY):
            return File(f"tool:///{self._tool}/result/{position}", bytes(item), "application/octet-stream")
        return Text(self._json(item).decode())

    def _json(self, value: Any) -> bytes:
        """Return the compact JSON of a value of any type."""
        try:
            raw = to_json(value, bytes_mode="base64")
        except Exception as error:
            raise self._unsendable(value, error) from error
        self._refuse_non_finite(value, raw, _ANYTHING)
        return raw

    def checked_text(self, value: str) -> str:
        """Return a text that can be sent.

        Raises:
            ResultError: It has lone surrogates.
        """
        value = str.__str__(value)  # str() of an enum of strings returns the member's name
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise self._unsendable(value, error) from error
        return value

    def _refuse_non_finite(self, value: Any, raw: bytes, adapter: TypeAdapter[Any]) -> None:
        """Reject non-finite numbers, which JSON cannot represent and pydantic may have written as null."""
        # `find`, since "in" takes three times as long for bytes.
        is_suspect = raw.find(b"null") >= 0 or raw.find(b"NaN") >= 0 or raw.find(b"Infinity") >= 0
        if is_suspect and any(True for _ in paths_of_non_finite(adapter.dump_python(value, warnings=False))):
            raise self._unsendable(value, ValueError(_NOT_FINITE))

    def _mismatch(self, value: Any) -> ResultError:
        declared = inspect.formatannotation(self._annotation)
        returned = f"a value of type {_type_name(value)!r} that does not conform to {declared!r}"
        return ResultError(self._tool, returned, self._noun)

    def _unsendable(self, value: Any, error: Exception) -> ResultError:
        returned = f"a value of type {_type_name(value)!r} that cannot be sent as JSON{_harmless_reason(error)}"
        return ResultError(self._tool, returned, self._noun)


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=TOP_LEVEL)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(annotation)  # models have their own configuration


def _type_name(value: Any) -> str:
    return type(value).__qualname__


def _harmless_reason(error: Exception) -> str:
    """Return the reason why a value cannot be sent, without revealing the value."""
    message = str(error)
    if isinstance(error, PydanticSerializationError) and message.startswith("Unable to serialize unknown type"):
        return f": {message[0].lower()}{message[1:]}"
    if "Circular reference" in message:
        return ": it contains itself"
    if message == _NOT_FINITE:
        return f": {message}"
    if "depth exceeded" in message or "recursion limit" in message:
        return ": it is nested too deeply"
    return f" ({type(error).__name__})"


def _is_object(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Return True if every value that conforms to the schema is an object."""
    if "$ref" in schema:
        return _is_object(root.get("$defs", {})[schema["$ref"].removeprefix("#/$defs/")], root)
    alternatives: Sequence[Mapping[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or ()
    if alternatives:
        return all(_is_object(alternative, root) for alternative in alternatives)
    return schema.get("type") == "object"


def _wrapped_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped: dict[str, Any] = {"type": "object", "properties": {_WRAPPER: inner}, "required": [_WRAPPER]}
    return {**wrapped, "$defs": schema["$defs"]} if "$defs" in schema else wrapped


def is_none_type(annotation: Any) -> bool:
    """Return True if the function returns None."""
    return bare_type(annotation) in (None, types.NoneType)


def is_text_type(annotation: Any) -> bool:
    """Return True for `str` and for Literals of strings; enums of strings are sent as JSON."""
    annotation = bare_type(annotation)
    if get_origin(annotation) is Literal:
        return all(type(choice) is str for choice in get_args(annotation))
    if annotation is LiteralString:
        return True
    return isinstance(annotation, type) and issubclass(annotation, str) and not issubclass(annotation, Enum)


def is_open_type(annotation: Any) -> bool:
    """Return True if the annotation is Any, object, or a union with one of these or `str`."""
    annotation = bare_type(annotation)
    return annotation in (Any, object) or any(
        is_open_type(alternative) or is_text_type(alternative) for alternative in union_members(annotation)
    )


def is_content_type(annotation: Any) -> bool:
    """Return True if the annotation is or contains a content block, bytes or `ToolExecutionResult`."""
    annotation = bare_type(annotation)
    if isinstance(annotation, type) and issubclass(annotation, _CONTENT):
        return True
    if any(map(is_content_type, union_members(annotation))):
        return True
    if (get_origin(annotation) or annotation) not in _SEQUENCE_TYPES:
        return False
    items = [item for item in get_args(annotation) if item is not ...]
    return not items or any(map(_may_be_block, items))


def _may_be_block(annotation: Any) -> bool:
    annotation = bare_type(annotation)
    return (
        annotation in (Any, object) or is_content_type(annotation) or any(map(_may_be_block, union_members(annotation)))
    )
