"""Schemas as a server may write them, right or wrong."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_KEYWORDS = ("type", "properties", "required", "anyOf", "oneOf", "allOf", "enum", "const", "items", "$ref", "default")
_WORDS = st.sampled_from(["object", "array", "string", "integer", "a", "#/properties/a", "no\nsuch", ""])
_NOISE = st.one_of(st.none(), st.booleans(), st.integers(), _WORDS, st.just(float("inf")))


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schema = st.dictionaries(st.sampled_from(_KEYWORDS), inner, max_size=4)
    return st.one_of(st.lists(inner, max_size=3), schema, st.dictionaries(st.just("a"), inner))


_ANYTHING = st.recursive(_NOISE, _deeper, max_leaves=15)

JSON_SCHEMA_LIKE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"properties": st.one_of(st.fixed_dictionaries({"a": _ANYTHING}), _ANYTHING)},
    optional=dict.fromkeys(("required", "anyOf", "additionalProperties"), _ANYTHING),
)
"""An object in which each keyword may have any value."""
