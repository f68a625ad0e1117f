"""Lifespans: what the functions of a module share while they are served."""

import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import ModuleType
from typing import Annotated, Any

import anyio
import anyio.to_thread
import pytest

from bridge import (
    DefinitionError,
    Depends,
    InvocationContext,
    ToolBox,
    ToolExecutionRequest,
    execute,
    lifespan,
    tools_from,
    wrapped,
)
from bridge.tools import Lifespan
from bridge.tools.lifespan import lifespans_of

on_both = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


class Recorded:
    """A lifespan that records what happens to it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.opening: Callable[[], Any] = anyio.lowlevel.checkpoint
        self.lifespan = lifespan(self.open)

    async def open(self) -> AsyncIterator[int]:
        self.log.append("opening")
        await self.opening()
        async with anyio.create_task_group():  # which has to be left in the task that has entered it
            self.log.append("open")
            yield len(self.log)
        self.log.append("closed")


@pytest.mark.anyio
@on_both
async def test_the_first_user_opens_it_and_the_last_one_closes_it() -> None:
    recorded = Recorded()
    leaving = [anyio.Event(), anyio.Event()]
    values: list[int] = []

    async def use(index: int, *, task_status: Any) -> None:
        async with recorded.lifespan.opened() as value:
            values.append(value)
            task_status.started()
            await leaving[index].wait()

    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            await tasks.start(use, 0)
            await tasks.start(use, 1)
            leaving[0].set()
            assert recorded.lifespan.value == values[0] == values[1]
            assert recorded.log == ["opening", "open"]
            leaving[1].set()
        assert recorded.log == ["opening", "open", "closed"]
        recorded.log.clear()
        values.clear()
        leaving[:] = [anyio.Event(), anyio.Event()]


@pytest.mark.anyio
@on_both
async def test_those_who_open_it_together_wait_until_it_is_open() -> None:
    recorded, release = Recorded(), anyio.Event()
    recorded.opening = release.wait
    is_open: list[bool] = []

    async def use() -> None:
        async with recorded.lifespan.opened():
            is_open.append("open" in recorded.log)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        tasks.start_soon(use)
        while not recorded.log:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(DefinitionError, match="is not open"):
            _ = recorded.lifespan.value
        release.set()
    assert is_open == [True, True]


@pytest.mark.anyio
@on_both
async def test_one_that_cannot_be_opened_raises_its_own_exception() -> None:
    recorded = Recorded()

    async def fail() -> None:
        raise OSError("no database")

    recorded.opening = fail
    for _ in range(2):
        with pytest.raises(OSError, match="no database") as raised:
            async with recorded.lifespan.opened():
                pass
        assert raised.value.__notes__ == [f"the lifespan {recorded.lifespan._name} could not be opened"]
    assert recorded.log == ["opening", "opening"]


@pytest.mark.anyio
@on_both
async def test_opening_is_cancelled_with_its_last_user() -> None:
    recorded = Recorded()
    recorded.opening = anyio.sleep_forever

    async def use() -> None:
        async with recorded.lifespan.opened():
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        while not recorded.log:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert recorded.log == ["opening"]
    recorded.opening = anyio.lowlevel.checkpoint
    await use()
    assert recorded.log == ["opening", "opening", "open", "closed"]


@pytest.mark.anyio
@on_both
async def test_an_error_of_closing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @lifespan
    async def app() -> AsyncIterator[int]:
        yield 1
        raise OSError("the disk is full")

    async with app.opened():
        pass
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("bridge.tools", logging.ERROR)
    assert record.getMessage().endswith(" failed to close")
    assert isinstance((record.exc_info or [None, None])[1], OSError)


@pytest.mark.anyio
@on_both
async def test_the_value_is_closed_when_the_user_is_cancelled() -> None:
    recorded = Recorded()
    with anyio.CancelScope() as scope:
        async with recorded.lifespan.opened():
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert recorded.log == ["opening", "open", "closed"]


def test_each_event_loop_has_a_value_of_its_own() -> None:
    recorded = Recorded()

    async def inner() -> int:
        async with recorded.lifespan.opened() as value:
            assert recorded.lifespan.value == value
            assert await anyio.to_thread.run_sync(lambda: recorded.lifespan.value) == value
            return value

    async def outer() -> None:
        async with recorded.lifespan.opened() as value:
            assert await anyio.to_thread.run_sync(anyio.run, inner) != value
            assert recorded.lifespan.value == value

    anyio.run(outer)


class Manager:
    async def __aenter__(self) -> str:
        return "of a class"

    async def __aexit__(self, *_: object) -> None: ...


@asynccontextmanager
async def managed() -> AsyncIterator[str]:
    yield "managed"


async def with_default(text: str = "default", *more: object, **others: object) -> AsyncIterator[str]:
    yield text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("function", "value"), [(managed, "managed"), (Manager, "of a class"), (with_default, "default")]
)
async def test_a_lifespan_is_an_async_context_manager_or_a_generator(function: Any, value: str) -> None:
    async with lifespan(function).opened() as found:
        assert found == value


async def with_parameter(server: object) -> AsyncIterator[object]:
    yield server


async def coroutine() -> None: ...


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (with_parameter, "a lifespan takes no parameters; remove server from"),
        (coroutine, "a lifespan is an async generator function"),
        (contextmanager(generator), "write async def, with one yield"),
        (1, "and 1 is none"),
    ],
)
def test_anything_else_is_refused(function: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        lifespan(function)


# --- functions of a module --------------------------------------------------------------------------------------------

SERVER = """
from typing import Annotated
from bridge import Depends, InvocationContext, lifespan

