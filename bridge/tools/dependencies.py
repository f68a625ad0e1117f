"""Dependencies: parameters whose values functions provide, for each call.

    call ─> values of the dependencies ─> the function ─> its result is written ─> generators are closed, last one first

A dependency that several parameters of a call need is called once. The mark is `Depends` (FastAPI's and FastMCP's
word).
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from anyio import CancelScope, Event, create_task_group, get_cancelled_exc_class

from bridge.errors import DefinitionError
from bridge.tools.executors import FunctionExecutor, lifespan_of_function, part_of_context
from bridge.tools.schema.annotations import python_signature, unwrap_function
from bridge.tools.schema.parameters import Depends, dependency_in, injected_attribute
from bridge.tools.schema.signature import annotations_of, source_of
from bridge.tools.thread_context import ThreadContext
from bridge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from bridge.tools.arguments.reader import ArgumentReader
    from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
    from bridge.tools.context import InvocationContext
    from bridge.tools.executors import Writer
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.schema.signature import Signature

_overrides: ContextVar[Mapping[Callable[..., Any], Callable[..., Any]]] = ContextVar("bridge.overrides")


@contextmanager
def overriding(overrides: Mapping[Callable[..., Any], Callable[..., Any]]) -> Iterator[None]:
    """Context in which other functions provide the values of dependencies, for tests.

    Args:
        overrides: The other function by the function that it replaces.
    """
    token = _overrides.set({**_overrides.get({}), **overrides})
    try:
        yield
    finally:
        _overrides.reset(token)


class _Dependency:
    """A function that provides values, and what it needs itself.

    Raises:
        DefinitionError: A parameter cannot be filled in, or the function depends on itself.
    """

    __slots__ = ("_injected", "_lifespan", "_open", "_parts", "function", "is_async", "uses_cache")

    def __init__(self, mark: Depends, path: tuple[Callable[..., Any], ...], source: str) -> None:
        function = self.function = mark.dependency
        if function in path:
            circle = " → ".join(_name(each) for each in (*path[path.index(function) :], function))
            raise DefinitionError(f"{source} depends on itself: {circle}; break the circle")
        self.uses_cache = mark.use_cache
        self._parts: dict[str, _Dependency] = {}
        self._injected: dict[str, Callable[[Any], Any]] = {}
        self._lifespan = lifespan_of_function(function)
        self._read_parameters((*path, function))
        bottom = unwrap_function(function)
        self.is_async = inspect.iscoroutinefunction(bottom) or inspect.isasyncgenfunction(bottom)
        self._open = _opener(function, bottom)

    def _read_parameters(self, path: tuple[Callable[..., Any], ...]) -> None:
        function = self.function
        source = f"class {function.__qualname__!r}" if isinstance(function, type) else source_of(function)
        try:
            signature = python_signature(function)
        except (ValueError, TypeError) as error:
            raise DefinitionError(f"{source} has no readable signature; wrap it in a function that has one") from error
        described: Any = vars(function).get("__init__", function) if isinstance(function, type) else function
        resolve = annotations_of(described, {}, source)
        for name, parameter in signature.parameters.items():
            annotation = resolve(f"the annotation of the parameter {name!r}", parameter.annotation)
            if (mark := dependency_in(annotation, parameter.default)) is not None:
                self._parts[name] = _Dependency(mark, path, source)
            elif (attribute := injected_attribute(annotation)) is not None:
                self._injected[name] = part_of_context(attribute, self._lifespan)
            elif parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
                raise DefinitionError(
                    f"{source} provides a value and nothing fills in its parameter {name!r}; give it a default, "
                    "Depends(…), or the type InvocationContext or Caller"
                )

    @property
    def lifespans(self) -> Iterable[Lifespan[Any]]:
        """The lifespans whose values it may need."""
        if self._lifespan is not None:
            yield self._lifespan
        for part in self._parts.values():
            yield from part.lifespans

    async def value(self, call: _Call) -> Any:
        """Return its value for a call."""
        other = _overrides.get({}).get(self.function)
        made = self if other is None else _overriding(other, self.uses_cache)
        if made.uses_cache and made.function in call.values:
            return call.values[made.function]
        return await made._made(call)  # noqa: SLF001 - of the same class

    async def _made(self, call: _Call) -> Any:
        keywords = {name: await part.value(call) for name, part in self._parts.items()}
        context = call.context if self.is_async else ThreadContext.of(call.context, self._lifespan)
        for name, get in self._injected.items():
            keywords[name] = get(context)
        value = call.values[self.function] = await self._open(call.stack, keywords)
        return value


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@lru_cache(256)
def _overriding(function: Callable[..., Any], uses_cache: bool) -> _Dependency:
    return _Dependency(Depends(function, uses_cache), (), _name(function))


class _Call:
    """The values of one call.

    Args:
        context: Context of the call.
        stack: Closes what is open after the call.
    """

    __slots__ = ("context", "stack", "values")

    def __init__(self, context: InvocationContext, stack: AsyncExitStack) -> None:
        self.context = context
        self.stack = stack
        self.values: dict[Callable[..., Any], Any] = {}


class Dependencies:
    """The dependencies of one function.

    Args:
        marks: The marks of its parameters, by name.
        source: The function, for messages.

    Raises:
        DefinitionError: A parameter of a dependency cannot be filled in, or one depends on itself.
    """

    __slots__ = ("_parts",)

    def __init__(self, marks: Mapping[str, Depends], source: str) -> None:
        self._parts = {name: _Dependency(mark, (), source) for name, mark in marks.items()}

    @property
    def lifespans(self) -> tuple[Lifespan[Any], ...]:
        """The lifespans whose values they may need."""
        return tuple(found for part in self._parts.values() for found in part.lifespans)

    @asynccontextmanager
    async def values(self, context: InvocationContext) -> AsyncIterator[dict[str, Any]]:
        """Provide the values for one call during this block, by parameter.

        Closing is not cancelled. An exception of the block is raised in any case, also if a dependency suppresses it.
        """
        raised: BaseException | None = None
        with CancelScope() as scope:
            async with AsyncExitStack() as stack:
                try:
                    call = _Call(context, stack)
                    yield {name: await part.value(call) for name, part in self._parts.items()}
                except BaseException as error:
                    raised = error
                    raise
                finally:
                    scope.shield = True
        if raised is not None:
            raise raised


class DependentExecutor(FunctionExecutor):
    """Calls a function with dependencies, which stay open until its result is written.

    Args:
        function: The function.
        reader: Converts the arguments of a request into keyword arguments.
        writer: Converts the return value into a result.
        signature: The function's signature.
        in_thread: True for a function that runs in a worker thread. The caller waits for it, also when it is
            cancelled, because the function uses what is open.
    """

    __slots__ = ("_dependencies", "_in_thread")

    runs_directly = False
    has_dependencies = True

    def __init__(
        self,
        function: Callable[..., Any],
        reader: ArgumentReader,
        writer: Writer,
        signature: Signature,
        *,
        in_thread: bool,
    ) -> None:
        super().__init__(function, reader, writer, signature.injected)
        self._dependencies = Dependencies(signature.dependencies, source_of(function))
        self._in_thread = in_thread
        self.lifespans += self._dependencies.lifespans

    @property
    def takes_context(self) -> bool:
        """True, since the dependencies may need it."""
        return True

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        keywords = self._read(request.arguments)
        if isinstance(keywords, bytes):
            keywords = await self._read_in_thread(keywords, request.arguments, context.account)
        async with self._dependencies.values(context) as values:
            keywords |= values
            seen = ThreadContext.of(context, self._lifespan) if self._in_thread else context
            for name, get in self._injected:
                keywords[name] = get(seen)
            if self._in_thread:
                value = await run_to_end(partial(self._function, **keywords), seen)
            else:
                value = self._function(**keywords)
            return self.write(await value if inspect.isawaitable(value) else value)
        raise AssertionError("an exception was suppressed")  # never: see `Dependencies.values`


def dependencies_of(function: Callable[..., Any], given: int) -> dict[str, Depends]:
    """Return the marks of a function's parameters that other functions provide, by name; without the first ones."""
    try:
        parameters = [*python_signature(function).parameters.items()][given:]
    except (ValueError, TypeError):  # some builtins have none
        return {}
    resolve, found = annotations_of(function, {}, source_of(function)), {}
    for name, parameter in parameters:
        annotation = resolve(f"the annotation of the parameter {name!r}", parameter.annotation)
        if (mark := dependency_in(annotation, parameter.default)) is not None:
            found[name] = mark
    return found


