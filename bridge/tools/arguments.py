"""Arguments: from what a model or a remote client sent to what a Python function is called with.

A text is parsed, and repaired once where models are known to slip (`parse_arguments`). A mapping is validated as it
is, strictly; only where that fails are its values repaired along the schema and validated again (`ArgumentReader`).
Nothing is ever run on a guess: a text that breaks off, or could mean two things, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic_core import ValidationError, from_json, to_json

from bridge.errors import ArgumentProblem, ArgumentsError
from bridge.text import nearest
from bridge.tools.argument_problems import MAX_PROBLEMS, printable, problems_of, reason_of, refusals_of, shown
from bridge.tools.bounded_validation import bounded_validate_json
from bridge.tools.coercion import FINITE, Coercion, RejectedValue, paths_of_non_finite
from bridge.tools.strictness import StrictModeGaps
from bridge.types import ValueBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import TypeAdapter


_MAX_HINTS = 10
LARGE_BYTES = 65_536
"""The length of the JSON text of arguments above which they are read in a worker thread."""
_MAX_REPAIRED_SOON_BYTES = 4_096
_MAX_REPAIRED_VALUES = 5_000
_MIN_REPAIRED_VALUE_BYTES = 64
"""A repair takes some 600 bytes of memory for each value: so many, or so few of the text that this is in proportion."""
_MAX_ERRORS = 20_000
"""How many errors pydantic may collect at most."""
_BOUNDS = ValueBounds(containers=250_000, entries=1_000_000)
"""Maximum numbers of values in arguments, wherever they come from; a server lets in fewer by default."""
_MAX_UNKNOWN_NAMES = 200
"""How many unknown names of one object are validated: pydantic makes an error of each where they are forbidden."""
_UNKNOWN_NAME = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_FIRST_ONLY = "the arguments hold many values, so of each list only the first mistake is told"
_TOO_MANY = "the arguments hold too many values to be read as the tool needs them; send fewer at once"
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
            tool_name, [ArgumentProblem("", f"should be a JSON object ({reason_of(error)})", shown(text))]
        ) from None
    if not isinstance(value, dict):
        raise ArgumentsError(tool_name, [ArgumentProblem("", "should be a JSON object", shown(value))])
    raw = text.encode()
    if (_LARGE_EXPONENT.search(raw) or _has_large_integer(raw)) and (
        infinite := [RejectedValue(path, FINITE) for path in paths_of_non_finite(value)]
    ):
        raise ArgumentsError(tool_name, problems_of(infinite, value))
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
        "_adapter",
        "_forbids_extra",
        "_has_closed_objects",
        "_has_numbers",
        "_leniency",
        "_never_null",
        "_order",
        "_schema",
        "_schema_size",
        "_tool",
        "_validate",
        "_validate_and_yield",
    )

    def __init__(self, tool_name: str, adapter: TypeAdapter[Any], schema: Mapping[str, Any]) -> None:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        walk = Coercion(schema)
        self._tool = tool_name
        self._adapter = adapter
        self._validate = bounded_validate_json(adapter)
        self._validate_and_yield: Callable[..., Any] | None = None
        self._schema = schema
        text = to_json(schema)
        self._schema_size = text.count(b"{")
        self._leniency = StrictModeGaps(schema)
        self._has_numbers = b'"number"' in text
        self._order = {name: i for i, name in enumerate(properties)}
        self._forbids_extra = schema.get("additionalProperties") is False
        self._has_closed_objects = text.count(b'"additionalProperties":false') > self._forbids_extra
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
        read = self.read_soon(arguments)
        return self.read_text(read, arguments) if isinstance(read, bytes) else read

    def read_soon(self, arguments: Mapping[str, Any]) -> dict[str, Any] | bytes:
        """As `read`; or the JSON text of arguments that take long to read, for `read_text` in a worker thread."""
        try:
            raw = to_json(arguments)
        except Exception:  # noqa: BLE001 - whatever a foreign object raises when it is looked at
            raw = self._raw(arguments)
        if len(raw) <= LARGE_BYTES:
            values: dict[str, Any]
            try:
                values = self._validate(raw, strict=True)
            except ValidationError:
                pass
            else:
                if not self._is_doubtful(raw):
                    return values
        return raw if len(raw) > _MAX_REPAIRED_SOON_BYTES else self.read_text(raw, arguments)

    def read_text(self, raw: bytes, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """As `read`, in any thread; other threads run meanwhile.

        Args:
            raw: The JSON text of the arguments.
            arguments: JSON data, for what the error shows.

        Raises:
            ArgumentsError: As for `read`. Where the arguments hold very many values, the error tells of the first
                mistake in each list only.
        """
        if (excess := _BOUNDS.excess(raw)) is not None:
            raise ArgumentsError(self._tool, [ArgumentProblem("", f"has {excess}; send fewer at once")])
        values: dict[str, Any] | None = None
        error: ValidationError | None = None
        if not self._has_surplus(arguments):
            try:
                values = self._validated(raw, arguments)
            except ValidationError as raised:
                error = raised
        if values is not None and not self._is_doubtful(raw):
            return values
        if (count := _count_bound(raw)) <= max(_MAX_REPAIRED_VALUES, len(raw) // _MIN_REPAIRED_VALUE_BYTES):
            return self._repaired(raw, values, count)
        problems = self._unrepaired(raw, arguments, error)
        if values is None or problems:
            raise ArgumentsError(self._tool, problems)
        return values

    def _has_surplus(self, arguments: Mapping[str, Any]) -> bool:
        """There are more arguments than parameters: pydantic would collect an error for each of them."""
        return self._forbids_extra and len(arguments) > len(self._order)

    def _validated(self, raw: bytes, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The values; the errors are those that are first in each list, and of some unknown names in each object.

        Args:
            raw: The JSON text of the arguments.
            arguments: The same as data.

        Raises:
            ValidationError: The text is not valid.
        """
        validate = self._validate
        if len(raw) > LARGE_BYTES:
            if self._validate_and_yield is None:
                self._validate_and_yield = bounded_validate_json(self._adapter, yields=True)
            validate = self._validate_and_yield
            if self._has_closed_objects and _has_wide_object(arguments.values()):
                known = _property_names(self._schema)
                narrowed = {name: _narrowed(value, known) for name, value in arguments.items()}
                try:
                    validate(to_json(narrowed), strict=True)
                except ValidationError as error:
                    if any(each["type"] in _UNKNOWN_NAME for each in error.errors(include_url=False)):
                        raise
        values: dict[str, Any] = validate(raw, strict=True)
        return values

    def _unrepaired(
        self, raw: bytes, arguments: Mapping[str, Any], error: ValidationError | None
    ) -> list[ArgumentProblem]:
        """What is wrong with arguments that hold too many values for a repair."""
        refusals = [] if error is None else list(refusals_of(error, arguments))
        if error is None and any(match[1] for match in _NON_FINITE.finditer(raw)):
            refusals.append(RejectedValue((), FINITE))
        if error is None and (self._leniency.may_be_in(raw) or (self._has_numbers and _has_large_integer(raw))):
            refusals.append(RejectedValue((), _TOO_MANY))
        if not refusals and not self._has_surplus(arguments):
            return []
        problems = problems_of([*refusals, *self._extra(arguments)], arguments)
        return [*problems, ArgumentProblem("", _FIRST_ONLY)]

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
                problems.append(ArgumentProblem(printable(str(name)), f"should be JSON data ({reason_of(error)})"))
        if problems:
            raise ArgumentsError(self._tool, problems)
        return to_json(dict(arguments))

    def _repaired(self, raw: bytes, values: dict[str, Any] | None, count: int) -> dict[str, Any]:
        """The values after a repair along the schema, or those that are there where nothing was to be repaired."""
        try:
            came: dict[str, Any] = from_json(raw)
            given = {k: v for k, v in came.items() if k in self._order} if self._forbids_extra else came
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
            known = {refusal.path for refusal in refusals}
            is_all = count * self._schema_size <= _MAX_ERRORS
            found = refusals_of(self._all_errors(repaired, first) if is_all else first, fit.value)
            refusals += [each for each in found if each.path not in known]
        refusals.sort(key=lambda refusal: self._order.get(str(refusal.path[0]), -1) if refusal.path else -1)
        refusals += self._extra(came)
        if refusals:
            more = [] if is_all else [ArgumentProblem("", _FIRST_ONLY)]
            raise ArgumentsError(self._tool, [*problems_of(refusals, came, fit.value), *more])
        assert values is not None
        return values

    def _all_errors(self, raw: bytes, first: ValidationError) -> ValidationError:
        """What is wrong with a text that is not valid, in every item of each collection."""
        try:
            self._adapter.validator.validate_json(raw, strict=True)
        except ValidationError as error:
            return error
        return first

    def _extra(self, came: Mapping[str, Any]) -> list[RejectedValue]:
        """Refusals of the arguments that are no parameters; none where they are left out."""
        if not self._forbids_extra:
            return []
        extra = list(islice((name for name in came if name not in self._order), MAX_PROBLEMS + 1))
        hints = {name: _hint(name, self._order) for name in extra[:_MAX_HINTS]}
        return [RejectedValue((name,), f"is not a parameter{hints.get(name, '')}") for name in extra]


