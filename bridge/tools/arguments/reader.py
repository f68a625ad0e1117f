"""Parsing and validation of arguments from models and remote clients.

JSON text is parsed, and repaired once for common mistakes of models (`parse_arguments`). A mapping is validated
strictly; only if that fails, its values are coerced by the schema and validated again (`ArgumentReader`). Truncated or
ambiguous text is rejected rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic_core import ValidationError, from_json, to_json

from bridge.errors import ArgumentProblem, ArgumentsError
from bridge.text import nearest
from bridge.tools.arguments.bounded_validation import bounded_validate_json
from bridge.tools.arguments.coercion import FINITE, Coercion, RejectedValue, paths_of_non_finite
from bridge.tools.arguments.problems import MAX_PROBLEMS, printable, problems_of, reason_of, refusals_of, shown
from bridge.tools.arguments.strictness import StrictModeGaps
from bridge.types import ValueBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import TypeAdapter


_MAX_HINTS = 10
LARGE_BYTES = 65_536
"""Length of the JSON text above which arguments are validated in a worker thread."""
_SCALARS: dict[str, type] = {"str": str, "int": int, "bool": bool}
"""Types of parameters by pydantic's name, whose values of just this type are valid as they are."""
_MAX_INTEGER_BITS = 64
_N, _I = b"NI"  # numbers, which are found faster than bytes
_MAX_REPAIRED_SOON_BYTES = 4_096
_MAX_REPAIRED_VALUES = 5_000
_MIN_REPAIRED_VALUE_BYTES = 64
"""A repair needs about 600 bytes per value. This limits it to few values, or to memory in proportion to the text."""
_MAX_ERRORS = 20_000
"""Maximum number of errors that pydantic may collect."""
_BOUNDS = ValueBounds(containers=250_000, entries=1_000_000)
"""Maximum numbers of values in arguments from any source; servers accept fewer by default."""
_MAX_UNKNOWN_NAMES = 200
"""Maximum unknown names validated per object, since pydantic creates an error for each if they are forbidden."""
_UNKNOWN_NAME = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_FIRST_ONLY = "the arguments contain many values, so only the first mistake in each list is reported"
_TOO_MANY = "the arguments contain too many values to be converted for the tool; send fewer at once"
_NON_FINITE = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(NaN|Infinity)')
_TOO_DEEP = "should be nested less deeply"
_FENCE = "```"
_LANGUAGE = re.compile(r"[A-Za-z0-9]*")
_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]\s*+,|(,)(?=\s*+[\]}])', re.DOTALL)
_LARGE_EXPONENT = re.compile(rb"[eE]\+?[0-9]{3}")
_LARGE_INTEGER_DIGITS = 309
_DIGIT = re.compile(rb"[0-9]")
_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")


def parse_arguments(tool_name: str, text: str) -> dict[str, Any]:
    """Parse the arguments that a model wrote as JSON text.

    Blank text is ``{}``. Invalid text is repaired once: a code fence around it, trailing commas, and an object quoted
    as a JSON string. Of duplicate names the last one applies.

    Raises:
        ArgumentsError: The text is not a JSON object, even after the repair.
    """
    if not text.strip():
        return {}
    try:
        raw = text.encode()
        value = _parsed(text, raw)
        if isinstance(value, str):
            value = _parsed(value, value.encode())
    except ValueError as error:
        raise ArgumentsError(
            tool_name, [ArgumentProblem("", f"should be a JSON object ({reason_of(error)})", shown(text))]
        ) from None
    if not isinstance(value, dict):
        raise ArgumentsError(tool_name, [ArgumentProblem("", "should be a JSON object", shown(value))])
    if (_LARGE_EXPONENT.search(raw) or (len(raw) >= _LARGE_INTEGER_DIGITS and _has_large_integer(raw))) and (
        infinite := [RejectedValue(path, FINITE) for path in paths_of_non_finite(value)]
    ):
        raise ArgumentsError(tool_name, problems_of(infinite, value))
    return value


def _parsed(text: str, raw: bytes) -> Any:
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError:
        repaired = _TRAILING_COMMA.sub(lambda match: "" if match[1] else match[0], _without_fence(text))
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


