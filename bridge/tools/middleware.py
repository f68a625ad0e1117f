"""Middleware: code around the requests of a server, or of the servers of a provider.

    request ─> on_request ─> call_tool ─> the next middleware ─> … ─> the tool
                                                             result <─╯

The first middleware is the outermost. Methods that a middleware does not override are left out when a server is made,
so that requests of other kinds cost nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio import get_cancelled_exc_class
from anyio.lowlevel import RunVar

from bridge.errors import DefinitionError
from bridge.text import short_repr
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.checks import listed, require_callable
from bridge.tools.completion import Completion
from bridge.tools.thread_context import ThreadContext
from bridge.tools.threads import DEFAULT_THREADS

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutor
    from bridge.types import Feature

_NO_ARGUMENTS: Mapping[str, str] = {}

CallNext = Callable[[ToolExecutionRequest, "InvocationContext"], Awaitable[ToolExecutionResult]]
"""Runs the tool, or the next middleware."""
ToolMiddleware = Callable[[ToolExecutionRequest, "InvocationContext", CallNext], Awaitable[ToolExecutionResult]]
"""Runs around a tool: receives the request, the context and the function that runs the tool."""

Hook = Literal[
    "call_tool",
    "read_resource",
    "get_prompt",
    "complete",
    "list_tools",
    "list_resources",
    "list_resource_templates",
    "list_prompts",
]
"""Method of a `Middleware` for one kind of request."""


@dataclass(frozen=True, slots=True)
class ReadResourceRequest:
    """Request to read a resource; the result is a `ToolExecutionResult` whose content is `bridge.File` blocks."""

    uri: str
    revision: object = field(default=None, compare=False, repr=False, kw_only=True)
    """Value that changes when a resource or the list of resources does; None if that is unknown."""


@dataclass(frozen=True, slots=True)
class GetPromptRequest:
    """Request for a prompt; the result is a `ToolExecutionResult` whose ``value`` is `bridge.PromptMessage` objects."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=lambda: _NO_ARGUMENTS)
    revision: object = field(default=None, compare=False, repr=False, kw_only=True)
    """Value that changes when the list of prompts does; None if that is unknown."""


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """Request for values of an argument; the result is a `bridge.tools.Completion`."""

    feature: Feature
    """``prompts``, or ``resources`` for a template."""
    name: str
    """Name of the prompt, or text of the template."""
    argument: str
    """Name of the argument, or of the template's variable."""
    value: str
    """Its text so far."""
    arguments: Mapping[str, str] = field(default_factory=lambda: _NO_ARGUMENTS)
    """The other arguments that are filled in."""


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Request for a list; the result is a list or tuple of all items that the caller sees, before it is cut into pages.

    They are objects of `bridge.Tool`, `bridge.resources.Resource`, `bridge.resources.ResourceTemplate` or
    `bridge.prompts.Prompt`.
    """

    method: str
    """``tools/list``, ``resources/list``, ``resources/templates/list`` or ``prompts/list``."""
    revision: object = field(default=None, compare=False, repr=False, kw_only=True)
    """Value that changes when the list does."""


Request = ToolExecutionRequest | ReadResourceRequest | GetPromptRequest | CompleteRequest | ListRequest
"""Request of any kind."""
_METHODS: dict[type, str] = {
    ToolExecutionRequest: "tools/call",
    ReadResourceRequest: "resources/read",
    GetPromptRequest: "prompts/get",
    CompleteRequest: "completion/complete",
}


def method_of(request: Request) -> str:
    """Return the name of a request's method, such as ``tools/call``."""
    return request.method if isinstance(request, ListRequest) else _METHODS[type(request)]


def target_of(request: Request) -> str | None:
    """Return the tool, prompt or template that a request names, or the URI; None for a list."""
    if isinstance(request, ReadResourceRequest):
        return request.uri
    return None if isinstance(request, ListRequest) else request.name


