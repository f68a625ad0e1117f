"""Completions: values that a client may offer while a user fills in an argument (MCP, "Completion").

They come from the parameter's own choices (`Literal`, enums, `bool`), from a list, or from a function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, Protocol

from bridge.errors import DefinitionError
from bridge.tools.checks import listed, require_callable
from bridge.tools.dependencies import Dependencies, dependencies_of, run_to_end
from bridge.tools.executors import lifespan_of_function
from bridge.tools.thread_context import ThreadContext
from bridge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext
    from bridge.tools.lifespan import Lifespan

MAX_VALUES = 100
"""Maximum number of values in one completion (MCP)."""
_MAX_COUNTED = 10_000

CompletionFunction = Callable[Concatenate[str, Mapping[str, str], "InvocationContext", ...], Any]
"""Receives the text so far, the other arguments that are filled in, and the context; returns the values, in order.

It may be asynchronous, and have further parameters with `Depends`. Its values are sent as they are.
"""
Completer = CompletionFunction | Iterable[str]
"""A function, or a list of values, of which those are offered that begin with the text so far."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Values for an argument."""

    values: tuple[str, ...] = ()
    """At most `MAX_VALUES`."""
    total: int | None = 0
    """Number of all values; None if they were not counted to the end."""
    has_more: bool = False
    """True if there are more than those in `values`."""


NO_COMPLETION = Completion()


class Completing(Protocol):
    """Completes the arguments of one resource template or prompt."""

    async def complete(
        self, name: str, text: str, arguments: Mapping[str, str], context: InvocationContext
    ) -> Completion:
        """Return the values for an argument; see `Completions.complete`."""
        ...


class Completions:
    """The completions of one resource template or prompt.

    Args:
        source: The function that they belong to, for messages.
        parameters: JSON Schema of its parameters; choices in it are completed by themselves.
        given: Completers by parameter; they take precedence.

    Raises:
        DefinitionError: A completer is for no parameter, or neither a function of three arguments nor a list of text.
    """

    def __init__(self, source: str, parameters: Mapping[str, Any], given: Mapping[str, Completer]) -> None:
        properties = parameters.get("properties", {})
        self._completers: dict[str, _Function | tuple[str, ...]] = {}
        for name, schema in properties.items():
            if choices := _choices_in(schema, parameters.get("$defs", {})):
                self._completers[name] = choices
        for name, completer in given.items():
            if name not in properties:
                raise DefinitionError(f"{source} has a completion for {name!r}, which is not one of its parameters")
            self._completers[name] = _checked(completer, f"the completion of {name!r} of {source}")

    def __bool__(self) -> bool:
        return bool(self._completers)

    @property
    def lifespans(self) -> tuple[Lifespan[Any], ...]:
        """The lifespans whose values its functions may need."""
        functions = (each for each in self._completers.values() if isinstance(each, _Function))
        return tuple(found for each in functions for found in each.lifespans)

    async def complete(
        self, name: str, text: str, arguments: Mapping[str, str], context: InvocationContext
    ) -> Completion:
        """Return the values for an argument; none if it has no completer.

        Args:
            name: The argument.
            text: Its text so far.
            arguments: The other arguments that are filled in.
            context: Context of the request.
        """
        completer = self._completers.get(name, ())
        if isinstance(completer, tuple):
            return _of([each for each in completer if each.casefold().startswith(text.casefold())])
        return await completer.complete(text, arguments, context)


class _Function:
    """A function that completes one argument."""

    __slots__ = ("_dependencies", "_function", "_lifespan", "lifespans")

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        marks = dependencies_of(function, 3)
        known = functools.partial(function, **dict.fromkeys(marks)) if marks else function
        require_callable(known, 3, what, "the text, the other arguments and the context")
        self._function = function
        self._dependencies = Dependencies(marks, what) if marks else None
        self._lifespan = lifespan_of_function(function)
        self.lifespans = () if self._dependencies is None else self._dependencies.lifespans
        """The lifespans whose values it may need."""
        if self._lifespan is not None:
            self.lifespans += (self._lifespan,)

    async def complete(self, text: str, arguments: Mapping[str, str], context: InvocationContext) -> Completion:
        """Return the values for a text."""
        if self._dependencies is None:
            return await self._completed({}, text, arguments, context)
        async with self._dependencies.values(context) as values:
            return await self._completed(values, text, arguments, context)
        raise AssertionError("an exception was suppressed")  # never: see `Dependencies.values`

    async def _completed(
        self, values: Mapping[str, Any], text: str, arguments: Mapping[str, str], context: InvocationContext
    ) -> Completion:
        function = self._function
        if inspect.iscoroutinefunction(function):
            seen = context if self._lifespan is None else context.within(self._lifespan)
            return _of(await function(text, arguments, seen, **values))
        in_thread = ThreadContext.of(context, self._lifespan)

        def called() -> Any:
            answer = function(text, arguments, in_thread, **values)
            return answer if inspect.isawaitable(answer) else _of(answer)  # which may run a generator

        if values:  # which have to stay open
            answer = await run_to_end(called, in_thread)
        else:
            answer = await run_in_thread(called, caller=context.account or None)
        return answer if isinstance(answer, Completion) else _of(await answer)


def _of(values: Iterable[Any] | None) -> Completion:
    if isinstance(values, str):
        raise TypeError(f"a completion returns a list of values, not the text {values[:MAX_VALUES]!r}")
    texts = tuple(each for each in map(str, islice(values or (), _MAX_COUNTED + 1)) if is_utf8(each))
    total = len(texts) if len(texts) <= _MAX_COUNTED else None
    return Completion(texts[:MAX_VALUES], total, len(texts) > MAX_VALUES)


def is_utf8(text: str) -> bool:
    """True for a text that can be sent; a file's name may contain bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked(completer: Any, what: str) -> _Function | tuple[str, ...]:
    if callable(completer):
        return _Function(completer, what)
    values = listed(completer, what, "text")
    if not all(isinstance(each, str) for each in values):
        raise DefinitionError(f"{what} must be a function or a list of text, not {completer!r}")
    return values


def _choices_in(schema: Any, definitions: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the choices that a schema allows, as text."""
    if not isinstance(schema, Mapping):
        return ()
    if "$ref" in schema:
        return _choices_in(definitions.get(schema["$ref"].removeprefix("#/$defs/")), definitions)
    if schema.get("type") == "boolean":
        return ("true", "false")
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    choices = [str(each) for each in values if each is not None]
    return (*choices, *(text for each in schema.get("anyOf", ()) for text in _choices_in(each, definitions)))