class ArgumentReader:
    """Validates the arguments of one tool's calls; built once, when the tool is registered.

    Args:
        tool_name: The tool's name, for errors.
        adapter: See `bridge.tools.schema.signature.Signature.adapter`.
        schema: See `bridge.tools.schema.signature.Signature.internal_schema`.
    """

    def __init__(self, tool_name: str, adapter: TypeAdapter[Any], schema: Mapping[str, Any]) -> None:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        coercion = Coercion(schema)
        self._tool = tool_name
        self._adapter = adapter
        self._validate = bounded_validate_json(adapter)
        self._validate_and_yield: Callable[..., Any] | None = None
        self._schema = schema
        text = to_json(schema)
        self._schema_size = text.count(b"{")
        self._strict_gaps = StrictModeGaps(schema)
        self._has_numbers = b'"number"' in text
        self._order = {name: i for i, name in enumerate(properties)}
        self._scalars = _scalars_of(adapter)
        self.takes_nothing = not properties
        """True if there are no parameters: no arguments are read as no keyword arguments."""
        self._forbids_extra = schema.get("additionalProperties") is False
        self._is_usual = not (self._strict_gaps or self._has_numbers)
        self._has_closed_objects = text.count(b'"additionalProperties":false') > self._forbids_extra
        self._never_null = frozenset(
            name
            for name, property_schema in properties.items()
            if name not in required and not coercion.fit(None, property_schema).is_exact
        )

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments for the function.

        Args:
            arguments: JSON data by published name; not modified.

        Raises:
            ArgumentsError: The arguments are invalid; the error lists all problems.
        """
        result = self.read_soon(arguments)
        return self.read_text(result, arguments) if isinstance(result, bytes) else result

    def read_soon(self, arguments: Mapping[str, Any] | str) -> dict[str, Any] | bytes:
        """Like `read`, but return large arguments as JSON text, for `read_text` in a worker thread."""
        if self._scalars is not None and type(arguments) is dict and _are_scalars(arguments, self._scalars):
            return arguments.copy()
        try:
            text = None if type(arguments) is dict else getattr(arguments, "json_text", None)
            raw = text or to_json(arguments)
        except Exception:  # noqa: BLE001 - serializing a foreign object may raise anything
            if isinstance(arguments, str):
                return self.read_soon(parse_arguments(self._tool, arguments))
            raw = self._raw(arguments)
        if len(raw) <= LARGE_BYTES:
            values: dict[str, Any]
            try:
                values = self._validate(raw, strict=True)
            except ValidationError:
                pass
            else:
                # The first condition is the usual case of the second one.
                if (self._is_usual and _N not in raw and _I not in raw) or not self._needs_second_check(raw):
                    return values
        return raw if len(raw) > _MAX_REPAIRED_SOON_BYTES else self.read_text(raw, arguments)

    def read_text(self, raw: bytes, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
        """Like `read`, in any thread; releases the interpreter's lock regularly.

        Args:
            raw: JSON text of the arguments.
            arguments: The same as data, for error messages; or the text that a model wrote.

        Raises:
            ArgumentsError: See `read`. If the arguments contain very many values, only the first mistake in each list
                is reported.
        """
        if isinstance(arguments, str):  # the executor was called without `execute`, which parses text
            return self.read(parse_arguments(self._tool, arguments))
        if (excess := _BOUNDS.excess(raw)) is not None:
            raise ArgumentsError(self._tool, [ArgumentProblem("", f"has {excess}; send fewer at once")])
        values: dict[str, Any] | None = None
        error: ValidationError | None = None
        if not self._has_too_many_names(arguments):
            try:
                values = self._validated(raw, arguments)
            except ValidationError as raised:
                error = raised
        if values is not None and not self._needs_second_check(raw):
            return values
        count = raw.count(b",") + raw.count(b"[") + raw.count(b"{")  # an upper bound: strings contain commas as well
        if count <= max(_MAX_REPAIRED_VALUES, len(raw) // _MIN_REPAIRED_VALUE_BYTES):
            return self._repaired(raw, values, count)
        problems = self._problems_without_repair(raw, arguments, error)
        if values is None or problems:
            raise ArgumentsError(self._tool, problems)
        return values

    def _has_too_many_names(self, arguments: Mapping[str, Any]) -> bool:
        """Return True if there are more arguments than parameters; pydantic would collect an error for each of them."""
        return self._forbids_extra and len(arguments) > len(self._order)

    def _validated(self, raw: bytes, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate; errors cover the first bad item of each list, and some unknown names of each object."""
        validate = self._validate
        if len(raw) > LARGE_BYTES:
            if self._validate_and_yield is None:
                self._validate_and_yield = bounded_validate_json(self._adapter, yields=True)
            validate = self._validate_and_yield
            if self._has_closed_objects and _has_wide_object(arguments.values()):
                property_names = _property_names(self._schema)
                narrowed = {name: _narrowed(value, property_names) for name, value in arguments.items()}
                try:
                    validate(to_json(narrowed), strict=True)
                except ValidationError as error:
                    if any(detail["type"] in _UNKNOWN_NAME for detail in error.errors(include_url=False)):
                        raise
        values: dict[str, Any] = validate(raw, strict=True)
        return values

    def _problems_without_repair(
        self, raw: bytes, arguments: Mapping[str, Any], error: ValidationError | None
    ) -> list[ArgumentProblem]:
        """Return the problems of arguments with too many values for a repair."""
        refusals = [] if error is None else list(refusals_of(error, arguments))
        if error is None and any(match[1] for match in _NON_FINITE.finditer(raw)):
            refusals.append(RejectedValue((), FINITE))
        if error is None and (self._strict_gaps.may_be_in(raw) or (self._has_numbers and _has_large_integer(raw))):
            refusals.append(RejectedValue((), _TOO_MANY))
        if not refusals and not self._has_too_many_names(arguments):
            return []
        problems = problems_of([*refusals, *self._extra(arguments)], arguments)
        return [*problems, ArgumentProblem("", _FIRST_ONLY)]

    def _needs_second_check(self, raw: bytes) -> bool:
        """Return True if strict validation may have accepted an invalid value; a fast check that is rarely true."""
        return (
            (_N in raw and b"NaN" in raw)  # searching for one byte is ten times faster
            or (_I in raw and b"Infinity" in raw)
            or self._strict_gaps.may_be_in(raw)
            or (self._has_numbers and len(raw) >= _LARGE_INTEGER_DIGITS and _has_large_integer(raw))
        )

    def _raw(self, arguments: Mapping[str, Any]) -> bytes:
        """Serialize a mapping that is not a dict; raise an error that names the values that are not JSON."""
        problems = []
        for name, value in arguments.items():
            try:
                to_json({name: value})
            except Exception as error:  # noqa: BLE001 - serializing a foreign object may raise anything
                problems.append(ArgumentProblem(printable(str(name)), f"should be JSON data ({reason_of(error)})"))
        if problems:
            raise ArgumentsError(self._tool, problems)
        return to_json(dict(arguments))

    def _repaired(self, raw: bytes, values: dict[str, Any] | None, count: int) -> dict[str, Any]:
        """Coerce the values by the schema and validate them; return the given values if they need no repair."""
        try:
            received: dict[str, Any] = from_json(raw)
            given = {k: v for k, v in received.items() if k in self._order} if self._forbids_extra else received
            if values is None:
                given = {k: v for k, v in given.items() if v is not None or k not in self._never_null}
            fit = Coercion(self._schema).fit(given, self._schema)
            refusals = [*fit.refusals, *(RejectedValue(path, FINITE) for path in paths_of_non_finite(fit.value))]
            repaired = raw if values is not None and fit.is_exact else to_json(fit.value)
        except (ValueError, RecursionError) as error:
            reason = _TOO_DEEP if isinstance(error, RecursionError) else f"should be JSON data ({reason_of(error)})"
            raise ArgumentsError(self._tool, [ArgumentProblem("", reason)]) from None
        is_all = True
        try:
            if values is None or not fit.is_exact:
                values = self._validated(repaired, fit.value)
        except ValidationError as first:
            refused_paths = {refusal.path for refusal in refusals}
            is_all = count * self._schema_size <= _MAX_ERRORS
            further = refusals_of(self._all_errors(repaired, first) if is_all else first, fit.value)
            refusals += [refusal for refusal in further if refusal.path not in refused_paths]
        refusals.sort(key=lambda refusal: self._order.get(str(refusal.path[0]), -1) if refusal.path else -1)
        refusals += self._extra(received)
        if refusals:
            more = [] if is_all else [ArgumentProblem("", _FIRST_ONLY)]
            raise ArgumentsError(self._tool, [*problems_of(refusals, received, fit.value), *more])
        assert values is not None
        return values

    def _all_errors(self, raw: bytes, first: ValidationError) -> ValidationError:
        """Validate the text again with all errors, including those of every item in collections."""
        try:
            self._adapter.validator.validate_json(raw, strict=True)
        except ValidationError as error:
            return error
        return first

    def _extra(self, arguments: Mapping[str, Any]) -> list[RejectedValue]:
        """Return a refusal for each argument that is not a parameter, unless extra arguments are ignored."""
        if not self._forbids_extra:
            return []
        extra = list(islice((name for name in arguments if name not in self._order), MAX_PROBLEMS + 1))
        hints = {name: _hint(name, self._order) for name in extra[:_MAX_HINTS]}
        return [RejectedValue((name,), f"is not a parameter{hints.get(name, '')}") for name in extra]