def _has_wide_object(values: Iterable[Any]) -> bool:
    """Whether one of several JSON values has an object of so many names that errors about them would be many."""
    pending = [*values]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            if len(each) > _MAX_UNKNOWN_NAMES:
                return True
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)
    return False


def _narrowed(value: Any, known: frozenset[str]) -> Any:
    """A copy of JSON data in which each object has some names at most beside those that are known."""
    if isinstance(value, list):
        return [_narrowed(each, known) for each in value]
    if not isinstance(value, dict):
        return value
    unknown = frozenset(islice((name for name in value if name not in known), _MAX_UNKNOWN_NAMES))
    return {name: _narrowed(each, known) for name, each in value.items() if name in known or name in unknown}


def _property_names(schema: Any) -> frozenset[str]:
    """All names that a schema knows, in whatever object."""
    if isinstance(schema, list):
        return frozenset().union(*map(_property_names, schema))
    if not isinstance(schema, Mapping):
        return frozenset()
    own = schema.get("properties")
    return frozenset(own if isinstance(own, Mapping) else ()).union(*map(_property_names, schema.values()))


def _hint(name: str, known: Iterable[str]) -> str:
    """The parameter that a name may stand for; else all parameters."""
    if near := nearest(name, known):
        return f" (did you mean {near[0]!r}?)"
    return f" (the parameters are {', '.join(known)})" if known else " (there are none)"


def _count_bound(raw: bytes) -> int:
    """How many values a text holds, or more: commas in texts count as well."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _has_large_integer(raw: bytes) -> bool:
    """Whether a number is written with so many digits that no float holds it."""
    # So long a run of digits has one at every step of that length.
    at_each_step = raw[_LARGE_INTEGER_DIGITS - 1 :: _LARGE_INTEGER_DIGITS]
    if _DIGIT.search(at_each_step) is None:
        return False
    # A pattern would look at each digit up to 309 times.
    return b"0" * _LARGE_INTEGER_DIGITS in raw.translate(_DIGITS_AS_ZEROS)