@lifespan
async def app():
    yield "{name}"

async def session(context: InvocationContext) -> str:
    return f"session of {{context.lifespan}}"

def session_in_thread(context: InvocationContext) -> str:
    return f"session of {{context.lifespan}}"

async def soon(context: InvocationContext[str]) -> str:
    return context.lifespan

def in_thread(context: InvocationContext) -> str:
    return context.lifespan

async def with_session(db: Annotated[str, Depends(session)], also: Annotated[str, Depends(session_in_thread)]) -> str:
    assert db == also
    return db

def without() -> str:
    return "nothing"
"""


@pytest.fixture
def module() -> Iterator[Callable[[str], Any]]:
    made: list[str] = []

    def make(name: str, source: str = SERVER) -> Any:
        found = sys.modules[name] = ModuleType(name)
        made.append(name)
        exec(source.format(name=name), vars(found))
        return found

    yield make
    for each in made:
        del sys.modules[each]


async def text_of(function: Any, context: InvocationContext) -> str:
    (found,) = tools_from(function)
    return (await execute(ToolBox(found), ToolExecutionRequest(found.name), context)).text


@pytest.mark.anyio
@on_both
async def test_functions_get_the_value_of_the_lifespan_of_their_module(module: Callable[[str], Any]) -> None:
    alpha, beta = module("alpha"), module("beta")
    async with alpha.app.opened(), beta.app.opened():
        for context in (InvocationContext(), InvocationContext(lifespan=beta.app)):
            assert await text_of(alpha.soon, context) == "alpha"
            assert await text_of(beta.soon, context) == "beta"
            assert await text_of(alpha.in_thread, context) == "alpha"
            assert await text_of(alpha.with_session, context) == "session of alpha"

        async def mixed(
            own: Annotated[str, Depends(alpha.session)], other: Annotated[str, Depends(beta.session_in_thread)]
        ) -> str:
            return f"{own}, {other}"

        assert await text_of(mixed, InvocationContext()) == "session of alpha, session of beta"


def test_an_executor_tells_the_lifespans_that_it_needs(module: Callable[[str], Any]) -> None:
    alpha, beta = module("alpha"), module("beta")

    def mixed(own: Annotated[str, Depends(alpha.session)], other: Annotated[str, Depends(beta.session)]) -> None: ...

    async def around(request: Any, context: Any, call_next: Any) -> Any:
        return await call_next(request, context)

    for function, expected in ((alpha.without, [alpha.app]), (mixed, [alpha.app, beta.app])):
        (found,) = tools_from(function)
        assert [*lifespans_of(found.executor)] == expected
        (outside,) = wrapped(found, around)
        assert [*lifespans_of(outside.executor)] == expected


@pytest.mark.anyio
async def test_without_a_lifespan_the_error_says_how_to_get_one() -> None:
    async def use(context: InvocationContext) -> str:
        with pytest.raises(DefinitionError, match=r"has no lifespan; decorate .* with @lifespan, or .*lifespan=…"):
            _ = context.lifespan
        return "done"

    assert await text_of(use, InvocationContext()) == "done"


@pytest.mark.anyio
async def test_one_that_is_not_open_says_how_to_open_it(module: Callable[[str], Any]) -> None:
    alpha = module("alpha")
    (found,) = tools_from(alpha.soon)
    with pytest.raises(DefinitionError, match=r"the lifespan 'app' \(.*\) is not open: .*async with x.opened\(\):"):
        await found.executor.execute(ToolExecutionRequest("soon"), InvocationContext())


def test_a_module_has_one_lifespan(module: Callable[[str], Any]) -> None:
    alpha = module("alpha")
    alpha.again = alpha.app
    assert tools_from(alpha.soon)
    alpha.other = lifespan(managed)
    with pytest.raises(DefinitionError, match="has several lifespans, app and other; open all in one"):
        tools_from(alpha.soon)


def test_a_lifespan_is_given_or_made() -> None:
    found = Lifespan.of(managed)
    assert Lifespan.of(found) is found


@pytest.mark.anyio
async def test_many_are_open_in_order() -> None:
    first, second = Recorded(), Recorded()
    second.log = first.log
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(first.lifespan.opened())
        await stack.enter_async_context(second.lifespan.opened())
    assert first.log == ["opening", "open", "opening", "open", "closed", "closed"]
