"""Schemas that are rewritten, and the reasons why some cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.models.profiles.rewriting import RewrittenSchema

SEARCH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1, "description": "What to look for."},
        "limit": {"type": "integer", "minimum": 1, "default": 10},
        "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
        "area": {"$ref": "#/$defs/Area", "description": "Where."},
    },
    "required": ["text"],
    "$defs": {
        "Area": {
            "type": "object",
            "properties": {"north": {"type": "number"}, "name": {"type": "string"}},
            "required": ["north"],
        }
    },
}


def obj(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties, "required": list(required), **more}


def reason(rewriting: RewrittenSchema) -> str:
    """Return the reason why a copy is not strict."""
    assert not rewriting.is_strict
    return rewriting.losses[-1].removeprefix("strictness: ")
