"""Values of one tool call: the request, the result, and the execution that joins them.

Arguments are JSON text or a mapping when a model's response arrives, depending on the provider. `execute` parses them
once; from then on callbacks, executors and executions receive the same immutable mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from pydantic_core import to_json

from bridge.errors import ArgumentProblem, ArgumentsError
from bridge.tools.arguments.reader import parse_arguments
from bridge.tools.content import Content, Text, text_of

if TYPE_CHECKING:
    from datetime import datetime

_EMPTY: Mapping[str, Any] = {}

_SCALARS = frozenset({str, int, float, bool, type(None)})


def _refuse_change(value: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(
        f"the arguments of a tool call cannot be changed; change a copy: {type(value).__mro__[1].__name__}(…)"
    )


class FrozenObject(dict[str, Any]):
    """JSON object of a call's arguments; equal to a dict with the same items, but immutable."""

    __slots__ = ("json_text",)
    json_text: bytes
    """The object as JSON; empty if it cannot be serialized. Kept since `to_json` is slow for subclasses of dict."""
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse_change

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return type(self), (dict(self),)


class FrozenArray(list[Any]):
    """JSON array within a call's arguments; equal to a list with the same items, but immutable."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = _refuse_change
    reverse = sort = _refuse_change

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return type(self), (list(self),)


def _frozen_object(value: Mapping[str, Any]) -> FrozenObject:
    frozen = FrozenObject(value)
    for name, item in frozen.items():
        if type(item) not in _SCALARS:
            dict.__setitem__(frozen, name, _frozen(item))
    return frozen


def _frozen(value: Any) -> Any:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, dict | Mapping):
        return _frozen_object(value)
    return FrozenArray(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _json_of(arguments: dict[str, Any]) -> bytes:
    try:
        return to_json(arguments)
    except Exception:  # noqa: BLE001 - serializing a foreign object may raise anything
        return b""


@dataclass(frozen=True, slots=True)
class ToolExecutionRequest:
    """Request of a model or remote client to run one tool."""

    name: str
    """Name of the tool."""
    arguments: Mapping[str, Any] | str = field(default_factory=lambda: _EMPTY)
    """Arguments by name, or JSON text that is not parsed yet. Callbacks and executions contain an immutable mapping,
    or text that is not a JSON object."""
    id: str | None = None
    """Identifier that links the result to the request; some models give none."""
    arguments_text: str | None = field(default=None, compare=False, repr=False)
    """JSON text that the model wrote, in callbacks and executions; None if its provider sent a mapping."""

    def argument(self, name: str) -> Any:
        """Return one argument; None if it is missing.

        Raises:
            ArgumentsError: The arguments are text that is not a JSON object.
        """
        return self.arguments_by_name().get(name)

    def arguments_by_name(self) -> Mapping[str, Any]:
        """Return the arguments as a mapping, also if they are still JSON text.

        Raises:
            ArgumentsError: The arguments are text that is not a JSON object.
        """
        return self.parsed().arguments if isinstance(self.arguments, str) else self.arguments  # type: ignore[return-value]  # a mapping once parsed

    def parsed(self) -> ToolExecutionRequest:
        """Return the request with its arguments as an immutable mapping.

        Raises:
            ArgumentsError: The text is not a JSON object, or the arguments are nested too deeply.
        """
        given = self.arguments
        if isinstance(given, FrozenObject):
            return self
        text = given if isinstance(given, str) else self.arguments_text
        try:
            value = parse_arguments(self.name, given) if isinstance(given, str) else given
            frozen = _frozen_object(value)
            if type(value) is dict:
                frozen.json_text = _json_of(value)
            return ToolExecutionRequest(self.name, frozen, self.id, text)
        except RecursionError:
            raise ArgumentsError(self.name, [ArgumentProblem("", "should be nested less deeply")]) from None


class ReceivedResult(Protocol):
    """Result of another server, in the form that it was received in."""

    def read(self) -> ToolExecutionResult:
        """Convert it to a result."""
        ...


@dataclass(frozen=True, slots=True)
class ToolExecutionResult:
    """Result of one request."""

    content: tuple[Content, ...]
    """The complete result as content blocks."""
    structured_content: Any = None
    """JSON data that conforms to the tool's output schema; None if there is none."""
    is_error: bool = False
    """True if the tool failed; the content then describes the error."""
    attributes: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Arbitrary data for callbacks and results in this process; hidden from models and remote clients."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    """Arbitrary data sent with the result over MCP in ``_meta``; hidden from models."""
    model_content: tuple[Content, ...] | None = None
    """Content for the model if an output budget shortened it; None if the model reads `content`."""
    value: Any = field(default=None, compare=False, repr=False)
    """Value that a function of this process returned, before its conversion; None for other tools."""
    received: ReceivedResult | None = field(default=None, init=False, compare=False, repr=False)
    """Result of another server that is passed on unchanged; None for any other, and for a changed copy."""
    output_schema: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """Output schema of the tool of another server; None for other tools, and for a tool without."""

    @classmethod
    def passing_on(cls, received: ReceivedResult) -> ToolExecutionResult:
        """Create the result of another server, which is read when a field is first used."""
        result = object.__new__(cls)
        object.__setattr__(result, "received", received)
        return result

    if not TYPE_CHECKING:  # every attribute would exist

        def __getattr__(self, name: str) -> Any:
            """Read the fields, which a result to be passed on does not have."""
            if name not in _RESULT_FIELDS or self.received is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            result = self.received.read()
            for each in _RESULT_FIELDS:
                object.__setattr__(self, each, getattr(result, each))
            return getattr(self, name)

    @property
    def text(self) -> str:
        """The text blocks of the complete content, joined by newlines."""
        return text_of(self.content)

    @property
    def data(self) -> Any:
        """The result as a Python value, read from `structured_content` each time; None if there is none.

        Of a function in this process, it is what the function returned. Of another server's tool, the output schema
        decides: objects with known fields are dataclasses, dates, times, durations and UUIDs have their types, and
        a value under a sole field ``result`` stands for the object, as servers wrap values that are no objects.
        """
        if self.value is not None:
            return self.value
        from bridge.tools.data import data_of  # noqa: PLC0415 - only where it is used

        return data_of(self.structured_content, self.output_schema)

    @property
    def model_text(self) -> str:
        """The text blocks that the model reads, joined by newlines."""
        return text_of(self.content if self.model_content is None else self.model_content)

    @classmethod
    def error(cls, message: str) -> ToolExecutionResult:
        """Create a failed result with one text block."""
        return cls((Text(message),), is_error=True)

    @classmethod
    def of_text(cls, text: str) -> ToolExecutionResult:
        """Create a successful result with one text block."""
        return cls((Text(text),))


_RESULT_FIELDS = frozenset(each.name for each in fields(ToolExecutionResult) if each.init)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecution:
    """A request with its result, start time and duration (LangChain4j's ToolExecution)."""

    request: ToolExecutionRequest
    result: ToolExecutionResult
    started_at: datetime
    """Start time; timezone-aware, UTC."""
    duration_seconds: float
    """Duration by a monotonic clock."""
    error: Exception | None = field(default=None, compare=False, repr=False)
    """Exception raised in this process, if it caused the error result."""

    @property
    def result_object(self) -> Any:
        """Value that the function returned; None for tools of other processes, and once stored (LangChain4j)."""
        return self.result.value
