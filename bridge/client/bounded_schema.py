"""Validate values against a server's JSON Schema in a limited number of steps.

Each jsonschema keyword is counted before it runs. Keywords whose cost may exceed their count are replaced: regular
expressions run in linear time (`LinearRegex`), and unique items are compared by their JSON text.
"""

from __future__ import annotations

import json
import re
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jsonschema.protocols import Validator

MAX_SCHEMA_OBJECTS = 4_000
"""Maximum objects and lists in a schema."""
MAX_SCHEMA_DEPTH = 64
"""Maximum nesting depth of a schema."""

_MAX_SCHEMA_CHARS = 1_000_000
_MAX_PROBLEM_CHARS = 200
_MAX_MIXED_ITEMS = 256
_CHARS_A_STEP = 64
_NAMES_A_STEP = 8
_MAX_PATTERN_CHARS = 2_000
_MAX_STATES = 2_000
_MAX_WORK = 500_000
"""Maximum states times characters of one match: about 50 ms for the slowest expressions."""
_WORK_A_STEP = 100
_UNICODE_STATES = 50
"""Minimum states of a character class that includes the letters of all languages."""
_MAX_CACHED = 1_024
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|.", re.DOTALL)
_UNICODE = re.compile(r"\\[wWpP]")
_SET_OPERATION = re.compile(r"&&|--|~~|\[")
_NOT_COUNTED = frozenset({"$dynamicRef", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties"})
"""Keywords that jsonschema evaluates outside the counted functions; schemas with them are rejected."""

_EACH_SCHEMA = frozenset({"allOf", "anyOf", "oneOf", "type"})
_EACH_PROPERTY = frozenset({"properties", "dependentSchemas", "dependencies"})
_EACH_ITEM = frozenset(
    {"additionalItems", "additionalProperties", "contains", "items"}
    | {"patternProperties", "prefixItems", "propertyNames"}
)
_EACH_VALUE = frozenset({"const", "dependentRequired", "enum"})


class UnjudgedError(Exception):
    """The value or the schema cannot be validated within the limits; the message gives the reason."""


class Steps:
    """Step budget of one validation."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, steps: int) -> None:
        """Count steps before the work is done.

        Raises:
            UnjudgedError: The budget is exceeded.
        """
        self._left -= steps
        if self._left < 0:
            raise UnjudgedError("validation takes too many steps")


_steps: ContextVar[Steps] = ContextVar("steps of the judgement")


class BoundedSchema:
    """A checked schema that validates values; it never fetches a reference.

    Args:
        schema: The schema, in the draft that its ``$schema`` names; 2020-12 by default.

    Raises:
        UnjudgedError: The schema is invalid, or cannot be evaluated within the limits.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - only when an output schema needs it
        from jsonschema.validators import validator_for  # noqa: PLC0415 - likewise
        from referencing import Registry  # noqa: PLC0415 - likewise

        rest = {key: value for key, value in schema.items() if key != "$schema"}
        _check_size(rest)
        draft = schema.get("$schema")
        kind = validator_for({"$schema": draft} if isinstance(draft, str) else {}, default=Draft202012Validator)
        try:
            kind.check_schema(rest, format_checker=None)  # type: ignore[call-arg]  # types-jsonschema lacks it
        except SchemaError as error:
            raise UnjudgedError(error.message[:_MAX_PROBLEM_CHARS]) from error
        registry: Registry[Any] = Registry()  # the default registry would fetch unknown references over the network
        self._validator: Validator = _counted_kind(kind)(rest, registry=registry)

    def problem(self, value: Any, steps: int) -> str | None:
        """Describe the first violation in a value; None if the value is valid.

        Raises:
            UnjudgedError: The steps are exceeded, or the schema turns out to be unusable.
        """
        from jsonschema.exceptions import best_match  # noqa: PLC0415 - loaded with the validator

        token = _steps.set(Steps(steps))
        try:
            first = next(iter(self._validator.iter_errors(value)), None)
            if first is None:
                return None
            found = best_match([first]) or first
        except UnjudgedError:
            raise
        except Exception as error:  # unresolvable reference, unknown type, value nested too deeply …
            raise UnjudgedError(f"{type(error).__name__}: {error}"[:_MAX_PROBLEM_CHARS]) from error
        finally:
            _steps.reset(token)
        path = "".join(f"[{key!r}]" for key in found.absolute_path)
        return (f"{path}: {found.message}" if path else found.message)[:_MAX_PROBLEM_CHARS]


def _check_size(schema: Any) -> None:
    """Refuse a schema (`UnjudgedError`) that is too large, or has a keyword that cannot be counted."""
    objects, chars, level = 0, 0, [schema]
    for _ in range(MAX_SCHEMA_DEPTH):
        inner: list[Any] = []
        for value in level:
            objects += 1
            if isinstance(value, dict):
                _check_keywords(value)
                chars += sum(map(len, value))
                inner.extend(value.values())
            else:
                kinds = {type(item) for item in value}
                if len(value) > _MAX_MIXED_ITEMS and kinds != {str} and not kinds <= {int, float}:
                    raise UnjudgedError(
                        f"the schema has a list of more than {_MAX_MIXED_ITEMS} values of different kinds"
                    )
                inner.extend(value)
        chars += sum(len(value) if isinstance(value, str) else 1 for value in inner)
        if objects > MAX_SCHEMA_OBJECTS or chars > _MAX_SCHEMA_CHARS:
            raise UnjudgedError(f"the schema has more than {MAX_SCHEMA_OBJECTS} objects and lists")
        level = [value for value in inner if isinstance(value, dict | list)]
        if not level:
            return
    raise UnjudgedError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def _check_keywords(schema: Mapping[str, Any]) -> None:
    if found := _NOT_COUNTED & schema.keys():
        raise UnjudgedError(f"the schema uses {min(found)!r}, which is not supported")
    if isinstance(schema.get("$schema"), str):  # jsonschema would evaluate it without counting
        raise UnjudgedError("the schema has a subschema with its own $schema")
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
        raise UnjudgedError(f"the schema's $ref {reference[:_MAX_PROBLEM_CHARS]!r} does not point into the schema")


@cache
def _counted_kind(kind: Any) -> Any:
    """Derive a validator class that counts the steps of each keyword."""
    from jsonschema import validators  # noqa: PLC0415 - loaded with the validator

    extend: Any = validators.extend  # it has no types
    functions = {**kind.VALIDATORS, **{key: _OURS[key] for key in _OURS if key in kind.VALIDATORS}}
    return extend(kind, validators={keyword: _counted(keyword, each) for keyword, each in functions.items()})


def _counted(keyword: str, function: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        steps = _steps.get()
        steps.spend(1 + _work(keyword, value, instance))
        for error in function(validator, value, instance, schema) or ():
            steps.spend(len(error.message) // _CHARS_A_STEP)  # the message repeats the value
            yield error

    return counted


def _work(keyword: str, value: Any, instance: Any) -> int:
    """Steps that a keyword takes, without those of its subschemas."""
    parts = len(value) if isinstance(value, dict | list) else 0
    items = len(instance) if isinstance(instance, dict | list) else 0
    if keyword in _EACH_ITEM:
        return items
    if keyword in _EACH_SCHEMA:
        return parts
    if keyword in _EACH_PROPERTY:
        return parts // _NAMES_A_STEP + min(parts, items)
    if keyword in _EACH_VALUE:
        return _size(value)
    return parts // _NAMES_A_STEP


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _matches(pattern: str, text: str) -> bool:
    regex = LinearRegex.of(pattern)
    steps = None if regex is None else regex.steps(text)
    if regex is None or steps is None:
        shown = f"{pattern[:_MAX_PROBLEM_CHARS]!r}"
        raise UnjudgedError(f"the regular expression {shown} cannot be run in linear time on {len(text)} characters")
    _steps.get().spend(steps)
    # The engine rejects strings with lone surrogates, which have no UTF-8 form.
    return regex.matches(text) or any("\ud800" <= char <= "\udfff" for char in text)


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield _error(f"{instance[:_MAX_PROBLEM_CHARS]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, additional: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in known or any(_matches(pattern, name) for pattern in patterns):
            continue
        if additional is False:
            yield _error(f"{name!r} is an additional property, which the schema does not allow")
        else:
            yield from validator.descend(value, additional, path=name)


def _unique_items(validator: Any, is_wanted: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if not is_wanted or not validator.is_type(instance, "array"):
        return
    seen: set[str] = set()
    for item in instance:
        text = _canonical(item)
        _steps.get().spend(1 + len(text) // _NAMES_A_STEP)
        if text in seen:
            yield _error(f"{text[:_MAX_PROBLEM_CHARS]} is not unique in the array")
        seen.add(text)


def _canonical(value: Any) -> str:
    """Serialise a JSON value canonically: equal values have equal texts."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{json.dumps(key)}:{_canonical(each)}" for key, each in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


def _error(message: str) -> Any:
    from jsonschema import ValidationError  # noqa: PLC0415 - loaded with the validator

    return ValidationError(message)


_OURS: Mapping[str, Callable[..., Iterator[Any]]] = {
    "additionalProperties": _additional_properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
}


class LinearRegex(NamedTuple):
    """A regular expression from a server, run in linear time by the Rust engine that pydantic includes.

    The time is proportional to the text length times the states of the expression, so both are limited. Expressions
    that the engine does not support (lookarounds, back references) or reads differently from JavaScript are rejected.
    """

    states: int
    validator: SchemaValidator

    @staticmethod
    @lru_cache(_MAX_CACHED)
    def of(pattern: str) -> LinearRegex | None:
        """Compile a pattern (cached); None if it cannot be run in linear time."""
        states = _states(pattern) if len(pattern) <= _MAX_PATTERN_CHARS else None
        if states is None or states > _MAX_STATES:
            return None
        try:
            schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
            return LinearRegex(states, SchemaValidator(schema))
        except PatternError:
            return None

    def steps(self, text: str) -> int | None:
        """Maximum steps that a search takes; None if there are too many."""
        work = self.states * len(text)
        return None if work > _MAX_WORK else work // _WORK_A_STEP

    def matches(self, text: str) -> bool:
        """Return True if the expression occurs anywhere in the text."""
        return self.validator.isinstance_python(text)


def _states(pattern: str) -> int | None:
    """Estimate the states of an expression, repetitions expanded; None if engines disagree on its syntax."""
    open_groups, last = [0], 0
    for piece in _PIECE.findall(pattern):
        if piece == "(":
            open_groups.append(0)
        elif piece == ")" and len(open_groups) > 1:
            last = open_groups.pop() + 1
            open_groups[-1] += last
        elif piece[0] == "{" and len(piece) > 1:
            times = max(int(number[:9]) for number in re.findall(r"\d+", piece))
            open_groups[-1] += last * (times - 1)
            last *= times
        else:
            if piece[0] == "[" and _SET_OPERATION.search(re.sub(r"\\.", "", piece[1:])):
                return None
            last = 1 + len(piece) // 8 + _UNICODE_STATES * len(_UNICODE.findall(piece))
            open_groups[-1] += last
    return sum(open_groups)
