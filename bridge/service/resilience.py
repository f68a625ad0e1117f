"""Wrappers that add rate limits, circuit breakers, caching and retries to a tool.

    tool = cached(retried(circuit_broken(rate_limited(search, 10, per_seconds=60)), attempts=3), ttl_seconds=300)

The outermost wrapper runs first: in this example cached results do not count as calls, and each retry does. The tool
keeps its name, schema and policy; its timeout covers all wrappers together. Each wrapper uses a well-known library;
needs the extra ``guards``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

import anyio
from anyio import get_cancelled_exc_class, lowlevel

from bridge.errors import ArgumentsError, DefinitionError, MissingExtraError, ToolError
from bridge.text import with_count
from bridge.tools.checks import require_callable, require_count, require_seconds
from bridge.tools.function import one_tool
from bridge.tools.tool import ToolExecutionResult
from bridge.tools.transform import WrappedExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

    from cachetools import TTLCache
    from tenacity import RetryCallState

    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool, ToolExecutionRequest, ToolExecutor
    from bridge.tools.transform import CallNext, ToolMiddleware

_logger = logging.getLogger("bridge.service")
_EXTRA = "guards"


def rate_limited(
    source: object,
    calls: int,
    *,
    per_seconds: float,
    key: Callable[[InvocationContext], str] = lambda _: "everybody",
    max_wait_seconds: float = 0.0,
) -> Tool:
    """Limit the rate of calls; calls over the limit wait, or fail with the number of seconds to wait.

    Args:
        source: A Tool or a function.
        calls: Number of calls per period.
        per_seconds: The period, a whole number of seconds; capacity is restored evenly within it.
        key: Returns the key under which calls are counted, such as ``lambda context: context.caller.name``. Defaults to
            one count for all calls.
        max_wait_seconds: Maximum wait of a call for its turn; 0 lets calls over the limit fail at once.

    Raises:
        DefinitionError: The source is not one tool, or the rate is invalid.
        MissingExtraError: The package ``throttled-py`` is not installed.
    """
    require_count(calls, "calls")
    period: Any = per_seconds  # untyped programs may pass any type
    if not isinstance(period, int | float) or period < 1 or not float(period).is_integer():
        raise DefinitionError(
            f"rate_limited takes at least 1 call, in a whole number of seconds of at least 1, not {calls!r} in "
            f"{per_seconds!r} seconds"
        )
    require_callable(key, 1, "key", "the context")
    require_seconds(max_wait_seconds, "max_wait_seconds", optional=False, may_be_zero=True)
    throttled = _library("rate_limited", "throttled", "throttled-py")
    quota = throttled.rate_limiter.per_duration(timedelta(seconds=per_seconds), calls, burst=calls)
    throttle = throttled.Throttled(using="gcra", quota=quota, store=throttled.store.MemoryStore())

    async def limited(
        request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
    ) -> ToolExecutionResult:
        counted, last_turn = key(context), anyio.current_time() + max_wait_seconds
        while (answer := throttle.limit(counted)).limited:
            wait_seconds = answer.state.retry_after
            if anyio.current_time() + wait_seconds > last_turn:
                seconds = max(1, math.ceil(wait_seconds))
                raise ToolError(f"{request.name!r} was called too often; try again in {with_count(seconds, 'second')}")
            await anyio.sleep(wait_seconds)
        return await call_next(request, context)

    return _around(one_tool(source), limited)


def circuit_broken(source: object, *, failures: int = 5, recovery_seconds: float = 60.0) -> Tool:
    """Suspend calls of a tool after consecutive failures (circuit breaker).

    Failures are unexpected exceptions and timeouts. A `ToolError` or invalid arguments are not failures: the backend
    works.

    Args:
        source: A Tool or a function.
        failures: Number of consecutive failures that opens the circuit.
        recovery_seconds: Time until one trial call is allowed.

    Raises:
        DefinitionError: The source is not one tool, or a value is invalid.
        MissingExtraError: The package ``circuitbreaker`` is not installed.
    """
    require_count(failures, "failures")
    require_seconds(recovery_seconds, "recovery_seconds", optional=False)
    if recovery_seconds == math.inf:
        raise DefinitionError("recovery_seconds must be finite; a tool that is never tried again can be removed")
    library = _library("circuit_broken", "circuitbreaker", "circuitbreaker")
    tool = one_tool(source)
    breaker = library.CircuitBreaker(
        failure_threshold=failures, recovery_timeout=recovery_seconds, expected_exception=_is_failure, name=tool.name
    )

    async def broken(
        request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
    ) -> ToolExecutionResult:
        if breaker.opened:
            seconds = max(1, math.ceil(breaker.open_remaining))
            raise ToolError(f"{request.name!r} does not work at present; try again in {with_count(seconds, 'second')}")
        deadline = anyio.current_effective_deadline()
        try:
            result = await call_next(request, context)
        except BaseException as error:
            if isinstance(error, get_cancelled_exc_class()) and anyio.current_time() < deadline:
                raise  # cancelled by the caller, which is not a failure of the backend
            with breaker:
                raise
        with breaker:
            return result

    return _around(tool, broken)


def cached(
    source: object,
    *,
    ttl_seconds: float,
    max_entries: int = 1_000,
    key: Callable[[InvocationContext], object] | None = None,
) -> Tool:
    """Cache the results of a tool; errors are not cached.

    A result is reused for calls with the same arguments and the same key. Concurrent calls of this kind share one run.
    If the call that started the run is cancelled, another one runs the tool.

    Args:
        source: A Tool or a function; it should have no side effects.
        ttl_seconds: Time to live of a result.
        max_entries: Maximum cached results.
        key: Separates callers that must not share results, such as ``lambda context: context.caller.name``; ``lambda
            context: None`` shares them among all. Defaults to everything that the tool can see: the caller, the memory
            id and the `InvocationParameters`; for tools that receive the whole context or run remotely also the
            headers, metadata and client. A function that reads the caller elsewhere, such as from a context variable,
            needs a key.

    Raises:
        DefinitionError: The source is not one tool, or a value is invalid.
        MissingExtraError: The package ``cachetools`` is not installed.
    """
    require_seconds(ttl_seconds, "ttl_seconds", optional=False)
    require_count(max_entries, "max_entries")
    if key is not None:
        require_callable(key, 1, "key", "the context")
    library = _library("cached", "cachetools", "cachetools")
    tool = one_tool(source)
    key = key or (_whole_context_key if tool.interactive else _context_key)
    return replace(tool, executor=_Cached(tool.executor, library.TTLCache(max_entries, ttl_seconds), key))


def retried(
    source: object,
    *,
    attempts: int = 3,
    when: Callable[[BaseException], bool] | None = None,
    first_wait_seconds: float = 0.5,
    max_wait_seconds: float = 30.0,
) -> Tool:
    """Run a tool again if it raises; each retry is logged.

    Args:
        source: A Tool or a function; running it twice must be harmless.
        attempts: Maximum number of runs.
        when: Returns True for exceptions to retry. Defaults to all except `ToolError` and invalid arguments.
        first_wait_seconds: Wait before the second attempt; it doubles for each further attempt, with jitter.
        max_wait_seconds: Maximum wait.

    Raises:
        DefinitionError: The source is not one tool, or a value is invalid.
        MissingExtraError: The package ``tenacity`` is not installed.
    """
    require_count(attempts, "attempts")
    if when is not None:
        require_callable(when, 1, "when", "the exception")
    require_seconds(first_wait_seconds, "first_wait_seconds", optional=False, may_be_zero=True)
    require_seconds(max_wait_seconds, "max_wait_seconds", optional=False, may_be_zero=True)
    library = _library("retried", "tenacity", "tenacity")
    tool = one_tool(source)

    def log(state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        _logger.warning("the tool %r failed (%s); attempt %d follows", tool.name, error, state.attempt_number + 1)

    retrying = library.AsyncRetrying(
        stop=library.stop_after_attempt(attempts),
        wait=library.wait_exponential_jitter(
            multiplier=first_wait_seconds, max=max_wait_seconds, jitter=first_wait_seconds
        ),
        retry=library.retry_if_exception(when or _is_unexpected),
        before_sleep=log,
        sleep=anyio.sleep,
        reraise=True,
    )

    async def repeated(
        request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
    ) -> ToolExecutionResult:
        result: ToolExecutionResult = await retrying.copy()(call_next, request, context)
        return result

    return _around(tool, repeated)


def _around(tool: Tool, middleware: ToolMiddleware) -> Tool:
    return replace(tool, executor=WrappedExecutor(tool.executor, middleware))


@dataclass(slots=True)
class _Run:
    """One run of a tool whose result is shared by concurrent calls."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    outcome: ToolExecutionResult | Exception | None = None
    """None if there is nothing to share: the run was cancelled, or asked its caller a question."""


