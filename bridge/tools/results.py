"""Return values to ToolExecutionResult.

Results: from what a function returned to what a model reads and a remote client gets.

Which way a tool's values go is decided by its return annotation when it is registered:

    None                                      Success
    str, texts to choose from                 the text; no output schema, so that a model sees one form
    a type with a JSON Schema                 compact JSON; structured content that conforms to the output schema
    none, Any, content, str among others      what the value itself asks for; no output schema

Where the value decides: text is text, content blocks and bytes are content, everything else is JSON. A
`ToolExecutionResult` is always itself.

Return type: what a return annotation promises about a tool's results.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection, MutableSequence, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, LiteralString, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, from_json, to_json
from typing_extensions import TypeAliasType

from bridge.errors import ResultError
from bridge.tools.coercion import paths_of_non_finite
from bridge.tools.content import Block, File, Text
from bridge.tools.schema.generator import SCHEMA_ERRORS, TOP_LEVEL, output_schema
from bridge.tools.tool import ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools.content import Content

SUCCESS = "Success"
"""What a model reads where a function has nothing to say (LangChain4j's word)."""

_WRAPPER = "result"

_NOT_FINITE = "a number in it is not finite"

_BINARY = (bytes, bytearray, memoryview)

_SEQUENCES = (list, tuple, set, frozenset)

_BLOCK_LIKE = (Block, *_BINARY)

_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)

_CONTENT = (Block, bytes, bytearray, memoryview, ToolExecutionResult)

_SEQUENCE_TYPES = (list, tuple, set, frozenset, Sequence, MutableSequence, Collection)


class ResultWriter:
    """Writes what one tool returns; built once, when the tool is registered.

    Args:
        tool_name: The tool's name, for errors.
        annotation: The resolved return annotation.
        has_annotation: Whether the function has one.

    Attributes:
        output_schema: The JSON Schema, of type ``object``, to which structured content conforms; None where none is
            promised. A type whose values are no objects is wrapped under ``result``.
        write: Makes a result of what the function returned; raises `ResultError` for a value that cannot be sent, or
            is not what the function declares.
    """

    __slots__ = (
        "_adapter",
        "_annotation",
        "_dump",
        "_is_scalar",
        "_tool",
        "_validate",
        "_wraps",
        "output_schema",
        "write",
    )

    output_schema: dict[str, Any] | None
    write: Callable[[Any], ToolExecutionResult]

    def __init__(self, tool_name: str, annotation: Any, has_annotation: bool) -> None:
        self._tool = tool_name
        self._annotation = annotation
        self.output_schema = None
        if not has_annotation:
            self.write = self._write_unannotated
        elif is_none_type(annotation):
            self.write = self._write_nothing
        elif is_text_type(annotation):
            self.write = self._write_text
        elif is_open_type(annotation) or is_content_type(annotation) or not self._declare(annotation):
            self.write = self._write_by_value
        else:
            self.write = self._write_declared

    def _declare(self, annotation: Any) -> bool:
        """Prepare for a declared type; whether it says anything about its values."""
        try:
            self._adapter = _adapter(annotation)
            schema = output_schema(self._adapter)
        except SCHEMA_ERRORS:  # a value is still sent if it can be
            return False
        self._wraps = not _is_object(schema, schema)
        self._is_scalar = schema.get("type") in ("integer", "boolean", "string")
        self._validate = self._adapter.validator.validate_python
        self._dump = self._adapter.serializer.to_json
        self.output_schema = _wrapped_schema(schema) if self._wraps else {**schema, "type": "object"}
        return bool(schema)

    def _write_declared(self, value: Any) -> ToolExecutionResult:
        if isinstance(value, ToolExecutionResult):
            return value
        try:
            value = self._validate(value)
        except ValidationError as error:
            if {each["type"] for each in error.errors(include_url=False, include_input=False)} == {"finite_number"}:
                raise self._unsendable(value, ValueError(_NOT_FINITE)) from error
            raise self._mismatch(value) from error
        except Exception as error:
            raise self._unsendable(value, error) from error
        try:
            # instances are not validated again: serialising tells what was put into them since; it takes its time
            raw = self._dump(value) if self._is_scalar else self._dump(value, by_alias=True, warnings="error")
            data = from_json(raw)
        except Exception as error:
            raise self._unsendable(value, error) from error
        if not self._is_scalar:
            self._refuse_non_finite(value, raw, self._adapter)
        return ToolExecutionResult((Text(raw.decode()),), {_WRAPPER: data} if self._wraps else data)

    def _write_nothing(self, value: Any) -> ToolExecutionResult:
        return value if isinstance(value, ToolExecutionResult) else ToolExecutionResult((Text(SUCCESS),))

    def _write_text(self, value: Any) -> ToolExecutionResult:
        if isinstance(value, str):
            return ToolExecutionResult((Text(self._text(value)),))
        if isinstance(value, ToolExecutionResult):
            return value
        raise self._mismatch(value)

    def _write_unannotated(self, value: Any) -> ToolExecutionResult:
        return self._write_nothing(value) if value is None else self._write_by_value(value)

    def _write_by_value(self, value: Any) -> ToolExecutionResult:
        if isinstance(value, str):
            return ToolExecutionResult((Text(self._text(value)),))
        if isinstance(value, ToolExecutionResult):
            return value
        if isinstance(value, _BLOCK_LIKE):
            return ToolExecutionResult((self._block(value, 0),))
        if isinstance(value, _SEQUENCES) and any(isinstance(item, _BLOCK_LIKE) for item in value):
            return ToolExecutionResult(tuple(self._block(item, i) for i, item in enumerate(value)))
        raw = self._json(value)
        try:
            data = from_json(raw)
        except ValueError as error:
            raise self._unsendable(value, error) from error
        return ToolExecutionResult((Text(raw.decode()),), data if isinstance(data, dict) else {_WRAPPER: data})

    def _block(self, item: Any, position: int) -> Content:
        """One item of a result that consists of blocks."""
        if isinstance(item, Block):
            content: Content = item  # type: ignore[assignment]  # the kinds of content are the kinds of block
            return content
        if isinstance(item, str):
            return Text(self._text(item))
        if isinstance(item, _BINARY):
            return File(f"tool:///{self._tool}/result/{position}", bytes(item), "application/octet-stream")
        return Text(self._json(item).decode())

    def _json(self, value: Any) -> bytes:
        """The compact JSON text of a value of any type."""
        try:
            raw = to_json(value, bytes_mode="base64")
        except Exception as error:
            raise self._unsendable(value, error) from error
        self._refuse_non_finite(value, raw, _ANYTHING)
        return raw

    def _text(self, value: str) -> str:
        value = str.__str__(value)  # an enum of strings has words of its own for str()
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise self._unsendable(value, error) from error
        return value

    def _refuse_non_finite(self, value: Any, raw: bytes, adapter: TypeAdapter[Any]) -> None:
        """Refuse what JSON has no number for, and what pydantic may have written as null."""
        is_suspect = b"null" in raw or b"NaN" in raw or b"Infinity" in raw
        if is_suspect and any(True for _ in paths_of_non_finite(adapter.dump_python(value, warnings=False))):
            raise self._unsendable(value, ValueError(_NOT_FINITE))

    def _mismatch(self, value: Any) -> ResultError:
        declared = inspect.formatannotation(self._annotation)
        return ResultError(self._tool, f"a value of type {_type_name(value)!r} that does not conform to {declared!r}")

    def _unsendable(self, value: Any, error: Exception) -> ResultError:
        return ResultError(
            self._tool, f"a value of type {_type_name(value)!r} that cannot be sent as JSON{_harmless_reason(error)}"
        )


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=TOP_LEVEL)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(annotation)  # a model's own configuration decides


