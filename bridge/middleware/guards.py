"""Rate limits, circuit breakers and retries, around one tool or around everything that is served.

    tool = cached(retried(circuit_broken(rate_limited(search, 10, per_seconds=60)), attempts=3), ttl_seconds=300)
    server = Server(tools, name="search", middleware=[RateLimitMiddleware(10, per_seconds=60), RetryMiddleware()])

The outermost wrapper runs first: in this example cached results do not count as calls, and each retry does. The tool
keeps its name, schema and policy; its timeout covers all wrappers together. Each wrapper uses a well-known library;
needs the extra ``guards``.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
from anyio import get_cancelled_exc_class

from bridge.errors import (
    ArgumentsError,
    DefinitionError,
    MissingExtraError,
    ResourceNotFoundError,
    ToolError,
    UnknownToolError,
)
from bridge.protocol.messages import ProtocolError
from bridge.text import clip, with_count
from bridge.tools.annotated_checks import checked
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.checks import require_callable, require_count, require_seconds
from bridge.tools.function import one_tool
from bridge.tools.middleware import Middleware, WrappedExecutor, method_of, target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tenacity import RetryCallState

    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import Request
    from bridge.tools.tool import Tool

_logger = logging.getLogger("bridge.middleware")
_EXTRA = "guards"
_MAX_BREAKERS = 1_000
_ANSWERS = (ToolError, ArgumentsError, UnknownToolError, ResourceNotFoundError, ProtocolError)
"""Exceptions that are answers of a working backend."""


class RateLimitMiddleware(Middleware):
    """Limits the rate of all requests together; those over the limit wait, or fail with the number of seconds to wait.

    Args:
        calls: Number of requests per period.
        per_seconds: The period, a whole number of seconds; capacity is restored evenly within it.
        key: Returns the key under which requests are counted, such as ``lambda context: context.account``. Defaults to
            one count for all.
        max_wait_seconds: Maximum wait of a request for its turn; 0 lets those over the limit fail at once.

    Raises:
        DefinitionError: The rate is invalid.
        MissingExtraError: The package ``throttled-py`` is not installed.
    """

    def __init__(
        self,
        calls: int,
        *,
        per_seconds: float,
        key: Callable[[InvocationContext], str] = lambda _: "everybody",
        max_wait_seconds: float = 0.0,
    ) -> None:
        require_count(calls, "calls")
        period: Any = per_seconds  # untyped programs may pass any type
        if not isinstance(period, int | float) or period < 1 or not float(period).is_integer():
            raise DefinitionError(
                f"a rate is at least 1 call, in a whole number of seconds of at least 1, not {calls!r} in "
                f"{per_seconds!r} seconds"
            )
        require_callable(key, 1, "key", "the context")
        require_seconds(max_wait_seconds, "max_wait_seconds", optional=False, may_be_zero=True)
        throttled = library("a rate limit", "throttled", "throttled-py")
        quota = throttled.rate_limiter.per_duration(timedelta(seconds=per_seconds), calls, burst=calls)
        self._throttle = throttled.Throttled(using="gcra", quota=quota, store=throttled.store.MemoryStore())
        self._key = key
        self._max_wait_seconds = max_wait_seconds

    async def on_request(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Count a request, and run it when it is its turn."""
        counted, last_turn = f"key {self._key(context)}", anyio.current_time() + self._max_wait_seconds
        while (answer := self._throttle.limit(counted)).limited:
            wait_seconds = answer.state.retry_after
            if anyio.current_time() + wait_seconds > last_turn:
                seconds = with_count(max(1, math.ceil(wait_seconds)), "second")
                raise ToolError(f"{_target(request)!r} was called too often; try again in {seconds}")
            await anyio.sleep(wait_seconds)
        return await call_next(request, context)