@dataclass(frozen=True, slots=True, eq=False)
class _Cached:
    executor: ToolExecutor
    results: TTLCache[object, ToolExecutionResult]
    key: Callable[[InvocationContext], object]
    lock: Lock = field(default_factory=Lock)
    """Held while the results or the runs are used; cachetools is not thread-safe."""
    runs: dict[object, _Run] = field(default_factory=dict)

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        if context.round or context.resumption is not None:
            return await self.executor.execute(request, context)  # depends on answers of this caller
        key = (_frozen(request.arguments_by_name()), _frozen(self.key(context)))
        run_key = (lowlevel.current_token(), key)  # only calls in the same event loop can wait for each other
        while True:
            with self.lock:
                if (cached_result := self.results.get(key)) is not None:
                    return cached_result
                run = self.runs.get(run_key)
                if run is None:
                    own = self.runs[run_key] = _Run()
                    break
            await run.ended.wait()
            if isinstance(run.outcome, Exception):
                raise run.outcome
            if run.outcome is not None:
                return run.outcome
        try:
            own.outcome = await self.executor.execute(request, context)
        except Exception as error:
            own.outcome = error
            raise
        else:
            return own.outcome
        finally:
            with self.lock:
                del self.runs[run_key]
                if isinstance(own.outcome, ToolExecutionResult) and not own.outcome.is_error:
                    self.results[key] = own.outcome
            own.ended.set()


