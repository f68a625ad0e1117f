"""Arguments: from what a model or a remote client sent to what a Python function is called with.

A text is parsed, and repaired once where models are known to slip (`parse_arguments`). A mapping is validated as it
is, strictly; only where that fails are its values repaired along the schema and validated again (`ArgumentReader`).
Nothing is ever run on a guess: a text that breaks off, or could mean two things, is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic_core import ValidationError, from_json, to_json

from bridge.errors import ArgumentProblem, ArgumentsError
from bridge.tools.coercion import FINITE, Coercion, Refusal, non_finite
from bridge.tools.json_reading import cut
from bridge.tools.leniency import Leniency
from bridge.words import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

    from bridge.tools.coercion import Path

_RECEIVED_CHARS = 200
_MAX_PROBLEMS = 100
_MAX_HINTS = 10
_JSONS = {"True": "true", "False": "false", "None": "null"}
_PYTHONS = re.compile(r"'(?:[^'\\]|\\.)*'|\b(?:True|False|None)\b")
"""What JSON writes in another way, and texts, in which nothing is to be found."""
_TOO_DEEP = "should be nested less deeply"

_FENCE = "```"
_LANGUAGE = re.compile(r"[A-Za-z0-9]*")
_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]\s*+,|(,)(?=\s*+[\]}])', re.DOTALL)
_LARGE_NUMBER = re.compile(rb"[0-9]{309}|[eE]\+?[0-9]{3}")
_LARGE_INTEGER = re.compile(rb"[0-9]{309}")
_LARGE_INTEGER_DIGITS = 309
_DIGIT = re.compile(rb"[0-9]")


def parse_arguments(tool_name: str, text: str) -> dict[str, Any]:
    """Read the arguments that a model wrote as JSON text.

    Blank is ``{}``. A text that does not parse is repaired once: a code fence around it, commas before a closing
    bracket, and an object that was quoted once more as a JSON string. Of a name that stands twice the last counts.

    Args:
        tool_name: The tool's name, for the error.
        text: What the model wrote.

    Raises:
        ArgumentsError: The text is no JSON object, even so.
    """
    if not text.strip():
        return {}
    try:
        value = _parsed(text)
        if isinstance(value, str):
            value = _parsed(value)
    except ValueError as error:
        raise ArgumentsError(
            tool_name, [ArgumentProblem("", f"should be a JSON object ({_reason(error)})", _shown(text))]
        ) from None
    if not isinstance(value, dict):
        raise ArgumentsError(tool_name, [ArgumentProblem("", "should be a JSON object", _shown(value))])
    if _LARGE_NUMBER.search(text.encode()) and (infinite := [Refusal(path, FINITE) for path in non_finite(value)]):
        raise ArgumentsError(tool_name, _problems_of(infinite, value))
    return value


def _parsed(text: str) -> Any:
    try:
        return from_json(text.encode(), allow_inf_nan=False)
    except ValueError:
        repaired = _without_trailing_commas(_without_fence(text))
        if repaired == text:
            raise
        return from_json(repaired, allow_inf_nan=False)


def _without_fence(text: str) -> str:
    stripped = text.strip()
    if len(stripped) < 2 * len(_FENCE) or not (stripped.startswith(_FENCE) and stripped.endswith(_FENCE)):
        return text
    inner = stripped[len(_FENCE) : -len(_FENCE)]
    language = _LANGUAGE.match(inner)
    return inner[language.end() :] if language else inner


def _without_trailing_commas(text: str) -> str:
    return _TRAILING_COMMA.sub(lambda match: "" if match[1] else match[0], text)


class ArgumentReader:
    """Reads the arguments of one tool's calls; built once, when the tool is registered.

    Args:
        tool_name: The tool's name, for errors.
        adapter: Of a TypedDict of the parameters, whose aliases are the published names. It fills in all defaults
            but the function's own.
        schema: The JSON Schema (2020-12) of the parameters, in which enums carry their members' values by name
            under `bridge.tools.coercion.MEMBERS`.
    """

    __slots__ = (
        "_forbids_extra",
        "_has_numbers",
        "_leniency",
        "_never_null",
        "_order",
        "_schema",
        "_tool",
        "_validate",
    )

    def __init__(self, tool_name: str, adapter: TypeAdapter[Any], schema: Mapping[str, Any]) -> None:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        walk = Coercion(schema)
        self._tool = tool_name
        self._validate = adapter.validator.validate_json
        self._schema = schema
        self._leniency = Leniency(schema)
        self._has_numbers = b'"number"' in to_json(schema)
        self._order = {name: i for i, name in enumerate(properties)}
        self._forbids_extra = schema.get("additionalProperties") is False
        self._never_null = frozenset(
            name for name, each in properties.items() if name not in required and not walk.fit(None, each).is_exact
        )

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What to call the function with, by the names of its parameters.

        Args:
            arguments: JSON data by published name; never changed.

        Raises:
            ArgumentsError: Something is wrong with them; the error tells all that is.
        """
        try:
            raw = to_json(arguments)
        except Exception:  # noqa: BLE001 - whatever a foreign object raises when it is looked at
            raw = self._raw(arguments)
        values: dict[str, Any]
        try:
            values = self._validate(raw, strict=True)
        except ValidationError:
            values = self._repaired(raw)
        else:
            if self._is_doubtful(raw):
                values = self._repaired(raw, values)
        return values

    def _is_doubtful(self, raw: bytes) -> bool:
        """Whether the validator may have taken what it should not have: cheap to ask, and seldom so."""
        return (
            (b"N" in raw and b"NaN" in raw)  # one letter is found in a tenth of the time
            or (b"I" in raw and b"Infinity" in raw)
            or self._leniency.may_be_in(raw)
            or (self._has_numbers and len(raw) >= _LARGE_INTEGER_DIGITS and _has_large_integer(raw))
        )

    def _raw(self, arguments: Mapping[str, Any]) -> bytes:
        """The JSON text of a mapping that is not a dict, or an error that names what is not JSON."""
        problems = []
        for name, value in arguments.items():
            try:
                to_json({name: value})
            except Exception as error:  # noqa: BLE001 - whatever a foreign object raises when it is looked at
                problems.append(ArgumentProblem(_printable(str(name)), f"should be JSON data ({_reason(error)})"))
        if problems:
            raise ArgumentsError(self._tool, problems)
        return to_json(dict(arguments))

    def _repaired(self, raw: bytes, values: dict[str, Any] | None = None) -> dict[str, Any]:
        """The values after a repair along the schema, or those that are there where nothing was to be repaired."""
        try:
            came: dict[str, Any] = from_json(raw)
            given = {k: v for k, v in came.items() if k in self._order} if self._forbids_extra else came
            if values is None:
                given = {k: v for k, v in given.items() if v is not None or k not in self._never_null}
            fit = Coercion(self._schema).fit(given, self._schema)
            refusals = [*fit.refusals, *(Refusal(path, FINITE) for path in non_finite(fit.value))]
            repaired = raw if values is not None and fit.is_exact else to_json(fit.value)
        except (ValueError, RecursionError) as error:
            reason = _TOO_DEEP if isinstance(error, RecursionError) else f"should be JSON data ({_reason(error)})"
            raise ArgumentsError(self._tool, [ArgumentProblem("", reason)]) from None
        try:
            if values is None or not fit.is_exact:
                values = self._validate(repaired, strict=True)
        except ValidationError as error:
            known = {refusal.path for refusal in refusals}
            refusals += [each for each in _refusals_of(error, fit.value) if each.path not in known]
        refusals.sort(key=lambda refusal: self._order.get(str(refusal.path[0]), -1) if refusal.path else -1)
        refusals += self._extra(came)
        if refusals:
            raise ArgumentsError(self._tool, _problems_of(refusals, came, fit.value))
        assert values is not None
        return values

    def _extra(self, came: Mapping[str, Any]) -> list[Refusal]:
        """Refusals of the arguments that are no parameters; none where they are left out."""
        extra = [name for name in came if name not in self._order] if self._forbids_extra else []
        hints = {name: _hint(name, self._order) for name in extra[:_MAX_HINTS]}
        return [Refusal((name,), f"is not a parameter{hints.get(name, '')}") for name in extra]