class Middleware:
    """Base of middleware: override the methods for the requests that it is for; coroutine functions, or plain ones.

    A method may change the request, run the rest by ``call_next(request, context)``, once, several times or never,
    change the result, or return one of its own. It refuses by raising `bridge.ToolError`, whose text the client gets,
    or `bridge.middleware.ProtocolError`, a JSON-RPC error. Failures of what it surrounds are raised by ``call_next`` as
    exceptions; errors of another server's tool are results with ``is_error``.

    A plain method runs in a worker thread, and gets a ``call_next`` that returns the result itself.
    """

    def on_request(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run around every kind of request, outside of the method for its kind.

        Args:
            request: The request; see `bridge.middleware.method_of` and `bridge.middleware.target_of`.
            context: Context of the request.
            call_next: Runs the rest, given a request of the same kind and the context.
        """
        return call_next(request, context)

    def call_tool(
        self, request: ToolExecutionRequest, context: InvocationContext, call_next: Callable[..., Any]
    ) -> Any:
        """Run around a call of a tool; its arguments are not yet validated. Returns a `ToolExecutionResult`."""
        return call_next(request, context)

    def read_resource(
        self, request: ReadResourceRequest, context: InvocationContext, call_next: Callable[..., Any]
    ) -> Any:
        """Run around reading a resource. Returns a `ToolExecutionResult` whose content is `bridge.File` blocks."""
        return call_next(request, context)

    def get_prompt(self, request: GetPromptRequest, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run around rendering a prompt. Returns a `ToolExecutionResult` whose ``value`` is messages."""
        return call_next(request, context)

    def complete(self, request: CompleteRequest, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run around the completion of an argument. Returns a `bridge.tools.Completion`."""
        return call_next(request, context)

    def list_tools(self, request: ListRequest, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run around the list of tools. Returns tools; those that are left out can still be called."""
        return call_next(request, context)

    def list_resources(self, request: ListRequest, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run around the list of resources. Returns resources."""
        return call_next(request, context)

    def list_resource_templates(
        self, request: ListRequest, context: InvocationContext, call_next: Callable[..., Any]
    ) -> Any:
        """Run around the list of resource templates. Returns templates."""
        return call_next(request, context)

    def list_prompts(self, request: ListRequest, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run around the list of prompts. Returns prompts."""
        return call_next(request, context)


def checked_middleware(given: object) -> tuple[Middleware, ...]:
    """Return a list of middleware, or a single one, as a tuple.

    Raises:
        DefinitionError: It contains something else, or a method of one cannot be called with its arguments.
    """
    found = listed(given, "middleware", "a Middleware")
    for each in found:
        if isinstance(each, type) and issubclass(each, Middleware):
            raise DefinitionError(f"{each.__name__} is a class; give an object: middleware=[{each.__name__}(…)]")
        if not isinstance(each, Middleware):
            raise DefinitionError(f"middleware must be objects of subclasses of Middleware, not {short_repr(each)}")
        for name in ("on_request", *get_args(Hook)):
            if _overrides(each, name):
                what = f"the method {name} of {type(each).__name__}"
                require_callable(getattr(each, name), 3, what, "the request, the context and call_next")
    return found


class Layer:
    """One function of the middleware around a request.

    Args:
        function: Receives the request, the context and ``call_next``.
        in_thread: True to run it in a worker thread if it is no coroutine function.
    """

    __slots__ = ("_function", "_in_thread", "_limiter")

    def __init__(self, function: Callable[..., Any], *, in_thread: bool = True) -> None:
        self._function = function
        self._in_thread = in_thread and not inspect.iscoroutinefunction(inspect.unwrap(function))
        # Of each layer, since its functions hold their threads while they wait for those of inner ones.
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar("bridge.tools.middleware")

    async def run(self, call_next: Callable[..., Any], request: Any, context: InvocationContext) -> Any:
        """Run the function."""
        if self._in_thread:
            result = await self._run_in_thread(call_next, request, context)
        else:
            result = self._function(request, context, call_next)
            if inspect.isawaitable(result):
                result = await result
        expected = _expected_for(request)
        if not isinstance(result, expected):
            names = " or ".join(each.__name__ for each in expected)
            raise DefinitionError(
                f"the middleware {self._function!r} returned {short_repr(result)}; return a {names}, such as that of "
                "call_next"
            )
        return result

    async def _run_in_thread(self, call_next: Callable[..., Any], request: Any, context: InvocationContext) -> Any:
        """Run the function in a worker thread; ``call_next`` runs in this task, so that it is cancelled with it."""
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(DEFAULT_THREADS)
            self._limiter.set(limiter)
        seen = ThreadContext.of(context)
        outcome: Future[Any] = Future()
        calls, received = anyio.create_memory_object_stream[tuple[Future[Any], Any, Any]](1)

        def call_and_wait(wanted: Any, given: InvocationContext) -> Any:
            answer: Future[Any] = Future()
            anyio.from_thread.run_sync(calls.send_nowait, (answer, wanted, given))
            return answer.result()

        def call() -> None:
            _settle(outcome, partial(self._function, request, seen, call_and_wait))

        async def work() -> None:
            with calls:
                await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)

        async with anyio.create_task_group() as tasks, received:
            tasks.start_soon(work)
            async for answer, wanted, given in received:
                try:
                    answer.set_result(await call_next(wanted, context if given is seen else given))
                except get_cancelled_exc_class():
                    answer.set_exception(CancelledError())
                    seen.cancel()
                    raise
                except BaseException as error:  # noqa: BLE001 - raised in the thread
                    answer.set_exception(error)
        return outcome.result()


def _settle(outcome: Future[Any], function: Callable[[], Any]) -> None:
    try:
        outcome.set_result(function())
    except BaseException as error:  # noqa: BLE001 - raised where the outcome is used
        outcome.set_exception(error)


def _expected_for(request: Any) -> tuple[type, ...]:
    if isinstance(request, ListRequest):
        return list, tuple
    return (Completion,) if isinstance(request, CompleteRequest) else (ToolExecutionResult,)


def layers_of(middleware: tuple[Middleware, ...], hook: Hook) -> tuple[Layer, ...]:
    """Return the overridden methods of middleware for one kind of request, the outermost first."""
    methods = ((each, name) for each in middleware for name in ("on_request", hook))
    return tuple(Layer(getattr(each, name)) for each, name in methods if _overrides(each, name))


def _overrides(middleware: Middleware, name: str) -> bool:
    method = getattr(middleware, name)
    return getattr(method, "__func__", method) is not getattr(Middleware, name)


def around(layers: tuple[Layer, ...], last: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a request and the context that runs layers around another one."""
    for layer in reversed(layers):
        last = partial(layer.run, last)
    return last


@dataclass(frozen=True, slots=True)
class WrappedExecutor:
    """Executor with a middleware; compared by value, so that a ToolBox recognizes unchanged tools."""

    executor: ToolExecutor
    middleware: ToolMiddleware | Middleware
    _layers: tuple[Layer, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.middleware, Middleware):
            layers = layers_of((self.middleware,), "call_tool")
        else:
            layers = (Layer(self.middleware, in_thread=False),)
        object.__setattr__(self, "_layers", layers)

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        result: ToolExecutionResult = await around(self._layers, self.executor.execute)(request, context)
        return result
