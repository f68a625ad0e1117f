"""Context of a function in a worker thread."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from anyio import NoEventLoopError
from anyio.lowlevel import current_token

from bridge.errors import DefinitionError
from bridge.tools.blocking_context import BlockingContext
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from bridge.tools.lifespan import Lifespan
    from bridge.tools.session import SessionState

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _awaitable(method: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Raise an error if the method is called without an event loop, where its coroutine would never be awaited."""

    @functools.wraps(method)
    def checked(*arguments: _P.args, **keywords: _P.kwargs) -> Coroutine[Any, Any, _T]:
        _require_loop(method.__name__)
        return method(*arguments, **keywords)

    return checked


def _require_loop(name: str) -> None:
    try:
        current_token()
    except NoEventLoopError:
        raise DefinitionError(
            f"InvocationContext.{name} must be awaited, and a plain function in a worker thread cannot; "
            f"call context.blocking.{name}(…) there, or make the function an async def"
        ) from None


class ThreadContext(InvocationContext):
    """Context for one call of a function in a worker thread; its asynchronous methods raise an error there."""

    __slots__ = ()

    @classmethod
    def of(cls, context: InvocationContext, lifespan: Lifespan[Any] | None = None) -> ThreadContext:
        """Create a context for one call of an invocation, like `InvocationContext.fork`."""
        copy = cls.__new__(cls)
        _ = context.invocation_id
        for name in InvocationContext.__slots__:
            setattr(copy, name, getattr(context, name))
        if lifespan is not None:
            copy._lifespan = lifespan  # noqa: SLF001 - of the base class
        return copy

    @property
    def session(self) -> SessionState:
        """See `InvocationContext.session`; in a worker thread, `blocking` has it."""
        _require_loop("session.get")
        return super().session


for _name in vars(BlockingContext).keys() & {name for name in vars(InvocationContext) if not name.startswith("_")}:
    if callable(_method := getattr(InvocationContext, _name)):
        setattr(ThreadContext, _name, _awaitable(_method))
