"""Executors of functions: coroutine functions, and other functions in the event loop or a worker thread.

The executor is chosen once, when the tool is made.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from anyio import get_cancelled_exc_class

from bridge.errors import BridgeError, DefinitionError
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.lifespan import Lifespan, lifespan_in
from bridge.tools.results import ResultWriter
from bridge.tools.schema.annotations import python_signature, unwrap_function
from bridge.tools.schema.signature import source_of
from bridge.tools.thread_context import ThreadContext
from bridge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from bridge.tools.arguments.reader import ArgumentReader
    from bridge.tools.context import InvocationContext

_logger = logging.getLogger("bridge.tools")

ExecutorFunction = Callable[[ToolExecutionRequest, "InvocationContext"], Any]
"""A function in place of a `bridge.tools.tool.ToolExecutor`; its return value is converted like that of a tool."""


class Writer(Protocol):
    """Converts a function's return value."""

    @property
    def write(self) -> Callable[[Any], ToolExecutionResult]:
        """Return the result; raises `ResultError` if the value cannot be sent."""
        ...

    @property
    def write_json(self) -> Callable[[Any], bytes | ToolExecutionResult]:
        """Return the result like `write`, or as the members of MCP's JSON."""
        ...


LateResult = Callable[[ToolExecutionRequest, ToolExecutionResult], None]
"""Receives the request and the result of a function that succeeded after its caller was cancelled."""

late_results: ContextVar[LateResult | None] = ContextVar("late_results", default=None)
"""Observer of functions in worker threads; called in the thread or in the event loop."""


class FunctionExecutor:
    """Awaits a coroutine function in the caller's event loop; base of the other executors.

    Args:
        function: The function, called with keyword arguments only.
        reader: Converts the arguments of a request into keyword arguments.
        writer: Converts the return value into a result.
        injected: Parameters filled from the context: an attribute of the context by parameter, or ``itself``.
    """

    __slots__ = (
        "_function",
        "_injected",
        "_lifespan",
        "_read",
        "_read_text",
        "_takes_nothing",
        "lifespans",
        "write",
        "write_json",
        "writer",
    )

    runs_directly = True
    """True if calls run in the event loop, and may begin with `start`."""
    has_dependencies = False
    """True if parameters have `bridge.Depends`."""

    def __init__(
        self, function: Callable[..., Any], reader: ArgumentReader, writer: Writer, injected: Mapping[str, str]
    ) -> None:
        self._function = function
        self._read = reader.read_soon
        self._read_text = reader.read_text
        self.writer = writer
        """Converts the return value."""
        self.write = writer.write
        """As of the writer, for the value of a coroutine that `start` has returned."""
        self.write_json = writer.write_json
        """As `write`."""
        self._lifespan = lifespan_of_function(function)
        self.lifespans: tuple[Lifespan[Any], ...] = () if self._lifespan is None else (self._lifespan,)
        """The lifespans whose values its calls may need."""
        self._injected: tuple[tuple[str, Callable[[Any], Any]], ...] = tuple(
            (name, part_of_context(attribute, self._lifespan)) for name, attribute in injected.items()
        )
        self._takes_nothing = not injected and reader.takes_nothing

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        keywords = self._read(request.arguments)
        if isinstance(keywords, bytes):
            keywords = await self._read_in_thread(keywords, request.arguments, context.account)
        for name, get in self._injected:
            keywords[name] = get(context)
        return self.write(await self._function(**keywords))

    @property
    def takes_context(self) -> bool:
        """True if calls need a context."""
        return bool(self._injected)

    def start(
        self, arguments: Mapping[str, Any], context: InvocationContext | None = None
    ) -> Coroutine[Any, Any, Any] | None:
        """Return the coroutine of a call, whose value `write_json` writes; None if only `execute` can run it.

        Args:
            arguments: As in a request.
            context: The context, if the function `takes_context`.
        """
        work: Coroutine[Any, Any, Any]
        if self._takes_nothing and not arguments:
            work = self._function()
            return work
        try:
            keywords = self._read(arguments)
        except BaseException:  # noqa: BLE001 - raised again by what runs the call instead, where it is handled
            return None
        if isinstance(keywords, bytes):
            return None
        for name, get in self._injected:
            keywords[name] = get(context)
        work = self._function(**keywords)
        return work

    def within(self, lifespan: Lifespan[Any]) -> FunctionExecutor:
        """Return an executor whose contexts have a lifespan; this one if its module has one, or it needs no context."""
        if self._lifespan is not None or not self.takes_context:
            return self
        changed = copy(self)
        changed._lifespan, changed.lifespans = lifespan, (*self.lifespans, lifespan)  # noqa: SLF001 - of this class
        changed._injected = tuple((name, _within(get, lifespan)) for name, get in self._injected)  # noqa: SLF001
        return changed

    def writing(self, writer: Writer) -> FunctionExecutor:
        """Return an executor with another writer."""
        changed = copy(self)
        changed.writer, changed.write, changed.write_json = writer, writer.write, writer.write_json
        return changed

    async def _read_in_thread(self, text: bytes, arguments: Mapping[str, Any] | str, account: str) -> dict[str, Any]:
        """Return the keyword arguments from the JSON text of large arguments."""
        read = functools.partial(self._read_text, text, arguments)
        return await run_in_thread(read, caller=account or None)


class EventLoopExecutor(FunctionExecutor):
    """Calls a function in the event loop's thread; awaits the return value if it is awaitable."""

    __slots__ = ()

    def __init__(
        self, function: Callable[..., Any], reader: ArgumentReader, writer: Writer, injected: Mapping[str, str]
    ) -> None:
        @functools.wraps(function)
        async def call(**keywords: Any) -> Any:
            value = function(**keywords)
            return await value if inspect.isawaitable(value) else value

        super().__init__(call, reader, writer, injected)