class CircuitBreakerMiddleware(Middleware):
    """Suspends requests for a tool, resource or prompt after its consecutive failures (circuit breaker).

    Failures are unexpected exceptions and timeouts. A `ToolError` or invalid arguments are not failures: the backend
    works.

    Args:
        failures: Number of consecutive failures that opens the circuit.
        recovery_seconds: Time until one trial request is allowed.

    Raises:
        DefinitionError: A value is invalid.
        MissingExtraError: The package ``circuitbreaker`` is not installed.
    """

    def __init__(self, *, failures: int = 5, recovery_seconds: float = 60.0) -> None:
        require_count(failures, "failures")
        require_seconds(recovery_seconds, "recovery_seconds", optional=False)
        if recovery_seconds == math.inf:
            raise DefinitionError("recovery_seconds must be finite; a tool that is never tried again can be removed")
        breaker = library("a circuit breaker", "circuitbreaker", "circuitbreaker").CircuitBreaker
        make = partial(breaker, failures, recovery_seconds, _is_failure)
        self._breaker_of = lru_cache(_MAX_BREAKERS)(lambda *_: make())

    async def on_request(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run a request, unless its circuit is open."""
        breaker = self._breaker_of(method_of(request), target_of(request))
        return await self._run(breaker, request, context, call_next)

    async def run_alone(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run a request in the one circuit of all requests."""
        return await self._run(self._breaker_of(), request, context, call_next)

    async def _run(
        self, breaker: Any, request: Request, context: InvocationContext, call_next: Callable[..., Any]
    ) -> Any:
        if breaker.opened:
            seconds = with_count(max(1, math.ceil(breaker.open_remaining)), "second")
            raise ToolError(f"{_target(request)!r} does not work at present; try again in {seconds}")
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


class RetryMiddleware(Middleware):
    """Runs reads, lists, prompts and completions again if they raise, and tools that are named; retries are logged.

    Args:
        attempts: Maximum number of runs.
        tools: Names of the tools that are run again; running them twice must be harmless.
        when: Returns True for exceptions to retry. Defaults to all but those that are answers: `ToolError`, invalid
            arguments, what does not exist, and protocol errors.
        first_wait_seconds: Wait before the second attempt; it doubles for each further attempt, with jitter.
        max_wait_seconds: Maximum wait.

    Raises:
        DefinitionError: A value is invalid.
        MissingExtraError: The package ``tenacity`` is not installed.
    """

    @checked(may_be_zero=("first_wait_seconds", "max_wait_seconds"))
    def __init__(
        self,
        *,
        attempts: int = 3,
        tools: Collection[str] = (),
        when: Callable[[BaseException], bool] | None = None,
        first_wait_seconds: float = 0.5,
        max_wait_seconds: float = 30.0,
    ) -> None:
        require_count(attempts, "attempts")
        if when is not None:
            require_callable(when, 1, "when", "the exception")
        require_seconds(first_wait_seconds, "first_wait_seconds", optional=False, may_be_zero=True)
        require_seconds(max_wait_seconds, "max_wait_seconds", optional=False, may_be_zero=True)
        self._tools = frozenset(tools)
        tenacity = library("a retry", "tenacity", "tenacity")
        self._retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(attempts),
            wait=tenacity.wait_exponential_jitter(
                multiplier=first_wait_seconds, max=max_wait_seconds, jitter=first_wait_seconds
            ),
            retry=tenacity.retry_if_exception(when or _is_unexpected),
            before_sleep=_log_retry,
            sleep=anyio.sleep,
            reraise=True,
        )

    async def on_request(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run a request, again if it may be repeated."""
        if isinstance(request, ToolExecutionRequest) and request.name not in self._tools:
            return await call_next(request, context)
        return await self.repeat(request, context, call_next)

    async def repeat(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Run a request of any kind until it succeeds."""
        return await self._retrying.copy()(call_next, request, context)


def _log_retry(state: RetryCallState) -> None:
    error = None if state.outcome is None else state.outcome.exception()
    request: Request = state.args[0]
    what = "the tool" if isinstance(request, ToolExecutionRequest) else method_of(request)
    _logger.warning("%s %r failed (%s); attempt %d follows", what, _target(request), error, state.attempt_number + 1)


# --- one tool ---------------------------------------------------------------------------------------------------------


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
    limit = RateLimitMiddleware(calls, per_seconds=per_seconds, key=key, max_wait_seconds=max_wait_seconds)
    return _around(source, limit.on_request)


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
    return _around(source, CircuitBreakerMiddleware(failures=failures, recovery_seconds=recovery_seconds).run_alone)


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
    retry = RetryMiddleware(
        attempts=attempts, when=when, first_wait_seconds=first_wait_seconds, max_wait_seconds=max_wait_seconds
    )
    return _around(source, retry.repeat)


def _around(source: object, guard: Callable[..., Any]) -> Tool:
    tool = one_tool(source)
    return replace(tool, executor=WrappedExecutor(tool.executor, guard))


def library(feature: str, module: str, package: str) -> Any:
    """Import a library of the extra ``guards``.

    Raises:
        MissingExtraError: It is not installed; the message names the feature that needs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(feature, package, _EXTRA) from error


def _target(request: Request) -> str:
    return clip(target_of(request) or method_of(request))


def _is_unexpected(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, _ANSWERS)


def _is_failure(_: type[BaseException], error: BaseException) -> bool:
    """Return True if the exception counts as a failure of the backend."""
    return _is_unexpected(error) or isinstance(error, get_cancelled_exc_class())
