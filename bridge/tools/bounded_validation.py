"""Validators of JSON text that stop at the first bad item of a collection, so that input cannot multiply errors.

pydantic collects every error before it raises: four megabytes of ``{}`` for a list of models become a gigabyte of
errors. A rewritten core schema lets each list, set, tuple and dict fail at its first bad item, at any depth. What an
input can cause is then bounded by the schema alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import SchemaValidator, core_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import TypeAdapter

_ITEMS = {
    "dict": "values_schema",
    "frozenset": "items_schema",
    "list": "items_schema",
    "set": "items_schema",
    "tuple": "items_schema",
}
"""The collections, and the key under which each holds the schema of its items."""

_NO_SCHEMA = frozenset({"config", "default", "expected", "members", "metadata", "serialization"})
"""The keys of core schemas whose values hold no schemas, and may look like some."""


def bounded_validate_json(adapter: TypeAdapter[Any], *, yields: bool = False) -> Callable[..., Any]:
    """The ``validate_json`` of an adapter's type that stops at the first bad item of each collection.

    Args:
        adapter: Says what the type is.
        yields: Let other threads run after each item of a collection. pydantic holds the interpreter's lock throughout
            otherwise; a Python function that it calls gives the lock up when another thread wants it.
    """
    if not _has_collection(adapter.core_schema):
        return adapter.validator.validate_json
    # A model's own validator would be taken instead of the rewritten schema; there is no public way to say so.
    return SchemaValidator(_bounded(adapter.core_schema, yields=yields), _use_prebuilt=False).validate_json


def _has_collection(schema: Any) -> bool:
    if isinstance(schema, list | tuple):
        return any(map(_has_collection, schema))
    if not isinstance(schema, dict):
        return False
    return schema.get("type") in _ITEMS or any(
        _has_collection(value) for key, value in schema.items() if key not in _NO_SCHEMA
    )


def _bounded(schema: Any, *, yields: bool) -> Any:
    if isinstance(schema, list | tuple):
        return type(schema)(_bounded(each, yields=yields) for each in schema)
    if not isinstance(schema, dict):
        return schema
    written = {key: value if key in _NO_SCHEMA else _bounded(value, yields=yields) for key, value in schema.items()}
    key = _ITEMS.get(schema.get("type", ""))
    if key is not None:
        written["fail_fast"] = True
        if yields:
            items = written.get(key, core_schema.any_schema())
            written[key] = list(map(_yielding, items)) if isinstance(items, list) else _yielding(items)
    return written


def _yielding(schema: Any) -> core_schema.CoreSchema:
    return core_schema.no_info_after_validator_function(_unchanged, schema)


def _unchanged(value: Any) -> Any:
    return value
