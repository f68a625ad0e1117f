"""Validate the structured content of remote tools against their output schemas (MCP, "Structured Content").

The server controls both the schema and the value, so the work is limited: a small value is validated immediately, a
larger one in a worker thread. Simple schemas are compiled to a fast check that can accept a value; values that it does
not accept go to the general validator.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import cached_property, partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.to_thread

from bridge.client.bounded_schema import BoundedSchema, Steps, UnjudgedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Proof: TypeAlias = Callable[[Any, Steps], bool]
    """True only where the value surely conforms; False where the general validator has to decide. It raises
    `UnjudgedError` where it takes more than the steps."""

_logger = logging.getLogger("bridge.client")

MAX_STEPS = 200_000
"""Maximum steps of one validation: about one second in a worker thread."""

MAX_SECONDS = 5.0
"""Seconds that a result waits for its validation; the thread itself ends when its steps are spent."""

_PROOF_STEPS_A_STEP = 20
"""Steps of the fast check that take as long as one step of the general validator."""

_STEPS_AT_ONCE = 20_000
"""Steps of the fast check that may run in the event loop: a few milliseconds."""

_KEYWORDS_AT_ONCE = 500
"""Steps of the general validator that may run in the event loop."""

_MAX_WARNINGS = 3
_SMALL_VALUES = 200
_SMALL_CHARS = 10_000
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFINITIONS: Final = "#/$defs/"

MAX_SCHEMAS: Final = 2_000
"""Maximum subschemas that are compiled, counted once for each reference."""

_SAYS_NOTHING: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "format"}
)
"""Annotation keywords; ``format`` is one of them by default."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
"""Python types for each JSON type; an integer written ``1.0`` is left to the general validator."""


