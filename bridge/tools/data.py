"""Structured content as Python values, by the output schema of its tool (MCP, "Output Schema").

A schema comes from a server: it decides about the form of a value only, and what does not fit stays as it is.
"""

from __future__ import annotations

import datetime as dt
from base64 import b64decode
from dataclasses import make_dataclass
from functools import lru_cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_REFERENCES = 32
_CACHED_CLASSES = 256
_DURATION: TypeAdapter[dt.timedelta] = TypeAdapter(dt.timedelta)
_FORMATS: Mapping[str, Callable[[str], Any]] = {
    "date-time": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time": dt.time.fromisoformat,
    "duration": _DURATION.validate_python,
    "uuid": UUID,
    "binary": b64decode,
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def data_of(content: Any, schema: Mapping[str, Any] | None) -> Any:
    """Return structured content as a Python value.

    Args:
        content: The structured content.
        schema: The output schema; None if it is unknown.
    """
    if not isinstance(schema, dict):
        return content
    reader = _Reader(schema)
    properties = schema.get("properties")
    if isinstance(properties, dict) and [*properties] == schema.get("required") == ["result"] and _is_wrapped(content):
        return reader.read(content["result"], properties["result"])
    return reader.read(content, schema)


def _is_wrapped(content: Any) -> bool:
    """True for an object in the form in which servers wrap what is not an object."""
    return isinstance(content, dict) and [*content] == ["result"]


class _Reader:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def read(self, value: Any, schema: Any) -> Any:
        schema = self._resolved(schema)
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(options, list):
            schema = next((each for each in map(self._resolved, options) if _fits(value, each)), {})
        match value:
            case str():
                return _text(value, schema.get("format"))
            case list():
                items = schema.get("items")
                return [self.read(each, items) for each in value]
            case dict():
                return self._object(value, schema)
        return value

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any]) -> Any:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            others = schema.get("additionalProperties")
            return {name: self.read(each, others) for name, each in value.items()}
        read = {name: self.read(each, properties.get(name)) for name, each in value.items()}
        names = tuple(properties)
        if not (value.keys() <= properties.keys() and all(map(_is_field, names))):
            return read
        title = schema.get("title")
        return _class(title if isinstance(title, str) and title.isidentifier() else "Data", names)(**read)

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        for _ in range(_MAX_REFERENCES):
            if not isinstance(schema, dict):
                break
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            schema = self._root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        return {}


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    if not isinstance(kind, str):
        return True
    return isinstance(value, _TYPES.get(kind, ())) and isinstance(value, bool) is (kind == "boolean")


def _text(value: str, form: Any) -> Any:
    read = _FORMATS.get(form) if isinstance(form, str) else None
    try:
        return value if read is None else read(value)
    except ValueError:
        return value


def _is_field(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and not iskeyword(name) and not name.startswith("_")


@lru_cache(_CACHED_CLASSES)
def _class(name: str, fields: tuple[str, ...]) -> type[Any]:
    return make_dataclass(name, [(each, Any, None) for each in fields])