def _scalars_of(adapter: TypeAdapter[Any]) -> dict[str, type] | None:
    """Return the types of all parameters if each is a scalar without constraints; else None."""
    schema: Any = adapter.core_schema
    fields = schema["fields"] if schema["type"] == "typed-dict" else None
    if fields is None or any(
        field["schema"].keys() != {"type"}
        or field["schema"]["type"] not in _SCALARS
        or field.get("validation_alias", name) != name
        for name, field in fields.items()
    ):
        return None
    return {name: _SCALARS[field["schema"]["type"]] for name, field in fields.items()}


def _are_scalars(arguments: dict[str, Any], types: dict[str, type]) -> bool:
    """Return True if the arguments have just these types, and validation would return them as they are."""
    if len(arguments) != len(types):
        return False
    for name, value in arguments.items():
        kind = type(value)
        if kind is not types.get(name):
            return False
        # Other texts may have lone surrogates, and other integers too many digits.
        if not (value.isascii() if kind is str else value.bit_length() < _MAX_INTEGER_BITS):
            return False
    return True


def _has_wide_object(values: Iterable[Any]) -> bool:
    """Return True if a value contains an object with very many names, which may cause as many errors."""
    pending = [*values]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if len(value) > _MAX_UNKNOWN_NAMES:
                return True
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return False