def _hint(name: str, known: Iterable[str]) -> str:
    """The parameter that a name may stand for; else all parameters."""
    if near := nearest(name, known):
        return f" (did you mean {near[0]!r}?)"
    return f" (the parameters are {', '.join(known)})" if known else " (there are none)"


def _has_large_integer(raw: bytes) -> bool:
    """Whether a number is written with so many digits that no float holds it."""
    # So long a run of digits has one at every step of that length.
    at_each_step = raw[_LARGE_INTEGER_DIGITS - 1 :: _LARGE_INTEGER_DIGITS]
    return _DIGIT.search(at_each_step) is not None and _LARGE_INTEGER.search(raw) is not None


def _refusals_of(error: ValidationError, value: Any) -> Iterator[Refusal]:
    """What pydantic says is wrong, each place once: its alternatives there are joined."""
    said: dict[Path, list[str]] = {}
    for details in error.errors(include_url=False, include_input=False):
        path = _path_of(details, value)
        words = _words_of(details)
        if words not in said.setdefault(path, []):
            said[path].append(words)
    for path, alternatives in said.items():
        first, *others = alternatives
        yield Refusal(path, " or ".join([first, *(other.removeprefix("should be ") for other in others)]))


def _path_of(details: ErrorDetails, value: Any) -> Path:
    """Where an error is: pydantic's location without the names of the types that it tried."""
    path: list[str | int] = []
    for i, step in enumerate(details["loc"]):
        if isinstance(value, dict) and str(step) in value:
            path.append(str(step))
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            path.append(step)
            value = value[step]
        elif details["type"] == "missing" and i == len(details["loc"]) - 1:
            path.append(step)
    return tuple(path)


def _words_of(details: ErrorDetails) -> str:
    if details["type"] == "missing":
        return "is required"
    if details["type"] == "extra_forbidden":
        return "is not known here"
    said = details["msg"].removeprefix("Value error, ")
    if details["type"] == "literal_error":
        said = _PYTHONS.sub(lambda match: _JSONS.get(match[0], match[0]), said)
    return f"should be {said.removeprefix('Input should be ')}" if said.startswith("Input should be ") else said


def _problems_of(refusals: list[Refusal], *values: Any) -> list[ArgumentProblem]:
    """The problems with what came: a place is looked up in the first of the values that has it."""
    problems = []
    for path, expected in refusals[:_MAX_PROBLEMS]:
        found = next((each for value in values for each in _found(path, value)), None)
        problems.append(ArgumentProblem(_written(path), expected, found))
    if len(refusals) > _MAX_PROBLEMS:
        problems.append(ArgumentProblem("", f"and {len(refusals) - _MAX_PROBLEMS} more problems"))
    return problems


def _found(path: Path, value: Any) -> Iterator[str]:
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return
    yield _shown(value)


def _written(path: Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


def _shown(value: Any) -> str:
    return cut(to_json(_printable(value) if isinstance(value, str) else value).decode(), _RECEIVED_CHARS)


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _reason(error: Exception) -> str:
    return _printable(str(error).removeprefix("Error serializing to JSON: ")) or type(error).__name__
