"""The context of a function in a worker thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import pytest

from bridge.errors import DefinitionError
from bridge.tools.channel import Channel
from bridge.tools.context import InvocationContext
from bridge.tools.function import tools_from
from bridge.tools.thread_context import ThreadContext
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


class Recorder(Channel):
    """A channel that records the progress."""

    def __init__(self) -> None:
        self.told: list[float] = []

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append(progress)


async def call(function: Callable[..., Any], context: InvocationContext) -> str:
    (tool,) = tools_from(function)
    return (await tool.executor.execute(ToolExecutionRequest(tool.name), context)).text


FORGOTTEN: dict[str, Callable[[InvocationContext], object]] = {
    "progress": lambda context: context.progress(1, 2),
    "start_task": lambda context: context.start_task(),
    "close_stream": lambda context: context.close_stream(),
    "log": lambda context: context.log("info", "a"),
    "ask": lambda context: context.ask({}),
    "elicit": lambda context: context.elicit("Where?", {}),
    "sample": lambda context: context.sample((), max_tokens=1),
    "roots": lambda context: context.roots(),
}


@pytest.mark.parametrize("way", FORGOTTEN)
@pytest.mark.parametrize("returns", [True, False])
async def test_a_way_back_that_nothing_awaits_is_refused_with_the_one_that_blocks(way: str, returns: bool) -> None:
    def work(context: InvocationContext) -> Any:
        """Forget to await."""
        value = FORGOTTEN[way](context)
        return value if returns else "done"

    with pytest.raises(DefinitionError) as caught:
        await call(work, InvocationContext())
    assert str(caught.value) == (
        f"InvocationContext.{way} must be awaited, and a plain function in a worker thread cannot; "
        f"call context.blocking.{way}(…) there, or make the function an async def"
    )


async def test_what_blocks_and_what_is_handed_to_the_event_loop_arrive() -> None:
    channel = Recorder()

    def work(context: InvocationContext) -> str:
        """Report."""
        context.blocking.progress(1)
        anyio.from_thread.run(context.progress, 2)
        return "done"

    assert await call(work, InvocationContext(channel=channel)) == "done"
    assert channel.told == [1, 2]


async def test_a_coroutine_that_a_plain_function_returns_can_await() -> None:
    channel = Recorder()

    async def report(context: InvocationContext) -> str:
        await context.progress(1)
        return "done"

    def work(context: InvocationContext) -> Any:
        """Leave it to another."""
        return report(context)

    assert await call(work, InvocationContext(channel=channel)) == "done"
    assert channel.told == [1]


async def test_it_is_the_same_context_in_all_else() -> None:
    context = InvocationContext(memory_id="a", headers={"b": "c"}, deadline=5.0, round=2, parameters={"d": 1})
    made = ThreadContext.of(context)
    assert {name: getattr(made, name) for name in InvocationContext.__slots__} == {
        name: getattr(context, name) for name in InvocationContext.__slots__
    }
    made.cancel()
    assert (made.cancelled, context.cancelled) == (True, False)