async def _in_thread(call: Callable[[], Any], caller: str | None = None) -> Any:
    """Run a function in a worker thread, and wait for it also when the caller is cancelled."""
    with CancelScope(shield=True):
        return await run_in_thread(call, caller=caller)


async def run_to_end(call: Callable[[], Any], context: InvocationContext) -> Any:
    """Run a function in a worker thread, and wait for it; if the caller is cancelled, its context says so."""
    ended, value, raised = Event(), None, None

    async def run() -> None:
        nonlocal value, raised
        try:
            value = await _in_thread(call, context.account or None)
        except Exception as error:  # noqa: BLE001 - raised below, and not in a group
            raised = error
        finally:
            ended.set()

    async with create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            await ended.wait()
        except get_cancelled_exc_class():
            context.cancel()
            raise
    if raised is not None:
        raise raised
    return value


def _opener(function: Any, bottom: Any) -> Callable[[AsyncExitStack, dict[str, Any]], Any]:
    """Return what provides a value: it calls the function, and leaves to the stack what has to be closed."""
    if inspect.isasyncgenfunction(bottom):

        async def enter(stack: AsyncExitStack, keywords: dict[str, Any]) -> Any:
            made = function(**keywords)
            manager = made if hasattr(made, "__aenter__") else asynccontextmanager(lambda: made)()
            return await stack.enter_async_context(manager)

        return enter
    if inspect.isgeneratorfunction(bottom):

        async def enter_in_thread(stack: AsyncExitStack, keywords: dict[str, Any]) -> Any:
            made = function(**keywords)
            manager = made if hasattr(made, "__enter__") else contextmanager(lambda: made)()
            return await stack.enter_async_context(_threaded(manager))

        return enter_in_thread
    if inspect.iscoroutinefunction(bottom):

        async def call(_: AsyncExitStack, keywords: dict[str, Any]) -> Any:
            return await function(**keywords)

        return call

    async def call_in_thread(_: AsyncExitStack, keywords: dict[str, Any]) -> Any:
        return await _in_thread(partial(function, **keywords))

    return call_in_thread


@asynccontextmanager
async def _threaded(manager: AbstractContextManager[Any]) -> AsyncIterator[Any]:
    """Enter and leave a context manager in worker threads, because it may block."""
    value = await _in_thread(manager.__enter__)
    try:
        yield value
    except BaseException as error:
        if not await _in_thread(partial(manager.__exit__, type(error), error, error.__traceback__)):
            raise
    else:
        await _in_thread(partial(manager.__exit__, None, None, None))


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
