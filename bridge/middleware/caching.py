"""Caches of results: of one tool, and of what a whole server or provider answers. They need the extra ``guards``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import anyio
from anyio import lowlevel

from bridge.middleware.guards import library
from bridge.tools.annotated_checks import checked
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.checks import require_callable, require_count, require_seconds
from bridge.tools.content import Text
from bridge.tools.function import one_tool
from bridge.tools.labels import version_in
from bridge.tools.middleware import CompleteRequest, GetPromptRequest, ListRequest, Middleware, WrappedExecutor
from bridge.types import REQUEST_ID_META_KEY

if TYPE_CHECKING:
    from cachetools import TTLCache

    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import CallNext, Request
    from bridge.tools.tool import Tool

_DEFAULT_ENTRIES = 1_000
_DEFAULT_BYTES = 64 * 1024 * 1024
_ITEM_BYTES = 1024
"""Assumed size of an item of a list, and of the parts of a result that are not counted."""


def cached(
    source: object,
    *,
    ttl_seconds: float,
    max_entries: int = _DEFAULT_ENTRIES,
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
    cache = _Cache("cached", ttl_seconds, max_entries)
    if key is not None:
        require_callable(key, 1, "key", "the context")
    tool = one_tool(source)
    caller_key = key or (_whole_context_key if tool.interactive else _context_key)

    async def from_cache(
        request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
    ) -> ToolExecutionResult:
        if _depends_on_answers(context):
            return await call_next(request, context)
        found: ToolExecutionResult = await cache.get(
            (_frozen(request.arguments_by_name()), _frozen(caller_key(context))), lambda: call_next(request, context)
        )
        return found

    return replace(tool, executor=WrappedExecutor(tool.executor, from_cache))


class CachingMiddleware(Middleware):
    """Caches what is read, listed and prompted, and results of tools that are named; errors are not cached.

    A result is reused for the same request of the same caller. It is dropped before its time when the list changes, or,
    for what is read, when any resource does. Concurrent requests of this kind share one run.

    Args:
        ttl_seconds: Time to live of a result.
        tools: Names of the tools whose results are cached; they should have no side effects.
        public: Returns True for a request whose result is the same for every caller.
        key: Separates callers that must not share results that are not public. Defaults to the caller with its scopes
            and claims, and the memory id: by default the caller's name, or else the session.
        max_entries: Maximum cached results.
        max_bytes: Approximate maximum size of all of them.

    Raises:
        DefinitionError: A value is invalid.
        MissingExtraError: The package ``cachetools`` is not installed.
    """

    @checked()
    def __init__(
        self,
        *,
        ttl_seconds: float,
        tools: Collection[str] = (),
        public: Callable[[Request], bool] | None = None,
        key: Callable[[InvocationContext], object] | None = None,
        max_entries: int = _DEFAULT_ENTRIES,
        max_bytes: int = _DEFAULT_BYTES,
    ) -> None:
        self._cache = _Cache(type(self).__name__, ttl_seconds, max_entries, max_bytes)
        self._tools = frozenset(tools)
        for name, function, received in (("public", public, "the request"), ("key", key, "the context")):
            if function is not None:
                require_callable(function, 1, name, received)
        self._is_public = public or (lambda _: False)
        self._key = key or _context_key

    def clear(self) -> None:
        """Drop all cached results; from any thread."""
        self._cache.clear()

    async def on_request(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Answer a request from the cache, or run it."""
        if _depends_on_answers(context) or not self._is_cached(request):
            return await call_next(request, context)
        whose = () if self._is_public(request) else (_frozen(self._key(context)),)
        key = (_key_of(request), version_in(context.meta), whose, context.protocol_version)
        return await self._cache.get(key, lambda: call_next(request, context))

    def _is_cached(self, request: Request) -> bool:
        if isinstance(request, ToolExecutionRequest):
            return request.name in self._tools
        return not isinstance(request, CompleteRequest)


def _key_of(request: Request) -> Hashable:
    """Return what tells a request apart from others, without its caller."""
    if isinstance(request, ToolExecutionRequest):
        return ToolExecutionRequest, request.name, _frozen(request.arguments_by_name())
    if isinstance(request, GetPromptRequest):
        return GetPromptRequest, request.name, _frozen(request.arguments), _frozen(request.revision)
    target = request.method if isinstance(request, ListRequest) else getattr(request, "uri", None)
    return type(request), target, _frozen(getattr(request, "revision", None))


