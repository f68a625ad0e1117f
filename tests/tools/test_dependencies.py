"""Dependencies: parameters whose values functions provide."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Any

import anyio
import pytest

from bridge import (
    DefinitionError,
    Depends,
    InvocationContext,
    ToolBox,
    ToolError,
    ToolExecutionRequest,
    ToolExecutionResult,
    execute,
    prompt,
    tool,
    tools_from,
)
from bridge.server import Features

on_both = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])

LOG: list[str] = []
"""Events, in order."""


@pytest.fixture(autouse=True)
def _empty() -> None:
    LOG.clear()


async def run(function: Callable[..., Any], context: InvocationContext | None = None, **arguments: Any) -> str:
    """Run a function as a tool; returns the text of its result."""
    (found,) = tools_from(function)
    request = ToolExecutionRequest(found.name, arguments)
    result: ToolExecutionResult = await execute(ToolBox(found), request, context or InvocationContext())
    return result.text


def one() -> int:
    LOG.append("one")
    return 1


async def two() -> int:
    return 2


def three() -> Iterator[int]:
    LOG.append("open 3")
    yield 3
    LOG.append("close 3")


async def four() -> AsyncIterator[int]:
    LOG.append("open 4")
    try:
        yield 4
    finally:
        await anyio.lowlevel.checkpoint()
        LOG.append("close 4")


@asynccontextmanager
async def five() -> AsyncIterator[int]:
    yield 5
    LOG.append("close 5")


@contextmanager
def six() -> Iterator[int]:
    yield 6
    LOG.append("close 6")


class Seven:
    def __init__(self, base: Annotated[int, Depends(one)], extra: int = 6) -> None:
        self.value = base + extra

    def __str__(self) -> str:
        return str(self.value)


class Numbers:
    async def eight(self) -> int:
        return 8

    async def __call__(self) -> AsyncIterator[int]:
        yield 9


PROVIDERS: list[tuple[Any, str]] = [
    (one, "1"),
    (two, "2"),
    (three, "3"),
    (four, "4"),
    (five, "5"),
    (six, "6"),
    (Seven, "7"),
    (Numbers().eight, "8"),
    (Numbers(), "9"),
    (partial(three), "3"),
    (lambda: 10, "10"),
]


@pytest.mark.anyio
@on_both
@pytest.mark.parametrize(("provider", "text"), PROVIDERS)
@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_value_comes_from_what_can_be_called(provider: Any, text: str, in_thread: bool) -> None:
    @tool(run_in_thread=in_thread)
    def show(value: Annotated[object, Depends(provider)]) -> str:
        return str(value)

    async def show_soon(value: object = Depends(provider)) -> str:
        return str(value)

    assert await run(show) == text
    assert await run(show_soon) == text


def sum_of(
    low: Annotated[int, Depends(one)], again: Annotated[int, Depends(one)], high: Annotated[int, Depends(four)]
) -> int:
    return low + again + high


@pytest.mark.anyio
@on_both
async def test_a_value_is_made_once_for_a_call() -> None:
    async def add(total: Annotated[int, Depends(sum_of)], own: Annotated[int, Depends(one)], further: int) -> str:
        return f"{total + own + further}"

    assert await run(add, further=10) == "17"
    assert LOG.count("one") == 1
    assert await run(add, further=20) == "27"
    assert LOG.count("one") == 2


@pytest.mark.anyio
@on_both
async def test_a_value_that_is_not_shared_is_made_each_time() -> None:
    async def add(total: Annotated[int, Depends(sum_of)], own: Annotated[int, Depends(one, use_cache=False)]) -> str:
        return f"{total + own}"

    assert await run(add) == "7"
    assert LOG.count("one") == 2


@pytest.mark.anyio
@on_both
async def test_what_is_open_is_closed_in_reverse_order_after_the_result_is_written() -> None:
    class Late:
        def __str__(self) -> str:
            LOG.append("written")
            return "late"

    def nested(value: Annotated[int, Depends(three)]) -> Iterator[int]:
        LOG.append("open nested")
        yield value
        LOG.append("close nested")

    async def use(value: Annotated[int, Depends(nested)], other: Annotated[int, Depends(four)]) -> str:
        LOG.append("call")
        return f"{Late()}{value}{other}"

    assert await run(use) == "late34"
    assert LOG == ["open 3", "open nested", "open 4", "call", "written", "close 4", "close nested", "close 3"]


@asynccontextmanager
async def transaction() -> AsyncIterator[str]:
    try:
        yield "open"
    except BaseException as error:
        await anyio.lowlevel.checkpoint()
        LOG.append(f"rolled back: {type(error).__name__}")
        raise
    else:
        LOG.append("committed")


Db = Annotated[str, Depends(transaction)]


@pytest.mark.anyio
@on_both
async def test_what_is_open_learns_of_a_failure() -> None:
    async def fail(db: Db) -> str:
        raise ToolError(f"no, {db}")

    def fail_in_thread(db: Db) -> str:
        raise ToolError(f"no, {db}")

    assert await run(fail) == "no, open"
    assert await run(fail_in_thread) == "no, open"
    assert LOG == ["rolled back: ToolError"] * 2


@pytest.mark.anyio
@on_both
async def test_what_is_open_is_closed_if_the_next_cannot_be_opened() -> None:
    async def refuse() -> int:
        raise ToolError("no more connections")

    async def use(db: Db, number: Annotated[int, Depends(refuse)]) -> str:
        return f"{db}{number}"

    assert await run(use) == "no more connections"
    assert LOG == ["rolled back: ToolError"]


@pytest.mark.anyio
@on_both
async def test_a_dependency_that_swallows_a_failure_does_not_hide_it() -> None:
    async def silent() -> AsyncIterator[int]:
        try:
            yield 1
        except ToolError:
            LOG.append("swallowed")

    async def fail(number: Annotated[int, Depends(silent)]) -> str:
        raise ToolError(f"failed with {number}")

    assert await run(fail) == "failed with 1"
    assert LOG == ["swallowed"]


@pytest.mark.anyio
@on_both
async def test_closing_ends_when_the_call_is_cancelled() -> None:
    started = anyio.Event()

    async def wait(db: Db) -> str:
        started.set()
        await anyio.sleep_forever()
        return db

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, wait)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert LOG in (["rolled back: CancelledError"], ["rolled back: Cancelled"])


@pytest.mark.anyio
@on_both
async def test_a_function_in_a_thread_ends_before_what_it_uses_is_closed() -> None:
    started = anyio.Event()

    def wait(db: Db, context: InvocationContext) -> str:
        anyio.from_thread.run_sync(started.set)
        while not context.cancelled:
            pass
        LOG.append("left")
        return db

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, wait)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert LOG[0] == "left"
    assert LOG[1].startswith("rolled back")


def test_dependencies_are_in_no_schema() -> None:
    def use(db: Db, text: str, plain: int = 1) -> str:
        return f"{db}{text}{plain}"

    @prompt
    def ask(db: Db, text: str) -> str:
        return f"{db}{text}"

    features = Features.of(use, ask)
    assert list(features.tools.get("use").specification.parameters["properties"]) == ["text", "plain"]
    assert features.prompts is not None
    assert [each.name for each in features.prompts.find("ask").arguments] == ["text"]  # type: ignore[union-attr]


def test_a_dependency_is_a_function() -> None:
    with pytest.raises(DefinitionError, match=r"Depends takes a function, not 1; write Depends\(open_session\)"):
        Depends(1)  # type: ignore[arg-type]


def test_what_depends_on_itself_is_refused() -> None:
    def loop(value: int) -> int:
        return value

    def around(value: Annotated[int, Depends(loop)]) -> int:
        return value

    loop.__annotations__["value"] = Annotated[int, Depends(around)]
    with pytest.raises(DefinitionError, match=r"depends on itself: .*loop → .*around → .*loop; break the circle"):
        tools_from(lambda_tool(loop))


def lambda_tool(provider: Callable[..., Any]) -> Callable[..., Any]:
    def use(value: Annotated[int, Depends(provider)]) -> int:
        return value

    return use


def test_a_dependency_without_a_value_for_a_parameter_is_refused() -> None:
    def needy(city: str) -> str:
        return city

    class Needy:
        def __init__(self, city: str) -> None: ...

    with pytest.raises(DefinitionError, match=r"needy.*nothing fills in its parameter 'city'; give it a default"):
        tools_from(lambda_tool(needy))
    with pytest.raises(DefinitionError, match=r"class .*Needy.*nothing fills in its parameter 'city'"):
        tools_from(lambda_tool(Needy))
    with pytest.raises(DefinitionError, match="has no readable signature"):
        tools_from(lambda_tool(type))

    def complete(text: str, arguments: object, context: object, city: Annotated[str, Depends(needy)]) -> list[str]:
        return []

    @prompt(completions={"topic": complete})
    def review(topic: str) -> str:
        return topic

    with pytest.raises(DefinitionError, match="parameter 'city'"):
        Features.of(review)


def test_a_call_without_dependencies_is_as_before() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    async def add_soon(a: int, b: int) -> int:
        return a + b

    (plain,), (soon,) = tools_from(add), tools_from(add_soon)
    assert type(plain.executor).__name__ == "ThreadExecutor"
    assert soon.runs_directly
    (dependent,) = tools_from(lambda_tool(one))
    assert not dependent.runs_directly
