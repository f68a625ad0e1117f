"""Guards: small wrappers around a tool that protect what stands behind it, each from a library that does just that.

    tool = cached(retried(circuit_broken(rate_limited(search, 10, per_seconds=60)), attempts=3), ttl_seconds=300)

The outermost is asked first: here what the cache knows costs none of the ten calls, and each retry costs one. The tool
keeps its name, its schema and its policy; a timeout counts for all of it together. Needs the extra ``guards``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

import anyio
from anyio import get_cancelled_exc_class, lowlevel

from bridge.errors import ArgumentsError, DefinitionError, MissingExtraError, ToolError
from bridge.text import with_count
from bridge.tools.function import tools_from
from bridge.tools.tool import ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from cachetools import TTLCache
    from tenacity import RetryCallState

    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool, ToolExecutionRequest, ToolExecutor

_logger = logging.getLogger("bridge.service")
_EXTRA = "guards"


def rate_limited(
    source: object,
    calls: int,
    *,
    per_seconds: float,
    key: Callable[[InvocationContext], str] = lambda _: "everybody",
) -> Tool:
    """A tool that may be called so often; further calls are errors that tell the model when to try again.

    Args:
        source: The tool: a Tool, or a function.
        calls: How many calls.
        per_seconds: In how much time, a whole number of seconds; capacity comes back evenly over it.
        key: Whose calls are counted together, such as ``lambda context: context.caller.name``; all by default.

    Raises:
        DefinitionError: It is not one tool, or there is no such rate.
        MissingExtraError: The package ``throttled`` is not installed.
    """
    if calls < 1 or per_seconds < 1 or not float(per_seconds).is_integer():
        raise DefinitionError(
            f"rate_limited takes at least 1 call, in a whole number of seconds of at least 1, not {calls!r} in "
            f"{per_seconds!r} seconds"
        )
    throttled = _library("rate_limited", "throttled", "throttled-py")
    quota = throttled.rate_limiter.per_duration(timedelta(seconds=per_seconds), calls, burst=calls)
    throttle = throttled.Throttled(using="gcra", quota=quota, store=throttled.store.MemoryStore())
    tool = _one(source)
    return replace(tool, executor=_RateLimited(tool.executor, throttle, key))


def circuit_broken(source: object, *, failures: int = 5, recovery_seconds: float = 60.0) -> Tool:
    """A tool that is left alone for a while after it has failed again and again.

    What counts is an unexpected exception or a timeout. A `ToolError` and wrong arguments are answers: what stands
    behind the tool works.

    Args:
        source: The tool: a Tool, or a function.
        failures: After how many failures in a row.
        recovery_seconds: How long it is left alone, until one call may try whether it works.

    Raises:
        DefinitionError: It is not one tool.
        MissingExtraError: The package ``circuitbreaker`` is not installed.
    """
    library = _library("circuit_broken", "circuitbreaker", "circuitbreaker")
    tool = _one(source)
    breaker = library.CircuitBreaker(
        failure_threshold=failures, recovery_timeout=recovery_seconds, expected_exception=_is_failure, name=tool.name
    )
    return replace(tool, executor=_CircuitBroken(tool.executor, breaker))


def cached(
    source: object,
    *,
    ttl_seconds: float,
    max_entries: int = 1_000,
    key: Callable[[InvocationContext], object] | None = None,
) -> Tool:
    """A tool that is not run again for what it has answered already; errors are not kept.

    An answer serves only calls with the same arguments and the same key. Such calls at the same time share one run,
    which goes on in another of them where the call that began it is cancelled.

    Args:
        source: The tool: a Tool, or a function. It should change nothing.
        ttl_seconds: How long an answer is good.
        max_entries: How many answers are kept.
        key: Tells apart those who may not share answers, such as ``lambda context: context.caller.name``, or
            ``lambda context: None`` for answers that are everybody's. By default all that the tool can see: the caller,
            the memory id and the `InvocationParameters`; of a tool that takes the whole context, or runs elsewhere, its
            headers, metadata and client too. A function that looks up by itself who calls, in a context variable say,
            needs a key.

    Raises:
        DefinitionError: It is not one tool.
        MissingExtraError: The package ``cachetools`` is not installed.
    """
    library = _library("cached", "cachetools", "cachetools")
    tool = _one(source)
    key = key or (_seen_in_whole if tool.interactive else _seen)
    return replace(tool, executor=_Cached(tool.executor, library.TTLCache(max_entries, ttl_seconds), key))


def retried(
    source: object,
    *,
    attempts: int = 3,
    when: Callable[[BaseException], bool] | None = None,
    first_wait_seconds: float = 0.5,
    max_wait_seconds: float = 30.0,
) -> Tool:
    """A tool that is run again where it raises; every repetition is logged.

    Args:
        source: The tool: a Tool, or a function. Running it twice should do no harm.
        attempts: How often it is run at most.
        when: Says of an exception whether to run it again; by default any but `ToolError` and wrong arguments.
        first_wait_seconds: How long to wait before the second attempt; each further wait is about twice as long.
        max_wait_seconds: How long to wait at most.

    Raises:
        DefinitionError: It is not one tool.
        MissingExtraError: The package ``tenacity`` is not installed.
    """
    library = _library("retried", "tenacity", "tenacity")
    tool = _one(source)
    retrying = library.AsyncRetrying(
        stop=library.stop_after_attempt(attempts),
        wait=library.wait_exponential_jitter(
            multiplier=first_wait_seconds, max=max_wait_seconds, jitter=first_wait_seconds
        ),
        retry=library.retry_if_exception(when or _is_unexpected),
        before_sleep=_log_retry(tool.name),
        sleep=anyio.sleep,
        reraise=True,
    )
    return replace(tool, executor=_Retried(tool.executor, retrying))


@dataclass(frozen=True, slots=True)
class _RateLimited:
    executor: ToolExecutor
    throttle: Any
    key: Callable[[InvocationContext], str]

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        answer = self.throttle.limit(self.key(context))
        if answer.limited:
            seconds = max(1, math.ceil(answer.state.retry_after))
            raise ToolError(f"{request.name!r} was called too often; try again in {with_count(seconds, 'second')}")
        return await self.executor.execute(request, context)


@dataclass(frozen=True, slots=True)
class _CircuitBroken:
    executor: ToolExecutor
    breaker: Any

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        if self.breaker.opened:
            seconds = max(1, math.ceil(self.breaker.open_remaining))
            raise ToolError(f"{request.name!r} does not work at present; try again in {with_count(seconds, 'second')}")
        deadline = anyio.current_effective_deadline()
        try:
            result = await self.executor.execute(request, context)
        except BaseException as error:
            if isinstance(error, get_cancelled_exc_class()) and anyio.current_time() < deadline:
                raise  # whoever left says nothing of what stands behind the tool
            with self.breaker:
                raise
        with self.breaker:
            return result


class _Run:
    """One run of a tool, and the calls that wait for its outcome."""

    __slots__ = ("ended", "outcome")

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.outcome: ToolExecutionResult | Exception | None = None
        """None where there is none that others could share: the run was cancelled, or asked its caller something."""


class _Cached:
    __slots__ = ("_answers", "_executor", "_key", "_lock", "_runs")

    def __init__(
        self,
        executor: ToolExecutor,
        answers: TTLCache[object, ToolExecutionResult],
        key: Callable[[InvocationContext], object],
    ) -> None:
        self._executor = executor
        self._answers = answers
        self._key = key
        self._lock = Lock()  # the library's caches are for one thread
        self._runs: dict[object, _Run] = {}

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        if context.round or context.resumption is not None:
            return await self._executor.execute(request, context)  # the answers to its questions are its own
        key = (_frozen(request.arguments), _frozen(self._key(context)))
        place = (lowlevel.current_token(), key)  # calls of one event loop can wait for one another
        while True:
            with self._lock:
                if (known := self._answers.get(key)) is not None:
                    return known
                run = self._runs.get(place)
                if run is None:
                    own = self._runs[place] = _Run()
                    break
            await run.ended.wait()
            if isinstance(run.outcome, Exception):
                raise run.outcome
            if run.outcome is not None:
                return run.outcome
        try:
            own.outcome = await self._executor.execute(request, context)
        except Exception as error:
            own.outcome = error
            raise
        else:
            return own.outcome
        finally:
            with self._lock:
                del self._runs[place]
                if isinstance(own.outcome, ToolExecutionResult) and not own.outcome.is_error:
                    self._answers[key] = own.outcome
            own.ended.set()


def _seen(context: InvocationContext) -> object:
    """What of a context reaches a function that does not take it as a whole."""
    caller = context.caller
    return (
        None if caller is None else (caller.name, caller.scopes, caller.claims),
        context.memory_id,
        context.parameters,
    )


def _seen_in_whole(context: InvocationContext) -> object:
    """What of a context may change the answer of a tool that receives all of it."""
    return (_seen(context), context.headers, context.client_capabilities, context.meta, _Same(context.peer))


@dataclass(frozen=True, slots=True)
class _Same:
    """Something that is equal to itself only; it is held, so that nothing else takes its place in memory."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _frozen(value: Any) -> Hashable:
    """A value as a key: equal for the same data of the same types."""
    if isinstance(value, Mapping):
        return (Mapping, frozenset((key, _frozen(each)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return (list, tuple(map(_frozen, value)))
    if isinstance(value, set | frozenset):
        return (set, frozenset(map(_frozen, value)))
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return (type(value), value)


@dataclass(frozen=True, slots=True)
class _Retried:
    executor: ToolExecutor
    retrying: Any

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        result: ToolExecutionResult = await self.retrying.copy()(self.executor.execute, request, context)
        return result


def _one(source: object) -> Tool:
    tools = tools_from(source)
    if len(tools) != 1:
        raise DefinitionError(f"a guard takes one tool, and {source!r} holds {len(tools)}; guard each of them")
    return tools[0]


def _library(feature: str, module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(feature, package, _EXTRA) from error


def _is_unexpected(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, ToolError | ArgumentsError)


def _is_failure(_: type[BaseException], error: BaseException) -> bool:
    """Whether an exception speaks against what stands behind the tool."""
    return _is_unexpected(error) or isinstance(error, get_cancelled_exc_class())


def _log_retry(name: str) -> Callable[[RetryCallState], None]:
    def log(state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        _logger.warning("the tool %r failed (%s); attempt %d follows", name, error, state.attempt_number + 1)

    return log