def _context_key(context: InvocationContext) -> object:
    """Return the parts of a context that a function without a context parameter can receive."""
    caller = context.caller
    return (
        None if caller is None else (caller.name, caller.scopes, caller.claims),
        context.memory_id,
        context.parameters,
    )


def _whole_context_key(context: InvocationContext) -> object:
    """Return the parts of a context that may change the result of a tool that receives all of it."""
    return (
        _context_key(context),
        context.headers,
        context.client_capabilities,
        context.protocol_version,
        context.meta,
        _ByIdentity(context.peer),
    )


@dataclass(frozen=True, slots=True)
class _ByIdentity:
    """Compares a value by identity; holds a reference, so that its id is not reused."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _frozen(value: Any) -> Hashable:
    """Convert a value into a hashable key; equal for equal data of the same types."""
    if isinstance(value, Mapping):
        return (Mapping, frozenset((key, _frozen(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return (list, tuple(map(_frozen, value)))
    if isinstance(value, set | frozenset):
        return (set, frozenset(map(_frozen, value)))
    try:
        hash(value)
    except TypeError:
        return _ByIdentity(value)
    return (type(value), value)


def _library(feature: str, module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(feature, package, _EXTRA) from error


def _is_unexpected(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, ToolError | ArgumentsError)


def _is_failure(_: type[BaseException], error: BaseException) -> bool:
    """Return True if the exception counts as a failure of the backend."""
    return _is_unexpected(error) or isinstance(error, get_cancelled_exc_class())
