"""JSON validators that stop at the first bad item of each collection.

pydantic collects all errors before it raises: four megabytes of ``{}`` for a list of models become a gigabyte of
errors. In a rewritten core schema each list, set, tuple and dict fails at its first bad item, at any depth, so that the
number of errors is bounded by the schema.
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
"""Collection types, and the key of their item schema."""

_NO_SCHEMA = frozenset({"config", "default", "expected", "members", "metadata", "serialization"})
"""Keys of core schemas whose values are not schemas, but may look like them."""


def bounded_validate_json(adapter: TypeAdapter[Any], *, yields: bool = False) -> Callable[..., Any]:
    """Return the adapter's ``validate_json``, changed to stop at the first bad item of each collection.

    Args:
        adapter: Adapter of the type.
        yields: Let other threads run after each item of a collection, by calling a Python function. Otherwise pydantic
            holds the interpreter's lock until it finishes.
    """
    if not _has_collection(adapter.core_schema):
        return adapter.validator.validate_json
    # pydantic would use a model's own validator in place of the rewritten schema; no public option prevents that.
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
        return type(schema)(_bounded(item, yields=yields) for item in schema)
    if not isinstance(schema, dict):
        return schema
    bounded = {key: value if key in _NO_SCHEMA else _bounded(value, yields=yields) for key, value in schema.items()}
    key = _ITEMS.get(schema.get("type", ""))
    if key is not None:
        bounded["fail_fast"] = True
        if yields:
            items = bounded.get(key, core_schema.any_schema())
            bounded[key] = list(map(_yielding, items)) if isinstance(items, list) else _yielding(items)
    return bounded


def _yielding(schema: Any) -> core_schema.CoreSchema:
    return core_schema.no_info_after_validator_function(_unchanged, schema)


def _unchanged(value: Any) -> Any:
    return value