def _narrowed(value: Any, property_names: frozenset[str]) -> Any:
    """Copy JSON data; each object keeps the known names and a limited number of unknown ones."""
    if isinstance(value, list):
        return [_narrowed(item, property_names) for item in value]
    if not isinstance(value, dict):
        return value
    unknown = frozenset(islice((name for name in value if name not in property_names), _MAX_UNKNOWN_NAMES))
    return {
        name: _narrowed(item, property_names)
        for name, item in value.items()
        if name in property_names or name in unknown
    }


def _property_names(schema: Any) -> frozenset[str]:
    """Return all property names in a schema, at any depth."""
    if isinstance(schema, list):
        return frozenset().union(*map(_property_names, schema))
    if not isinstance(schema, Mapping):
        return frozenset()
    own = schema.get("properties")
    return frozenset(own if isinstance(own, Mapping) else ()).union(*map(_property_names, schema.values()))


def _hint(name: str, parameters: Iterable[str]) -> str:
    """Suggest the most similar parameter, or list all parameters."""
    if near := nearest(name, parameters):
        return f" (did you mean {near[0]!r}?)"
    return f" (the parameters are {', '.join(parameters)})" if parameters else " (there are none)"


def _has_large_integer(raw: bytes) -> bool:
    """Return True if the text contains an integer with more digits than a float can hold."""
    # A run of this many digits contains at least one of every 309th byte.
    at_each_step = raw[_LARGE_INTEGER_DIGITS - 1 :: _LARGE_INTEGER_DIGITS]
    if _DIGIT.search(at_each_step) is None:
        return False
    # A regular expression would visit each digit up to 309 times.
    return b"0" * _LARGE_INTEGER_DIGITS in raw.translate(_DIGITS_AS_ZEROS)
