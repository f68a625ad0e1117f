"""Completions: values that a client may offer while a user fills in an argument (MCP, "Completion").

They come from the parameter's own choices (`Literal`, enums, `bool`), from a list, or from a function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from bridge.errors import DefinitionError
from bridge.tools.checks import listed, require_callable
from bridge.tools.executors import ThreadContext
from bridge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext

MAX_VALUES = 100
"""Maximum number of values in one completion (MCP)."""
_MAX_COUNTED = 10_000

CompletionFunction = Callable[[str, Mapping[str, str], "InvocationContext"], Any]
"""Receives the text so far, the other arguments that are filled in, and the context; returns the values, in order.

It may be asynchronous. Its values are sent as they are.
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
        self._completers: dict[str, CompletionFunction | tuple[str, ...]] = {}
        for name, schema in properties.items():
            if choices := _choices_in(schema, parameters.get("$defs", {})):
                self._completers[name] = choices
        for name, completer in given.items():
            if name not in properties:
                raise DefinitionError(f"{source} has a completion for {name!r}, which is none of its parameters")
            self._completers[name] = _checked(completer, f"the completion of {name!r} of {source}")

    def __bool__(self) -> bool:
        return bool(self._completers)

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
        if inspect.iscoroutinefunction(completer):
            return _of(await completer(text, arguments, context))

        def called() -> Any:
            answer = completer(text, arguments, ThreadContext.of(context))
            return answer if inspect.isawaitable(answer) else _of(answer)  # which may run a generator

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


def _checked(completer: Any, what: str) -> CompletionFunction | tuple[str, ...]:
    if callable(completer):
        function: CompletionFunction = completer
        return require_callable(function, 3, what, "the text, the other arguments and the context")
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