@dataclass(slots=True)
class _Run:
    """One run whose result is shared by concurrent requests."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    outcome: Any = None
    """The result, or the exception; None if there is nothing to share: it was cancelled, or asked its caller."""


class _Cache:
    """Results by key.

    Args:
        feature: Name of what uses it, for messages.
        ttl_seconds: Time to live of a result.
        max_entries: Maximum cached results.
        max_bytes: Approximate maximum size of all of them; None for no maximum.

    Raises:
        DefinitionError: A value is invalid.
        MissingExtraError: The package ``cachetools`` is not installed.
    """

    def __init__(self, feature: str, ttl_seconds: float, max_entries: int, max_bytes: int | None = None) -> None:
        require_seconds(ttl_seconds, "ttl_seconds", optional=False)
        require_count(max_entries, "max_entries")
        require_count(max_bytes, "max_bytes", optional=True)
        made = library(feature, "cachetools", "cachetools").TTLCache
        if max_bytes is None:
            self._results: TTLCache[object, Any] = made(max_entries, ttl_seconds)
        else:  # an entry counts as its share of the bytes at least, so that both maximums hold
            share = max_bytes / max_entries
            self._results = made(max_bytes, ttl_seconds, getsizeof=lambda result: max(share, _size_of(result)))
        self._runs: dict[object, _Run] = {}
        self._lock = Lock()  # cachetools is not thread-safe

    async def get(self, key: object, run: Callable[[], Awaitable[Any]]) -> Any:
        """Return the cached result of a key, that of a run that has begun, or that of a new run."""
        run_key = (lowlevel.current_token(), key)  # only requests in the same event loop can wait for each other
        while True:
            with self._lock:
                if (cached_result := self._results.get(key)) is not None:
                    return cached_result
                begun = self._runs.get(run_key)
                if begun is None:
                    own = self._runs[run_key] = _Run()
                    break
            await begun.ended.wait()
            if isinstance(begun.outcome, Exception):
                raise begun.outcome
            if begun.outcome is not None:
                return begun.outcome
        try:
            own.outcome = await run()
        except Exception as error:
            own.outcome = error
            raise
        else:
            return own.outcome
        finally:
            with self._lock:
                del self._runs[run_key]
                if _may_be_kept(own.outcome):
                    try:
                        self._results[key] = own.outcome
                    except ValueError:  # larger than the cache
                        self._results.pop(key, None)
            own.ended.set()

    def clear(self) -> None:
        """Drop all results; from any thread."""
        with self._lock:
            self._results.clear()


def _may_be_kept(result: Any) -> bool:
    if result is None or isinstance(result, Exception):
        return False
    if not isinstance(result, ToolExecutionResult):
        return True
    received: Any = result.received
    if isinstance(received, Mapping) and received.get("resultType", "complete") != "complete":
        return False  # a task of another server
    return not (result.is_error or result.attributes)  # which belong to one call


def _size_of(result: Any) -> int:
    """Return the approximate size of a result in bytes."""
    if not isinstance(result, ToolExecutionResult):
        return _ITEM_BYTES * (1 + len(result))
    if (text := getattr(result.received, "text", None)) is not None:
        return _ITEM_BYTES + len(text)
    messages = result.value if isinstance(result.value, tuple) else ()
    blocks = (*result.content, *(each.content for each in messages if hasattr(each, "content")))
    return sum((_ITEM_BYTES + _length_of(block) for block in blocks), _ITEM_BYTES)


def _length_of(block: Any) -> int:
    data = block.text if isinstance(block, Text) else getattr(block, "data", None) or getattr(block, "content", None)
    return len(data) if isinstance(data, str | bytes) else 0


def _depends_on_answers(context: InvocationContext) -> bool:
    """True if the caller has answered questions of the request."""
    return bool(context.round) or context.resumption is not None


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
        {key: value for key, value in context.meta.items() if key != REQUEST_ID_META_KEY},  # each call has its own
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