class OutputSchema:
    """Output schema of a remote tool, compiled on first use; its references are never fetched.

    Args:
        schema: The JSON Schema, in the draft that its ``$schema`` names; 2020-12 by default.
        owner: Description of the tool, for the log.
        refuses_unjudged: Reject values that cannot be validated within the limits.
    """

    def __init__(self, schema: Mapping[str, Any], owner: str, *, refuses_unjudged: bool = False) -> None:
        self._schema = dict(schema)
        self._owner = owner
        self._refuses_unjudged = refuses_unjudged
        self._bounded: BoundedSchema | None = None
        self._unusable: str | None = None
        self._warned: set[str] = set()

    async def problem(self, value: Any) -> str | None:
        """Describe the violation in a value; None if it is valid, or if it cannot be validated within the limits."""
        with suppress(UnjudgedError, RecursionError):  # too large to be validated immediately
            if self._proof is not None and self._proof(value, Steps(_STEPS_AT_ONCE)):
                return None
            if self._bounded is not None and _is_small(value):
                return self._bounded.problem(value, _KEYWORDS_AT_ONCE)
        if (reason := self._unusable) is None:
            reason = f"validation takes more than {MAX_SECONDS:g} seconds"
            validate = partial(self._validate, value)
            try:
                with anyio.move_on_after(MAX_SECONDS):
                    return await anyio.to_thread.run_sync(validate, abandon_on_cancel=True, limiter=self._one_at_a_time)
            except UnjudgedError as error:
                reason = str(error)
        if reason not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(reason)
            _logger.warning("%s: some results cannot be validated against its output schema: %s", self._owner, reason)
        return f"it cannot be validated: {reason}" if self._refuses_unjudged else None

    def _validate(self, value: Any) -> str | None:
        """Validate a value in a worker thread; raises `UnjudgedError` as `BoundedSchema` does."""
        with suppress(RecursionError):
            if self._proof is not None and self._proof(value, Steps(_PROOF_STEPS_A_STEP * MAX_STEPS)):
                return None
        if self._bounded is None:
            try:
                self._bounded = BoundedSchema(self._schema)
            except UnjudgedError as error:
                self._unusable = str(error)
                raise
        return self._bounded.problem(value, MAX_STEPS)

    @cached_property
    def _one_at_a_time(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(1)

    @cached_property
    def _proof(self) -> Proof | None:
        return compile_validator(self._schema)


def _is_small(value: Any) -> bool:
    values, chars, level = 0, 0, [value]
    while level:
        inner: list[Any] = []
        for each in level:
            if isinstance(each, str):
                chars += len(each)
            elif isinstance(each, dict | list):
                values += len(each)
                if values > _SMALL_VALUES:
                    return False
                inner.extend(each.values() if isinstance(each, dict) else each)
        level = inner
    return chars <= _SMALL_CHARS


class _NotPlainError(Exception):
    """A schema with keywords that the fast check does not support."""


def compile_validator(schema: Mapping[str, Any]) -> Proof | None:
    """Compile a schema to a fast check.

    Returns:
        The check; None if the schema uses unsupported keywords, refers to itself, or is too large when references are
        expanded.
    """
    if schema.get("$schema", _DRAFT) != _DRAFT:
        return None
    rest = {key: value for key, value in schema.items() if key not in {"$schema", "$defs"}}
    try:
        return _Reader(schema.get("$defs", {})).proof(rest, ())
    except (_NotPlainError, AttributeError, TypeError, RecursionError):
        return None


class _Reader:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._left = MAX_SCHEMAS

    def proof(self, schema: Any, within: tuple[str, ...]) -> Proof:
        self._left -= 1
        if self._left < 0:
            raise _NotPlainError
        if schema is True:
            return lambda _, __: True
        keywords = schema.keys() - _SAYS_NOTHING
        if keywords == {"$ref"}:
            name = schema["$ref"].removeprefix(_DEFINITIONS)
            is_pointer = schema["$ref"].startswith(_DEFINITIONS) and not set("/~%") & set(name)
            if not is_pointer or name in within or name not in self._definitions:
                raise _NotPlainError
            return self.proof(self._definitions[name], (*within, name))
        if keywords == {"anyOf"}:
            return _any_of([self.proof(choice, within) for choice in schema["anyOf"]])
        if not keywords:
            return lambda _, __: True
        return self._of_type(schema, keywords, within)

    def _of_type(self, schema: Mapping[str, Any], keywords: set[str], within: tuple[str, ...]) -> Proof:
        declared = schema.get("type")
        if declared == "object" and keywords <= {"type", "properties", "required", "additionalProperties"}:
            fields = {key: self.proof(value, within) for key, value in schema.get("properties", {}).items()}
            others = schema.get("additionalProperties", True)
            other = (lambda _, __: False) if others is False else self.proof(others, within)
            return _object(fields, frozenset(schema.get("required", ())), other)
        if declared == "array" and keywords <= {"type", "items"}:
            return _array(self.proof(schema.get("items", True), within))
        names: list[Any] = declared if isinstance(declared, list) else [declared]
        if keywords != {"type"} or not all(isinstance(name, str) and name in _TYPES for name in names):
            raise _NotPlainError
        kinds = frozenset(kind for name in names for kind in _TYPES[name])
        return lambda value, _: type(value) in kinds


def _any_of(choices: list[Proof]) -> Proof:
    def conforms(value: Any, steps: Steps) -> bool:
        steps.spend(len(choices))
        return any(choice(value, steps) for choice in choices)

    return conforms


def _array(item: Proof) -> Proof:
    def conforms(value: Any, steps: Steps) -> bool:
        if type(value) is not list:
            return False
        steps.spend(len(value))
        return all(map(item, value, repeat(steps)))

    return conforms


def _object(fields: Mapping[str, Proof], required: frozenset[str], other: Proof) -> Proof:
    cost = 1 + len(required) // 8

    def conforms(value: Any, steps: Steps) -> bool:
        if type(value) is not dict:
            return False
        steps.spend(cost + len(value))
        return required <= value.keys() and all(fields.get(key, other)(field, steps) for key, field in value.items())

    return conforms