class ThreadExecutor(FunctionExecutor):
    """Calls a function in a worker thread; awaits the return value in the event loop if it is awaitable.

    If the caller is cancelled, it does not wait for the function.
    """

    __slots__ = ()

    runs_directly = False

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        keywords = self._read(request.arguments)
        if isinstance(keywords, bytes):
            keywords = await self._read_in_thread(keywords, request.arguments, context.account)
        for name, get in self._injected:
            keywords[name] = get(context)
        return await _write_from_thread(functools.partial(self._function, **keywords), self.write, request, context)


class ContextThreadExecutor(ThreadExecutor):
    """Calls a function with a context parameter in a worker thread; sets `cancelled` if the caller is cancelled."""

    __slots__ = ()

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        context = ThreadContext.of(context, self._lifespan)
        try:
            return await ThreadExecutor.execute(self, request, context)
        except get_cancelled_exc_class():
            context.cancel()
            raise


class CallableExecutor:
    """Calls a function of the request and the context: a coroutine function in the event loop, another in a thread.

    Raises:
        DefinitionError: The object is not a function that takes these two arguments.
    """

    __slots__ = ("_function", "_is_async", "_write")

    def __init__(self, function: Any, tool: str) -> None:
        try:
            python_signature(function).bind(None, None)
        except (TypeError, ValueError) as error:
            raise DefinitionError(
                f"the executor of {tool!r}, {function!r}, must have a method execute(request, context), or be a "
                f"function of these two ({error})"
            ) from None
        self._function = function
        self._is_async = inspect.iscoroutinefunction(_called(function))
        self._write = ResultWriter(tool, inspect.Signature.empty).write

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        request = request.parsed()
        if self._is_async:
            return self._write(await self._function(request, context))
        context = ThreadContext.of(context)
        try:
            call = functools.partial(self._function, request, context)
            return await _write_from_thread(call, self._write, request, context)
        except get_cancelled_exc_class():
            context.cancel()
            raise


@dataclass(frozen=True, slots=True)
class ObjectExecutor:
    """Runs an executor of other code, whose return value is converted like that of a tool; compared by that executor.

    Raises:
        DefinitionError: Its ``execute`` does not take a request and a context.
    """

    executor: Any
    tool: str
    _execute: ExecutorFunction = field(init=False, repr=False, compare=False)
    _write: Callable[[Any], ToolExecutionResult] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        execute = self.executor.execute
        if isinstance(self.executor, type):
            raise DefinitionError(f"the executor of {self.tool!r} is the class {self.executor!r}; give an instance")
        by_function = CallableExecutor(execute, self.tool)
        is_async = inspect.iscoroutinefunction(_called(execute))
        object.__setattr__(self, "_execute", execute if is_async else by_function.execute)
        object.__setattr__(self, "_write", ResultWriter(self.tool, inspect.Signature.empty).write)

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        result = await self._execute(request, context)
        return result if isinstance(result, ToolExecutionResult) else self._write(result)


async def _write_from_thread(
    call: Callable[[], Any],
    write: Callable[[Any], ToolExecutionResult],
    request: ToolExecutionRequest,
    context: InvocationContext,
) -> ToolExecutionResult:
    """Run a call in a worker thread and convert its value, also if it succeeds after the caller was cancelled."""
    observe = late_results.get()

    def report(value: Any) -> None:
        try:
            result = write(value)
        except BridgeError as error:
            _logger.warning("%r returned after its caller had left: %s", request.name, error)
        else:
            observe(request, result)  # type: ignore[misc]  # only called with an observer

    value = await run_in_thread(call, caller=context.account or None, late=report if observe else None)
    return write(await value if inspect.isawaitable(value) else value)


def executor_class(
    function: Callable[..., Any], injected: Mapping[str, str], *, in_thread: bool
) -> type[FunctionExecutor]:
    """Choose the executor for a function; ``in_thread`` runs plain functions in worker threads.

    Raises:
        DefinitionError: The function is a generator function; a tool returns only once.
    """
    bottom = unwrap_function(function)
    if inspect.isgeneratorfunction(bottom) or inspect.isasyncgenfunction(bottom):
        raise DefinitionError(
            f"{source_of(function)} is a generator; a tool returns once: return a list, "
            "and report what happens before with InvocationContext.progress"
        )
    if inspect.iscoroutinefunction(_called(function)):
        return FunctionExecutor
    if inspect.iscoroutinefunction(bottom) or not in_thread:  # a synchronous wrapper around a coroutine function
        return EventLoopExecutor
    return ContextThreadExecutor if "itself" in injected.values() else ThreadExecutor


def lifespan_of_function(function: Any) -> Lifespan[Any] | None:
    """Return the lifespan of the module that defines a function or class; None if it has none.

    Raises:
        DefinitionError: It has several.
    """
    bottom = unwrap_function(function)
    names = vars(sys.modules.get(bottom.__module__, object())) if isinstance(bottom, type) else None
    return lifespan_in(getattr(bottom, "__globals__", {}) if names is None else names)


def part_of_context(attribute: str, lifespan: Lifespan[Any] | None) -> Callable[[Any], Any]:
    """Return what gets an attribute of a context, or with ``itself`` the context with this lifespan."""
    if attribute != "itself":
        return attrgetter(attribute)
    return (lambda context: context) if lifespan is None else (lambda context: context.within(lifespan))


def _within(get: Callable[[Any], Any], lifespan: Lifespan[Any]) -> Callable[[Any], Any]:
    return lambda context: get(context.within(lifespan))


def _called(function: Any) -> Any:
    """Return the function that is actually called, without looking inside wrappers."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__
