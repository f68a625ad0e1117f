"""Inlining: definitions written out where they are referred to, for readers that follow no references."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.models.profiles.keywords import BOOLEAN_OR_SCHEMA, SCHEMA, SCHEMA_LIST, SCHEMA_MAP
from bridge.models.profiles.normalization import reference_in

if TYPE_CHECKING:
    from typing import Any

    from bridge.models.profiles.normalization import NormalSchema
    from bridge.types import Json

MAX_NODES = 5_000
"""How many schemas the result may have; definitions that refer to one another twice would grow without bound."""


class _TooLargeError(Exception):
    pass


def inlined(root: Json, normal: NormalSchema) -> Json | None:
    """A schema without references; None where that would have no end, or be too large."""
    if not normal.definitions:
        return root
    if normal.is_recursive():
        return None
    try:
        return _Inliner(normal).written(root)
    except (_TooLargeError, RecursionError):
        return None


class _Inliner:
    def __init__(self, normal: NormalSchema) -> None:
        self._normal = normal
        self._nodes = 0

    def written(self, node: Json) -> Json:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _TooLargeError
        if reference_in(node) is not None:
            node = self._normal.resolved(node)
        return {key: self._value(key, value) for key, value in node.items()}

    def _value(self, key: str, value: Any) -> Any:
        if key in SCHEMA or (key in BOOLEAN_OR_SCHEMA and isinstance(value, dict)):
            return self.written(value)
        if key in SCHEMA_MAP:
            return {name: self.written(each) for name, each in value.items()}
        if key in SCHEMA_LIST:
            return [self.written(each) for each in value]
        return value
