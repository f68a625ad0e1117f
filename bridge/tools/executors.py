"""Calling functions: coroutine, in the event loop, in a worker thread.

Executors of functions: one for each way in which a function can be called, chosen when the tool is made.

The context of a function in a worker thread: its ways back to the caller cannot be awaited there, and say so.
"""

from __future__ import annotations

import functools
import inspect
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from anyio import NoEventLoopError, get_cancelled_exc_class
from anyio.lowlevel import current_token

from bridge.errors import DefinitionError
from bridge.tools.context import InvocationContext
from bridge.tools.schema.signature import source_of, unwrap_function
from bridge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from bridge.tools.arguments import ArgumentReader
    from bridge.tools.results import ResultWriter
    from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult

_P = ParamSpec("_P")

_T = TypeVar("_T")


class FunctionExecutor:
    """Runs a coroutine function where its caller runs; the subclasses run other functions.

    Args:
        function: What is called, with keyword arguments only.
        reader: Turns the arguments of a request into keyword arguments.
        writer: Turns what the function returns into a result.
        injected: What the context gives: parameter to attribute of the context, or ``itself``.
    """

    __slots__ = ("_function", "_injected", "_read", "_read_text", "_write")

    def __init__(
        self, function: Callable[..., Any], reader: ArgumentReader, writer: ResultWriter, injected: Mapping[str, str]
    ) -> None:
        self._function = function
        self._read = reader.read_soon
        self._read_text = reader.read_text
        self._write = writer.write
        self._injected = tuple((name, _getter(attribute)) for name, attribute in injected.items())

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        keywords = self._keywords(request, context)
        if isinstance(keywords, bytes):
            keywords = await self._keywords_of_text(keywords, request, context)
        return self._write(await self._function(**keywords))

    def _keywords(self, request: ToolExecutionRequest, context: InvocationContext) -> dict[str, Any] | bytes:
        """What the function is called with; or the text of arguments that take long to read."""
        keywords = self._read(request.arguments)  # type: ignore[arg-type]  # an executor receives a mapping
        if not isinstance(keywords, bytes):
            for name, get in self._injected:
                keywords[name] = get(context)
        return keywords

    async def _keywords_of_text(
        self, text: bytes, request: ToolExecutionRequest, context: InvocationContext
    ) -> dict[str, Any]:
        read = functools.partial(self._read_text, text, request.arguments)  # type: ignore[arg-type]  # as above
        keywords = await run_in_thread(read, caller=context.account or None)
        for name, get in self._injected:
            keywords[name] = get(context)
        return keywords


class EventLoopExecutor(FunctionExecutor):
    """Calls a plain function in the event loop's thread; awaits what it returns, if that can be awaited."""

    __slots__ = ()

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        keywords = self._keywords(request, context)
        if isinstance(keywords, bytes):
            keywords = await self._keywords_of_text(keywords, request, context)
        value = self._function(**keywords)
        return self._write(await value if inspect.isawaitable(value) else value)


class ThreadExecutor(FunctionExecutor):
    """Calls a plain function in a worker thread; a caller that leaves does not wait for it.

    What it returns is awaited here, if that can be awaited.
    """

    __slots__ = ()

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        keywords = self._keywords(request, context)
        if isinstance(keywords, bytes):
            keywords = await self._keywords_of_text(keywords, request, context)
        value = await run_in_thread(functools.partial(self._function, **keywords), caller=context.account or None)
        return self._write(await value if inspect.isawaitable(value) else value)


class ContextThreadExecutor(ThreadExecutor):
    """Calls in a worker thread a function that can see, by its context, that its caller has left."""

    __slots__ = ()

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        context = ThreadContext.of(context)
        try:
            return await ThreadExecutor.execute(self, request, context)
        except get_cancelled_exc_class():
            context.cancel()
            raise


def executor_class(
    function: Callable[..., Any], injected: Mapping[str, str], *, in_thread: bool
) -> type[FunctionExecutor]:
    """How to call a function.

    Args:
        function: Anything callable.
        injected: What the context gives it.
        in_thread: Whether a plain function runs in a worker thread.

    Raises:
        DefinitionError: It is a generator function: a tool returns once.
    """
    bottom = unwrap_function(function)
    if inspect.isgeneratorfunction(bottom) or inspect.isasyncgenfunction(bottom):
        raise DefinitionError(
            f"{source_of(function)} is a generator; a tool returns once: return a list, "
            "and report what happens before with InvocationContext.progress"
        )
    if inspect.iscoroutinefunction(_called(function)):
        return FunctionExecutor
    if inspect.iscoroutinefunction(bottom) or not in_thread:  # a plain wrapper around a coroutine function
        return EventLoopExecutor
    return ContextThreadExecutor if "itself" in injected.values() else ThreadExecutor


def _called(function: Any) -> Any:
    """What decides whether a call gives a coroutine: a wrapper does, not what it wraps."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _getter(attribute: str) -> Callable[[InvocationContext], Any]:
    return _itself if attribute == "itself" else attrgetter(attribute)


def _itself(context: InvocationContext) -> InvocationContext:
    return context


def _awaitable(way: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """The same way back, refused where nothing can await it: a coroutine that nobody awaits does nothing, unheard."""

    @functools.wraps(way)
    def checked(*arguments: _P.args, **keywords: _P.kwargs) -> Coroutine[Any, Any, _T]:
        try:
            current_token()
        except NoEventLoopError:
            raise DefinitionError(
                f"InvocationContext.{way.__name__} must be awaited, and a plain function in a worker thread cannot; "
                f"call context.blocking.{way.__name__}(…) there, or make the function an async def"
            ) from None
        return way(*arguments, **keywords)

    return checked


class ThreadContext(InvocationContext):
    """An `InvocationContext` for one call of a function in a worker thread."""

    __slots__ = ()

    @classmethod
    def of(cls, context: InvocationContext) -> ThreadContext:
        """A context for one call within an invocation, as `InvocationContext.fork` makes it."""
        made = cls.__new__(cls)
        _ = context.invocation_id
        for name in InvocationContext.__slots__:
            setattr(made, name, getattr(context, name))
        return made

    progress = _awaitable(InvocationContext.progress)
    log = _awaitable(InvocationContext.log)
    ask = _awaitable(InvocationContext.ask)
    elicit = _awaitable(InvocationContext.elicit)
    sample = _awaitable(InvocationContext.sample)
    roots = _awaitable(InvocationContext.roots)
