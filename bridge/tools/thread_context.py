"""The context of a function in a worker thread: its ways back to the caller cannot be awaited there, and say so."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from anyio import NoEventLoopError
from anyio.lowlevel import current_token

from bridge.errors import DefinitionError
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