def _type_name(value: Any) -> str:
    return type(value).__qualname__


def _harmless_reason(error: Exception) -> str:
    """Why a value cannot be sent, where saying it tells nothing of the value."""
    said = str(error)
    if isinstance(error, PydanticSerializationError) and said.startswith("Unable to serialize unknown type"):
        return f": {said[0].lower()}{said[1:]}"
    if "Circular reference" in said:
        return ": it contains itself"
    if said == _NOT_FINITE:
        return f": {said}"
    if "depth exceeded" in said or "recursion limit" in said:
        return ": it is nested too deeply"
    return f" ({type(error).__name__})"


def _is_object(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether all that conforms to a schema is an object."""
    if "$ref" in schema:
        return _is_object(root.get("$defs", {})[schema["$ref"].removeprefix("#/$defs/")], root)
    alternatives: Sequence[Mapping[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or ()
    if alternatives:
        return all(_is_object(each, root) for each in alternatives)
    return schema.get("type") == "object"


def _wrapped_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped: dict[str, Any] = {"type": "object", "properties": {_WRAPPER: inner}, "required": [_WRAPPER]}
    return {**wrapped, "$defs": schema["$defs"]} if "$defs" in schema else wrapped


def is_none_type(annotation: Any) -> bool:
    """The function returns nothing."""
    return _bare(annotation) in (None, types.NoneType)


def is_text_type(annotation: Any) -> bool:
    """The function returns text: `str`, or one of some texts. An enum of texts is JSON data."""
    annotation = _bare(annotation)
    if get_origin(annotation) is Literal:
        return all(type(choice) is str for choice in get_args(annotation))
    if annotation is LiteralString:
        return True
    return isinstance(annotation, type) and issubclass(annotation, str) and not issubclass(annotation, Enum)


def is_open_type(annotation: Any) -> bool:
    """The function may return anything, or text among other things: the value has to tell what it is."""
    annotation = _bare(annotation)
    return annotation in (Any, object) or any(
        is_open_type(each) or is_text_type(each) for each in _alternatives(annotation)
    )


def is_content_type(annotation: Any) -> bool:
    """The function may return blocks of content, bytes, a list with one of these, or a whole result."""
    annotation = _bare(annotation)
    if isinstance(annotation, type) and issubclass(annotation, _CONTENT):
        return True
    if any(map(is_content_type, _alternatives(annotation))):
        return True
    if (get_origin(annotation) or annotation) not in _SEQUENCE_TYPES:
        return False
    items = [each for each in get_args(annotation) if each is not ...]
    return not items or any(map(_may_be_block, items))


def _may_be_block(annotation: Any) -> bool:
    annotation = _bare(annotation)
    return (
        annotation in (Any, object) or is_content_type(annotation) or any(map(_may_be_block, _alternatives(annotation)))
    )


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()


def _bare(annotation: Any) -> Any:
    """A type without what was written around it: metadata, aliases and new names."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        else:
            return annotation
