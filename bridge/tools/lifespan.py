"""Lifespans: what the functions of a server file share, such as a pool of connections, open while they are served.

    @lifespan
    async def app():
        async with create_pool() as pool:
            yield pool

    first user ─> the function runs up to its yield ─> … ─> last user leaves ─> the rest of the function runs

The function runs in a task of its own, from the first user to the last; users may leave in any order.
"""

from __future__ import annotations

import inspect
import logging
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.from_thread
from anyio.lowlevel import current_token

from bridge.errors import DefinitionError
from bridge.portal import loop_of_thread, start_detached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from anyio.lowlevel import EventLoopToken

_NOT_OPENED = "could not be opened"
"""End of the note that an error of opening has."""

_T = TypeVar("_T")
_logger = logging.getLogger("bridge.tools")


class Lifespan(Generic[_T]):
    """A value that is open while a server runs; made by `lifespan`.

    Args:
        function: An async generator function with one ``yield``, or an async context manager function, without
            parameters.

    Raises:
        DefinitionError: It is neither, or has parameters.
    """

    are_there = False
    """True once the process has any."""

    def __init__(self, function: Callable[[], AsyncIterator[_T] | AbstractAsyncContextManager[_T]]) -> None:
        self._open = _context_manager_of(function)
        code = getattr(inspect.unwrap(function), "__code__", None)
        place = f" ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})" if code else ""
        self._name = f"{getattr(function, '__name__', function)!r}{place}"
        self._uses: dict[EventLoopToken, _Use] = {}
        """The users of each event loop."""
        Lifespan.are_there = True

    @classmethod
    def of(cls, given: Any) -> Lifespan[Any]:
        """Return a lifespan, or the one of a function."""
        return given if isinstance(given, Lifespan) else cls(given)

    @property
    def value(self) -> _T:
        """The value that the function has yielded.

        Raises:
            DefinitionError: It is not open.
        """
        uses = [*self._uses.values()]
        use = uses[0] if len(uses) == 1 else self._uses.get(_loop()) if uses else None
        if use is None or not use.is_open:
            raise DefinitionError(
                f"the lifespan {self._name} is not open: servers open it; elsewhere, write `async with x.opened():`, "
                "where x is its name"
            )
        value: _T = use.value
        return value

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[_T]:
        """Keep it open during this block; yields its value.

        The first user in an event loop opens it, and the last one closes it. An error of closing is logged.

        Raises:
            Exception: The function failed before its ``yield``.
        """
        loop = current_token()
        while (use := self._uses.get(loop)) is not None and use.ending.is_set():
            await use.ended.wait()
        if use is None:
            use = self._uses[loop] = _Use()
            start_detached(lambda: self._run(loop, use), f"the lifespan {self._name}")
        use.count += 1
        try:
            await use.settled.wait()
            if use.error is not None:
                raise use.error
            yield use.value
        finally:
            use.count -= 1
            if not use.count:
                use.ending.set()
                if not use.is_open:
                    use.scope.cancel()
                with anyio.CancelScope(shield=True):
                    await use.ended.wait()

    async def _run(self, loop: EventLoopToken, use: _Use) -> None:
        try:
            with use.scope:
                async with self._open() as use.value:
                    use.is_open = True
                    use.settled.set()
                    await use.ending.wait()
        except anyio.get_cancelled_exc_class():  # the event loop ends
            raise
        except BaseException as error:
            if not use.is_open:
                error.add_note(f"the lifespan {self._name} {_NOT_OPENED}")
                use.error = error
            else:
                what = "failed to close" if use.ending.is_set() else "has failed while it was open"
                _logger.exception("the lifespan %s %s", self._name, what)
        finally:
            use.is_open = False
            del self._uses[loop]
            use.settled.set()
            use.ended.set()

    def __repr__(self) -> str:
        return f"<Lifespan {self._name}>"


class _Use:
    """The users of a lifespan in one event loop."""

    def __init__(self) -> None:
        self.count = 0
        self.value: Any = None
        self.is_open = False
        self.error: BaseException | None = None
        """Error of opening."""
        self.scope = anyio.CancelScope()
        """Scope of the function."""
        self.settled = anyio.Event()
        """It is open, or has failed."""
        self.ending = anyio.Event()
        """The last user has left."""
        self.ended = anyio.Event()
        """It is closed."""


def lifespan(function: Callable[[], AsyncIterator[_T] | AbstractAsyncContextManager[_T]]) -> Lifespan[_T]:
    """Make a function the lifespan of the functions of its module: opened before their first call, closed after all.

    Every server of such a function opens it before the first request is answered, and closes it after the last one;
    so do the commands of ``bridge`` for a file. The value is ``InvocationContext.lifespan`` in the module's functions.

    Args:
        function: An async generator function with one ``yield``, or an async context manager function, without
            parameters.

    Raises:
        DefinitionError: It is neither, or has parameters.
    """
    return Lifespan(function)


def why_not_opened(error: BaseException) -> str | None:
    """Return the sentence for an error of opening a lifespan; None for another error."""
    note = next((note for note in getattr(error, "__notes__", ()) if note.endswith(_NOT_OPENED)), None)
    return None if note is None else f"{note}: {type(error).__name__}: {error}"


def lifespan_in(names: Mapping[str, Any]) -> Lifespan[Any] | None:
    """Return the lifespan among the names of a module; None if it has none.

    Raises:
        DefinitionError: It has several.
    """
    if not Lifespan.are_there:
        return None
    found: dict[Lifespan[Any], str] = {}
    for name, value in names.items():
        if isinstance(value, Lifespan):
            found.setdefault(value, name)
    if len(found) > 1:
        raise DefinitionError(
            f"{names.get('__name__')} has several lifespans, {' and '.join(found.values())}; open all in one"
        )
    return next(iter(found), None)


def lifespans_of(executor: Any) -> Iterable[Lifespan[Any]]:
    """Return the lifespans that an executor needs, or those of the executors that it wraps."""
    if (own := getattr(executor, "lifespans", None)) is not None:
        return own if isinstance(own, tuple) else ()
    inner = (getattr(executor, "executor", None), *getattr(executor, "executors", ()))
    return [each for other in inner if other is not None for each in lifespans_of(other)]


def _context_manager_of(function: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    bottom = inspect.unwrap(function) if callable(function) else function
    is_manager = isinstance(function, type) and hasattr(function, "__aenter__")
    if not (inspect.isasyncgenfunction(bottom) or is_manager):
        raise DefinitionError(
            f"a lifespan is an async generator function, and {function!r} is none; write async def, with one yield"
        )
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise DefinitionError(f"a lifespan takes no parameters; remove {', '.join(needed)} from {function!r}")
    made: Callable[[], AbstractAsyncContextManager[Any]] = (
        function if is_manager or bottom is not function else asynccontextmanager(function)
    )
    return made


def _loop() -> Any:
    """Return the running event loop, or the one that this worker thread works for; None if there is none."""
    try:
        return current_token()
    except RuntimeError:
        pass
    try:
        return loop_of_thread() or anyio.from_thread.run_sync(current_token)
    except RuntimeError:
        return None
